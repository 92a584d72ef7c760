import json
import re
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from cluster.errors import BadInput
from cluster.settings import contents
from cluster.stage import build
from flows.plan.dag import Dag
from tasks.data.filtering.decisions import judge
from tasks.data.filtering.rules import C4, LINE_RULES, PRESETS, RULES
from tasks.data.filtering.settings import FilterSettings
from tasks.data.filtering.stage import filter_text
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


def reason_against(text, limits):
    return judge(pa.array([text]), limits).reasons[0]


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
    ("basic", "short_runs"): "a b c d " * 40,
    ("basic", "unbroken_run"): PROSE + "ab" * 5000,
    ("basic", "repeated_text"): PROSE + "the same line again and again\n" * 60,
    ("code", "generated"): "# This file is auto-generated.\n" + CODE,
    ("code", "long_line"): CODE + "x = " + "'a' + " * 400,
    ("code", "long_lines"): ("value = " + "1234 + " * 20 + "\n") * 4,
    ("code", "encoded_data"): "data = '''" + "QUJD\n" * 1000 + "'''",
    ("code", "xml"): '<?xml version="1.0"?>\n' + CODE,
    ("web", "few_words"): "Too few words here.",
    ("web", "short_words"): "I am at it. " * 30,
    ("web", "long_words"): "incomprehensibilities notwithstanding " * 30,
    ("web", "many_hashes"): PROSE + "# " * 30,
    ("web", "many_ellipses"): PROSE + "so … " * 30,
    ("web", "bullet_lines"): "".join("- " + line + "\n" for line in PROSE.splitlines()),
    ("web", "ellipsis_lines"): PROSE.replace(".\n", "...\n").replace("again...", "again."),
    ("web", "few_alphabetic_words"): PROSE + "1234 5678 " * 30,
    ("web", "few_stop_words"): "Every green river flows under seven bridges. " * 12,
    ("web", "repeated_lines"): PROSE + "Oh yes.\n" * 5,
    ("web", "repeated_paragraphs"): "\n\n".join([PROSE.replace("\n", " "), *["Oh."] * 2]),
    ("web", "repeated_line_chars"): PROSE + PROSE.splitlines()[0] + "\n" + PROSE.splitlines()[1],
    ("web", "repeated_5grams"): PROSE.replace("\n", " ") * 2,
    ("web", "top_2gram"): PROSE + "very good " * 40,
    ("web", "lorem_ipsum"): PROSE + "Lorem ipsum dolor.\n",
    ("web", "curly_bracket"): PROSE + "function() { return 1; }\n",
    ("web", "few_sentences"): PROSE.replace(".", ",").replace("?", ","),
    ("web", "unpunctuated_lines"): PROSE + "Home page contact imprint\nAnd so on\n" * 40,
    ("web", "short_lines"): PROSE + "".join(f"Yes, and so on {i}.\n" for i in range(20)),
    ("web", "many_newlines"): "So be.\n" * 40,
}


@pytest.mark.parametrize("preset,rule", BROKEN)
def test_a_broken_rule_gives_its_name(preset, rule):
    if (preset, rule) == ("web", "few_sentences"):
        text = " ".join(BROKEN[preset, rule].split())
    else:
        text = BROKEN[preset, rule]
    limits = {rule: PRESETS[preset][rule]}
    assert reason_against(text, limits) == rule


def test_the_first_rule_broken_is_the_reason():
    text = "# - " * 20
    assert reason_against(text, {"few_words": 50, "many_hashes": 0.1}) == "few_words"
    assert reason_against(text, {"many_hashes": 0.1, "few_words": 50}) == "many_hashes"


def test_every_rule_of_a_preset_exists():
    for preset in PRESETS.values():
        assert set(preset) <= set(RULES) | set(LINE_RULES)


def test_a_verdict_does_not_depend_on_the_batch():
    texts = [*BROKEN.values(), PROSE, CODE, "", "一" * 400, "\n\n"]
    for limits in PRESETS.values():
        together = judge(pa.array(texts), limits)
        alone = [judge(pa.array([text]), limits) for text in texts]
        assert together.reasons == [one.reasons[0] for one in alone]
        assert together.texts.to_pylist() == [one.texts[0].as_py() for one in alone]


def test_rules_after_line_rules_see_what_is_left():
    text = PROSE + "Read our privacy policy and { } now.\n"
    assert reason_against(text, {"curly_bracket": 0, "line_policy": 0}) == "curly_bracket"
    assert reason_against(text, {"line_policy": 0, "curly_bracket": 0}) is None
    verdicts = judge(pa.array([text, text + "{"]), {"line_policy": 0, "curly_bracket": 0})
    assert verdicts.texts.to_pylist() == [PROSE.strip(), text + "{"]  # a reject stays as it was
    assert verdicts.lines == {"line_policy": 1}


LINES = (
    "The mill turns all day, and so it goes.",
    "  [1] The wheel turns too. ",
    "Home",
    "Lorem ipsum dolor sit amet",
    "Lorem ipsum dolor sit amet.",
    "Enable JavaScript { now }.",
    "Enable java[2]script now, please.",
    "Read our privacy policy { here }.",
    "Read our privacy policy here.",
    "function() { return 1; }",
    "Open the { first } gate.",
    "Two words{.",
)


def c4(text):
    """What C4 makes of a page, line by line; None where it gives it up."""
    kept = []
    for line in map(str.strip, text.splitlines()):
        words = len(line.split())
        line = re.sub(r"\[\d*]|\[edit]|\[citation needed]", "", line)
        if not line.endswith((".", "?", "!", '"', "'")) or words < 3:
            continue
        if "lorem ipsum" in line.lower():
            return None
        if "javascript" in line.lower():
            continue
        if "{" in line:
            return None
        if "privacy policy" not in line.lower():
            kept.append(line)
    return "\n".join(kept)


def test_pages_are_given_up_in_the_order_of_c4():
    limits = {name: limit for name, limit in C4.items() if name != "few_sentences"}
    pages = ["\n".join([LINES[0], *pair]) for pair in product(LINES, repeat=2)]
    verdicts = judge(pa.array(pages), limits)
    for page, reason, text in zip(pages, verdicts.reasons, verdicts.texts.to_pylist(), strict=True):
        assert c4(page) == (None if reason else text), page


def test_the_stage_gives_up_a_page_for_a_brace_in_a_line_it_would_drop(store, text_artifact):
    broken = PROSE + "Read our privacy policy and { } now.\n"
    artifact = text_artifact([broken, PROSE + "This JavaScript is { } here.\n"])
    out = build(filter_text, store, raw=artifact, settings=FilterSettings(preset="web"))
    assert out.manifest.ledger.rejects == {"curly_bracket": 1}
    assert read_table(out)["text"].to_pylist() == [PROSE.strip()]


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
    assert [s["text"][:20] for s in out.manifest.facts["kept"]] == [PROSE[:20], CODE[:20]]


def test_the_web_preset_takes_lines_out(store, text_artifact):
    artifact = text_artifact([PROSE + "Home\nThis site uses cookies, as all do.\n", "short"])
    out = build(filter_text, store, raw=artifact, settings=FilterSettings(preset="web"))
    assert read_table(out)["text"].to_pylist() == [PROSE.strip()]
    assert out.manifest.facts["lines_removed"] == {"line_unpunctuated": 1, "line_policy": 1}


def test_limits_change_add_and_drop_rules(store, text_artifact):
    settings = FilterSettings(limits={"too_short": 5, "few_stop_words": 2, "short_runs": None})
    assert settings.rules["too_short"] == 5
    assert settings.rules["few_stop_words"] == 2
    assert "short_runs" not in settings.rules
    artifact = text_artifact([PROSE, "no stop word anywhere", "a b"])
    out = build(filter_text, store, raw=artifact, settings=settings)
    assert out.manifest.ledger.rejects == {"few_stop_words": 1, "too_short": 1}
    with pytest.raises(ValidationError, match=r"unknown rule 'to_short': did you mean 'too_short'"):
        FilterSettings(limits={"to_short": 5})


def test_a_filter_that_leaves_nothing_is_an_error_with_the_keys_seen(store, read_path, tmp_path):
    rows = [{"title": "a", "body": PROSE}, {"title": "b", "body": PROSE}]
    tables = {
        "in.jsonl": lambda path: path.write_text("".join(json.dumps(r) + "\n" for r in rows)),
        "in.json": lambda path: path.write_text(json.dumps(rows)),
        "in.parquet": lambda path: pq.write_table(pa.Table.from_pylist(rows), path),
        "in.csv": lambda path: pa.csv.write_csv(pa.Table.from_pylist(rows), path),
    }
    for name, write in tables.items():
        write(tmp_path / name)
        raw = read_path({"path": str(tmp_path / name), "text": "title"})
        with pytest.raises(
            BadInput,
            match=r"0 of 2 rows left after filter 'basic': too_short 2. Text was read from 'title' "
            rf"of {name}; the keys seen are title, body\..*with `text:`",
        ):
            build(filter_text, store, raw=raw, settings=FilterSettings())


@pytest.fixture
def custom(tmp_path):
    """A function of the user's own, as the recipe names it."""
    path = tmp_path / "mine.py"
    path.write_text(
        "import time\n"
        "def no_mills(text):\n"
        "    if 'hang' in text: time.sleep(60)\n"
        "    return 'wheel' if 'wheel' in text else text[1000] * 0 == ''\n"
    )
    return f"{path}:no_mills"


def test_a_custom_filter_rejects_and_its_errors_are_counted(store, text_artifact, custom):
    long = "".join(f"def name_{i}(x):\n    return x * {i} + 1\n" for i in range(60))
    artifact = text_artifact([PROSE, long, "hang" * 20, CODE[:80]])
    settings = FilterSettings(custom=(custom,), custom_seconds=2, max_failed_rate=0.5)
    out = build(filter_text, store, raw=artifact, settings=settings)
    assert out.manifest.ledger.rejects == {
        "no_mills:wheel": 1, "timeout": 1, "error:IndexError": 1
    }  # fmt: skip
    assert read_table(out)["text"].to_pylist() == [long]
    with pytest.raises(
        BadInput,
        match=r"filters failed on \d of 4 documents, .*more than filters.max_failed_rate",
    ):
        strict = FilterSettings(custom=(custom,), custom_seconds=2)
        build(filter_text, store, raw=artifact, settings=strict)


def test_more_time_counts_only_where_a_document_took_too_long(store, text_artifact, custom):
    def planned(raw, seconds):
        settings = FilterSettings(custom=(custom,), custom_seconds=seconds, max_failed_rate=1)
        return Dag("test", store).add(filter_text, raw=raw, settings=settings)

    long = "".join(f"def name_{i}(x):\n    return x * {i} + 1\n" for i in range(60))
    for texts, again in ([long], False), ([long, long + "hang"], True):
        raw = text_artifact(texts, f"{len(texts)}.jsonl")
        node = planned(raw, 2)
        made = build(filter_text, store, raw=raw, spec=node.spec, **node.literals)
        assert made.manifest.ledger.rejects == ({"timeout": 1} if again else {})
        assert planned(raw, 1).found == made
        assert planned(raw, 9).found == (None if again else made)


def test_a_filter_that_fails_on_one_document_costs_that_document(store, text_artifact, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("def odd(text):\n    return 1 / ('PROSE' not in text) > 0\n")
    texts = [PROSE + f"{i} to {i + 1}.\n" for i in range(20)]
    settings = FilterSettings(custom=(f"{path}:odd",))
    bad = [*texts[:7], "PROSE " + PROSE, *texts[7:]]
    out = build(filter_text, store, raw=text_artifact(bad), settings=settings)
    assert read_table(out)["text"].to_pylist() == texts  # the others as they were
    assert out.manifest.ledger.rejects == {"error:ZeroDivisionError": 1}
    (sample,) = out.manifest.facts["samples"]["error:ZeroDivisionError"]
    assert sample["id"] == "texts.jsonl:8"
    two = [*bad, "PROSE again " + PROSE]
    with pytest.raises(BadInput, match=r"failed on 2 of 22 documents.*ZeroDivisionError 2"):
        build(filter_text, store, raw=text_artifact(two, "two.jsonl"), settings=settings)
    many = [*two, *(f"{i} {PROSE}" for i in range(1978))]  # two of 2000 are one in a thousand
    out = build(filter_text, store, raw=text_artifact(many, "many.jsonl"), settings=settings)
    assert out.manifest.ledger.rejects == {"error:ZeroDivisionError": 2}


def test_a_pattern_that_backtracks_for_ever_costs_its_document(store, text_artifact, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("import re\ndef odd(text):\n    return not re.match(r'(a+)+$', text)\n")
    artifact = text_artifact(["a" * 50_000 + "!", PROSE])
    limits = dict.fromkeys(PRESETS["basic"])
    settings = FilterSettings(limits=limits, custom=(f"{path}:odd",), custom_seconds=1)
    out = build(filter_text, store, raw=artifact, settings=settings)
    assert read_table(out)["text"].to_pylist() == [PROSE]
    assert out.manifest.ledger.rejects == {"timeout": 1}


@pytest.mark.timeout(60)  # what is not linear takes hours
def test_a_line_of_ten_million_characters_is_judged():
    lines = [PROSE.replace("\n", " ") * 20_000, "a" * 10_000_000 + "!", "a. " * 3_000_000]
    for preset in PRESETS.values():
        assert len(judge(pa.array(lines), preset).reasons) == 3


def test_a_changed_custom_filter_is_another_filter(custom):
    path = Path(custom.rpartition(":")[0])
    settings = FilterSettings(custom=(custom,))
    before = settings.identity(contents(settings))
    path.write_text(path.read_text() + "# changed\n")
    after = settings.identity(contents(settings))
    assert before["custom"] != after["custom"]
    assert str(path) not in str(before)


def test_changed_limits_are_a_new_artifact_and_the_same_ones_are_found(store, text_artifact):
    raw = text_artifact([PROSE, CODE, "short"])
    first = build(filter_text, store, raw=raw, settings=FilterSettings())
    again = build(filter_text, store, raw=raw, settings=FilterSettings(), force=True)
    other = build(filter_text, store, raw=raw, settings=FilterSettings(limits={"too_short": 60}))
    assert first.fingerprint == again.fingerprint != other.fingerprint
    assert first.manifest.files == again.manifest.files
