import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cluster.errors import BadInput
from cluster.stage import build
from tasks.data.filtering import rules
from tasks.data.filtering.repetition import repeated_gram_chars, top_gram_chars
from tasks.data.filtering.rules import PRESETS, RULES, Shape, reason_against
from tasks.data.filters import FilterSettings, filter_text
from tasks.data.text import read_table

PROSE = (
    "The river runs past the mill, and the people of the valley have known it for a long time.\n"
    "In winter it is quiet; in summer the children swim below the bridge until the evening.\n"
    "Nobody asks who built the wheel. It turns, and that is enough for everyone who lives here.\n"
    "Once a year the miller opens the gate and lets the old water go. Then the work begins again.\n"
    "There is bread on the table, light in the windows, and a road that leads over the hill.\n"
    "What more could a village want? A doctor, perhaps, and a school with a garden of its own.\n"
)
CODE = "import os\n\n\n" + "\n".join(
    f"def name_{i}(x):\n    return x * {i} + 1\n" for i in range(9)
)


def test_every_preset_keeps_what_it_is_for():
    assert reason_against(PROSE, PRESETS["basic"]) is None
    assert reason_against(PROSE, PRESETS["web"]) is None
    assert reason_against(CODE, PRESETS["basic"]) is None
    assert reason_against(CODE, PRESETS["code"]) is None
    assert reason_against("机器学习是人工智能的一个分支。" * 3 + PROSE, PRESETS["basic"]) is None


BROKEN = {
    ("basic", "too_short"): "ten chars.",
    ("basic", "unprintable"): PROSE + "\x01\x02\x03\ufffd" * 10,
    ("basic", "few_alphanumerics"): "=-=-=+ " * 40,
    ("basic", "short_words"): "a b c d " * 40,
    ("basic", "unbroken_run"): PROSE + "ab" * 5000,
    ("basic", "repeated_lines"): PROSE + "the same line again and again\n" * 60,
    ("code", "generated"): "# This file is auto-generated.\n" + CODE,
    ("code", "long_line"): CODE + "x = " + "'a' + " * 400,
    ("code", "long_lines"): ("value = " + "1234 + " * 20 + "\n") * 4,
    ("code", "encoded_data"): "data = '''" + "QUJD\n" * 1000 + "'''",
    ("web", "few_words"): "Too few words here.",
    ("web", "short_words"): "I am at it. " * 30,
    ("web", "long_words"): "incomprehensibilities notwithstanding " * 30,
    ("web", "many_symbols"): PROSE + "# " * 30,
    ("web", "bullet_lines"): "".join("- " + line + "\n" for line in PROSE.splitlines()),
    ("web", "ellipsis_lines"): PROSE.replace(".\n", "...\n").replace("again...", "again."),
    ("web", "few_alphabetic_words"): PROSE + "1234 5678 " * 30,
    ("web", "few_stop_words"): "Every green river flows under seven bridges. " * 12,
    ("web", "repeated_line_share"): PROSE + "Oh yes.\n" * 5,
    ("web", "repeated_paragraph_share"): "\n\n".join([PROSE.replace("\n", " "), *["Oh."] * 2]),
    ("web", "repeated_line_chars"): PROSE + PROSE.splitlines()[0] + "\n",
    ("web", "repeated_5grams"): PROSE.replace("\n", " ") * 2,
    ("web", "top_2gram"): PROSE + "very good " * 40,
    ("web", "lorem_ipsum"): PROSE + "Lorem ipsum dolor.\n",
    ("web", "curly_bracket"): PROSE + "function() { return 1; }\n",
    ("web", "few_sentences"): PROSE.replace(".", ",").replace("?", ","),
    ("web", "unpunctuated_lines"): PROSE + "Home page contact imprint\nAnd so on\n" * 40,
    ("web", "short_lines"): PROSE + "".join(f"Yes, and so on {i}.\n" for i in range(20)),
}


@pytest.mark.parametrize("preset,rule", BROKEN)
def test_a_broken_rule_gives_its_name(preset, rule):
    limits = {rule: PRESETS[preset][rule]}
    assert reason_against(BROKEN[preset, rule], limits) == rule


def test_every_rule_of_a_preset_exists_and_every_rule_can_be_measured():
    for preset in PRESETS.values():
        assert set(preset) <= set(RULES)
    for name, rule in RULES.items():
        for text in ("", " ", PROSE, "\ud800", "é\x00"):
            assert rule.measure(Shape(text)) >= 0, name


@given(st.text(max_size=200))
def test_shares_match_their_definition(text):
    shape = Shape(text)
    dense = [c for c in text if not c.isspace()]
    alnum = sum(c.isalnum() for c in text)
    assert rules.alphanumeric_share(shape) == alnum / max(1, len(dense))
    good = sum((c.isprintable() or c in "\t\n\r\f" or (c > "\x7f" and c.isspace())) for c in text)
    bad = len(text) - good + text.count("\ufffd")
    assert rules.unprintable_share(shape) * max(1, len(text)) == pytest.approx(bad if text else 1)


def test_repetition_by_hand():
    words = ["a", "bb", "a", "bb", "a", "bb", "ccc"]
    assert top_gram_chars(words, 2) == 9  # "a bb", three times three characters
    assert repeated_gram_chars(words, 2) == 6  # words 3 to 6 lie in pairs seen before
    assert repeated_gram_chars(words, 3) == 6
    assert top_gram_chars(["all", "of", "these", "differ"], 2) == 0
    assert top_gram_chars(["short"], 2) == repeated_gram_chars(["short"], 5) == 0


@given(st.lists(st.sampled_from("abc"), max_size=40), st.integers(2, 6))
def test_repetition_matches_a_plain_loop(words, n):
    seen, covered = set(), set()
    for i in range(len(words) - n + 1):
        gram = tuple(words[i : i + n])
        if gram in seen:
            covered.update(range(i, i + n))
        seen.add(gram)
    expected = len(covered) if len(words) > n else 0
    assert repeated_gram_chars(words, n) == expected


def test_the_stage_balances_and_keeps_rejects(store, text_artifact):
    artifact = text_artifact([PROSE, "short", CODE, "=-=-=+ " * 40, "tiny: jane@example.org"])
    out = build(filter_text, store, raw=artifact, settings=FilterSettings())
    assert read_table(out)["text"].to_pylist() == [PROSE, CODE]
    assert out.manifest.ledger.rejects == {"few_alphanumerics": 1, "too_short": 2}
    assert (out.manifest.ledger.rows_in, out.manifest.ledger.rows_out) == (5, 2)
    assert out.manifest.rows == 2
    rejects = pq.read_table(out.file("rejects-00000.parquet")).to_pylist()
    assert [(r["id"], r["reason"]) for r in rejects] == [
        ("texts.jsonl:2", "too_short"),
        ("texts.jsonl:4", "few_alphanumerics"),
        ("texts.jsonl:5", "too_short"),
    ]
    samples = out.manifest.facts["samples"]["too_short"]
    assert [s["text"] for s in samples] == ["short", "tiny: <EMAIL>"]


def test_limits_change_add_and_drop_rules(store, text_artifact):
    settings = FilterSettings(limits={"too_short": 5, "few_stop_words": 2, "short_words": None})
    assert settings.rules["too_short"] == 5
    assert settings.rules["few_stop_words"] == 2
    assert "short_words" not in settings.rules
    artifact = text_artifact([PROSE, "no stop word anywhere", "a b"])
    out = build(filter_text, store, raw=artifact, settings=settings)
    assert out.manifest.ledger.rejects == {"few_stop_words": 1, "too_short": 1}
    with pytest.raises(ValidationError, match="unknown rule 'to_short': did you mean 'too_short'"):
        FilterSettings(limits={"to_short": 5})


def test_a_filter_that_leaves_nothing_is_an_error(store, text_artifact):
    with pytest.raises(BadInput, match="0 of 2 rows left after filter 'basic': too_short 2"):
        build(filter_text, store, raw=text_artifact(["a", "b"]), settings=FilterSettings())


def test_a_rule_that_raises_rejects_one_document(store, text_artifact, monkeypatch):
    def fragile(shape):
        if "boom" in shape.text:
            raise KeyError("boom")
        return 100.0

    monkeypatch.setitem(RULES, "too_short", RULES["too_short"]._replace(measure=fragile))
    artifact = text_artifact([PROSE, "boom", CODE])
    out = build(filter_text, store, raw=artifact, settings=FilterSettings(max_bad_rate=0.5))
    assert out.manifest.ledger.rejects == {"error:KeyError": 1}
    assert out.manifest.rows == 2
    with pytest.raises(BadInput, match=r"raised on 1 of 3 documents, more than max_bad_rate 0\.01"):
        build(filter_text, store, raw=artifact, settings=FilterSettings())
