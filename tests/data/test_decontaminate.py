import json
import random
import unicodedata

import pytest

from cluster.errors import BadInput
from cluster.settings import contents
from cluster.stage import build
from tasks.data.decontamination.settings import DecontaminateSettings
from tasks.data.decontamination.stage import decontaminate
from tasks.data.text import read_table
from tasks.report.dataset_card import render

QUESTION = (
    "How many grains of wheat lie on the last square of the board, if each doubles the one before?"
)
CLEAN = (
    "A quiet river runs past the mill, where old stones have ground the village's grain for years."
)
SHORT = "Name the capital of the northern province today"


def benchmark(tmp_path, rows, **settings):
    path = tmp_path / "board.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    entry = {"path": str(path), "fields": ["question"], "id": "id"}
    return DecontaminateSettings(benchmarks=(entry,), **settings)


def rows_of(artifact):
    return [json.loads(line) for line in artifact.file("items.jsonl").read_text().splitlines()]


@pytest.fixture
def settings(tmp_path):
    return benchmark(
        tmp_path,
        [
            {"id": "wheat", "question": QUESTION},
            {"id": "absent", "question": CLEAN.replace("river", "stream").replace("mill", "barn")},
            {"id": "short", "question": SHORT},
            {"id": "tiny", "question": "Why?"},
        ],
    )


def test_documents_with_an_ngram_of_an_item_are_set_aside(store, text_artifact, settings):
    dirty = "Puzzle 7. " + QUESTION.upper().replace(",", ";") + " Answer on the next page."
    text = text_artifact([CLEAN, dirty, f"He said: {SHORT.lower()}!"])
    out = build(decontaminate, store, text=text, settings=settings)
    assert read_table(out)["text"].to_pylist() == [CLEAN]
    assert out.manifest.ledger.rejects == {"contaminated:board.jsonl": 2}
    wheat, absent, short = rows_of(out)
    assert (wheat["id"], wheat["dirty"], wheat["found"], wheat["ngrams"]) == ("wheat", True, 7, 7)
    assert wheat["ngram"] == "HOW MANY GRAINS OF WHEAT LIE ON THE LAST SQUARE OF THE BOARD"
    assert wheat["item"] == QUESTION and "Puzzle 7." in wheat["passage"]
    assert wheat["document"] == "texts.jsonl:2"
    assert (absent["id"], absent["dirty"], absent["found"]) == ("absent", False, 0)
    assert (short["id"], short["dirty"], short["ngrams"]) == ("short", True, 1)
    assert "- board.jsonl: 2 of 3 items were found in the text" in render(out, store)
    assert out.manifest.facts["benchmarks"] == [
        {"name": "board.jsonl", "items": 3, "dirty": 2, "too_short": 1}
    ]


def test_one_word_less_than_an_ngram_is_no_match(store, text_artifact, settings):
    twelve = " ".join(QUESTION.split()[:12])
    out = build(
        decontaminate, store, text=text_artifact([twelve + " otherwise"]), settings=settings
    )
    assert out.manifest.rows == 1
    assert not any(row["dirty"] for row in rows_of(out))


def test_reporting_keeps_the_documents(store, text_artifact, settings):
    report = settings.model_copy(update={"action": "report"})
    out = build(decontaminate, store, text=text_artifact([CLEAN, QUESTION]), settings=report)
    assert out.manifest.rows == 2
    assert out.manifest.metrics["items_dirty"] == 1


def test_equal_hashes_of_other_words_are_no_match(store, text_artifact, settings, monkeypatch):
    import numpy as np

    from tasks.data.decontamination import search

    monkeypatch.setattr(search, "_ngrams", lambda text, length: np.array([7], np.uint64))
    monkeypatch.setattr(search, "_mark", lambda *arguments: arguments[-1].fill(True))
    out = build(decontaminate, store, text=text_artifact([CLEAN]), settings=settings)
    assert out.manifest.rows == 1


def test_identity_is_the_content_of_the_benchmarks(tmp_path):
    def identity(question):
        settings = benchmark(tmp_path, [{"id": 1, "question": question}])
        return settings.identity(contents(settings))

    one, again, other = identity(QUESTION), identity(QUESTION), identity(QUESTION + "?")
    assert one == again != other
    assert str(tmp_path) not in json.dumps(one)


def test_nothing_to_look_for_is_refused(tmp_path, store, text_artifact):
    settings = benchmark(tmp_path, [{"id": 1, "question": "Why?"}])
    with pytest.raises(BadInput, match="none of 1 items has 8 words"):
        build(decontaminate, store, text=text_artifact([CLEAN]), settings=settings)
    wrong = benchmark(tmp_path, [{"id": 1, "answer": "x"}])
    with pytest.raises(BadInput, match="question"):
        build(decontaminate, store, text=text_artifact([CLEAN]), settings=wrong)


SCRIPTS = {
    "Latin": "déjà vu señor über straße façade naïve coöperate jalapeño résumé",
    "Cyrillic": "город река мельница камень мука хлеб поле ветер дорога вечер",
    "Arabic": "كِتَاب مدينة نهر طاحونة حجر دقيق خبز حقل ريح طريق",
    "Devanagari": "विद्यार्थी किताब नदी चक्की पत्थर रोटी हवा सड़क शाम हिन्दी",
    "Bengali": "নদী পাথর রুটি বাতাস রাস্তা সন্ধ্যা বিদ্যার্থী বই শহর মাঠ",
    "Hangul": "도시 강물 방앗간 돌멩이 밀가루 빵집 들판 바람 도로 저녁",
    "Thai": "เมือง แม่น้ำ โรงสี ก้อนหิน แป้ง ขนมปัง ทุ่งนา สายลม ถนน ตอนเย็น",
    "Han": "城市 河流 磨坊 石头 面粉 面包 田野 微风 道路 傍晚",
    "Kana": "まち かわ すいしゃ いし こな ぱん のはら かぜ みち ゆうがた",
}
UNPARTED = ("Thai", "Han", "Kana")
ZERO_WIDTH = "\u200b\u200c\u200d\u00ad\u2060\ufeff"


def sentence(script, rng, words=30):
    return ("" if script in UNPARTED else " ").join(rng.choices(SCRIPTS[script].split(), k=words))


def full_width(text):
    return "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)


def with_zero_widths(text, rng):
    return "".join(c + rng.choice(ZERO_WIDTH) * (rng.random() < 0.2) for c in text)


def apart(text):
    return unicodedata.normalize("NFD", text)


@pytest.mark.parametrize("disguise", ["none", "apart", "full-width", "zero-width"])
@pytest.mark.parametrize("script", SCRIPTS)
def test_items_of_every_script_are_found_however_typed(
    tmp_path, store, text_artifact, script, disguise
):
    rng = random.Random(script + disguise)
    items = [sentence(script, rng) for _ in range(20)]
    clean = [sentence(script, rng, 60) for _ in range(20)]
    change = {
        "none": str,
        "apart": apart,
        "full-width": full_width,
        "zero-width": lambda text: with_zero_widths(text, rng),
    }[disguise]
    # In the middle of a text, without a space where the script has none.
    gap = "" if script in UNPARTED else " "
    planted = [
        change(gap.join((sentence(script, rng, 5), item, sentence(script, rng, 5))))
        for item in items
    ]
    settings = benchmark(tmp_path, [{"id": i, "question": q} for i, q in enumerate(items)])
    out = build(decontaminate, store, text=text_artifact(clean + planted), settings=settings)
    assert read_table(out)["text"].to_pylist() == clean
    assert all(row["dirty"] for row in rows_of(out)) and len(rows_of(out)) == 20


def test_items_too_short_to_look_for_are_counted_and_said(store, text_artifact, settings, caplog):
    out = build(decontaminate, store, text=text_artifact([CLEAN]), settings=settings)
    assert out.manifest.metrics["items_too_short"] == 1
    assert out.manifest.facts["benchmarks"][0]["too_short"] == 1
    assert "1 of 4 items have fewer than 8 words and were not looked for" in caplog.messages
