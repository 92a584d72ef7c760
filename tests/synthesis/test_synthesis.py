"""Text made by a model: what is asked, what is taken, what is kept, and who learns from it."""

import json
import os
import re
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.stage import build, stage
from cluster.store import Draft, Store
from model import hub
from model.shapes import from_depth
from model.transformer import Transformer
from tasks.data.deduplication.settings import DedupSettings
from tasks.data.deduplication.stage import dedup
from tasks.data.filtering.settings import FilterSettings, QualitySettings
from tasks.data.filtering.stage import filter_text
from tasks.data.reading.stage import ReadSettings, read
from tasks.data.text import read_table
from tasks.report.page import render, view
from tasks.synthesis.grading import grade
from tasks.synthesis.near import Earlier
from tasks.synthesis.pairs import Pair, pairs_in, shown
from tasks.synthesis.passages import passages
from tasks.synthesis.settings import GradeSettings, SynthesizeSettings
from tasks.synthesis.stage import concatenate, synthesize
from tasks.tokens.encoder import load
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import train_tokenizer
from tasks.tuning.instruct.settings import InstructSettings
from tasks.tuning.sources import instruction_pairs, made_pairs
from tests.endpoint import Scripted, Server, completion, serving

WORDS = "wheel water stone grain river flour bread miller house bridge"
ABOUT = re.compile(r"<text \w+>\n(.*?)\n</text", re.DOTALL)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    return Store()


@pytest.fixture
def read_path(store: Store) -> Callable[[dict[str, str]], Artifact]:
    def run(source: dict[str, str]) -> Artifact:
        settings = ReadSettings.model_validate({"sources": [source]})
        return build(read, store, settings=settings)

    return run


@pytest.fixture
def endpoint() -> Iterator[Server]:
    with serving() as server:
        yield server


def topic(number: int) -> str:
    """Words that tell a document from the others."""
    names = WORDS.split()
    return f"{names[number % 10]} {names[number // 10]} {number}"


def uses(number: int) -> str:
    """An instruction that shares few words with others."""
    return f"List uses of {' '.join(f'{word}{number}' for word in WORDS.split())}."


def document(number: int) -> str:
    said = f"The {topic(number)} of the mill is old and turns slowly while the water is high."
    return f"{said} It was built by hand, and nobody knows in which year that was, or by whom."


@pytest.fixture
def text(store: Store, tmp_path: Path, read_path: Callable[..., Artifact]) -> Artifact:
    lines = [json.dumps({"text": document(n), "by": "MIT"}) for n in range(12)]
    (tmp_path / "mill.jsonl").write_text("\n".join(lines))
    return read_path({"path": str(tmp_path / "mill.jsonl"), "license_field": "by"})


def answering(body: dict[str, Any], call: int) -> Scripted:
    """A model that does what it is told, but for some documents."""
    prompt = body["messages"][0]["content"]
    (passage,) = ABOUT.findall(prompt)
    number = int(re.findall(r"\d+", passage)[0])
    if prompt.startswith("Rephrase"):
        if number == 3:
            return completion("I'm sorry, I cannot help with that text.")
        if number == 4:
            return completion(passage)  # a copy
        if number == 5:
            return completion("It goes on and on", finish_reason="length")
        return completion(
            f"Here is a paraphrase:\n\nSlowly goes round, at high water, what people call the "
            f"{topic(number)}; made by hand it was, long ago, in a year that all have forgotten."
        )
    if prompt.startswith("Write one instruction"):
        same = "Explain at length how the old mill by the river bridge came to be there."
        own = uses(number)
        return completion(f"Instruction: {same if number in (0, 1) else own}")
    if prompt.startswith("Follow the instruction"):
        return completion(f"It is used for {topic(number)}.\nAnd to grind.")
    if prompt.startswith("Is the answer right"):
        return completion("no" if number == 2 else "yes")
    if prompt.startswith("Grade"):
        return completion("4" if number % 2 else "1")
    return completion(
        f"Sure:\n**Question 1:** What is old, number {number * 7919} and {topic(number)}?\n"
        f"**Answer:** The {topic(number)}.\n\nQuestion: Why?\nAnswer: So.\n"
        "Question: What does the picture show?\nAnswer: A mill."
    )


def made(store: Store, text: Artifact, endpoint: Server, **settings: Any) -> Artifact:
    asked = SynthesizeSettings.model_validate({"model": "writer", **settings})
    place = Placement(writer_url=endpoint.url)
    return build(synthesize, store, text=text, settings=asked, seed=1, placement=place)


def test_each_kind_is_made_and_what_is_not_says_why(
    store: Store, text: Artifact, endpoint: Server
) -> None:
    endpoint.script = answering
    kinds = {"rephrase": {"styles": ["wikipedia"]}, "questions": {}, "instructions": {}}
    found = made(store, text, endpoint, **kinds)
    rows = read_table(found).to_pylist()
    about = found.manifest
    assert about.ledger is not None
    assert about.ledger.rows_in == 36 and about.ledger.rows_out == len(rows) == 32
    assert about.ledger.rejects == {
        "instructions:near_duplicate": 1,
        "instructions:wrong_answer": 1,
        "rephrase:cut_off": 1,
        "rephrase:refusal": 1,
    }
    assert Counter(row["source"] for row in rows) == {
        "synthetic-rephrase": 10,
        "synthetic-questions": 12,
        "synthetic-instructions": 10,
    }
    assert {row["license"] for row in rows} == {"MIT"}
    first = next(row for row in rows if row["id"] == "mill.jsonl:1#rephrase-wikipedia.1")
    assert first["origin"] == "mill.jsonl:1" and first["text"].startswith("Slowly goes round")
    question = next(r["text"] for r in rows if r["id"] == "mill.jsonl:1#questions.1")
    assert (
        question == "Question: What is old, number 0 and wheel wheel 0?\nAnswer: The wheel wheel 0."
    )
    assert about.facts["dropped"]["too_short"] == about.facts["dropped"]["about_unseen"] == 12
    assert about.facts["kinds"]["questions"] == {"asked": 12, "made": 12, "pairs": 12}
    assert about.facts["used"]["requests"] == len(endpoint.bodies) == 12 * (1 + 1 + 3)
    assert about.facts["used"]["tokens"] == 102 * len(endpoint.bodies)
    assert not any("Instruction:" in row["text"] for row in rows if "rephrase" in row["source"])


def test_every_row_says_what_it_was_made_from_and_by(
    store: Store, text: Artifact, endpoint: Server
) -> None:
    endpoint.script = answering
    found = made(store, text, endpoint, rephrase={"styles": ["easy"]}, temperature=0.5)
    rows = read_table(found).to_pylist()
    origins = {
        row["id"]: row for row in pq.read_table(found.file("provenance.parquet")).to_pylist()
    }
    assert origins.keys() == {row["id"] for row in rows}
    one = origins["mill.jsonl:7#rephrase-easy.1"]
    assert (one["row"], one["kind"], one["how"]) == ("mill.jsonl:7", "rephrase", "easy")
    assert (one["model"], one["temperature"], one["top_p"]) == ("writer", 0.5, 0.9)
    assert one["sha256"] == found.manifest.facts["templates"]["rephrase-easy"]
    sent = {body["seed"] for body in endpoint.bodies}
    assert {row["seed"] for row in origins.values()} < sent and len(sent) == 12
    assert not any("logprobs" in body for body in endpoint.bodies)


def test_nothing_is_asked_twice_after_a_kill(
    store: Store, text: Artifact, endpoint: Server
) -> None:
    two, pid = {"styles": ["wikipedia", "easy"]}, 0

    def deadly(body: dict[str, Any], call: int) -> Scripted:
        if call == 17:  # of 24, 16 at a time: two replies have arrived
            os.kill(pid, signal.SIGKILL)
        return answering(body, call)

    endpoint.script = deadly
    pid = os.fork()
    if not pid:
        made(store, text, endpoint, rephrase=two)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL
    endpoint.script, before = answering, len(endpoint.bodies)
    found = made(store, text, endpoint, rephrase=two)
    assert found.manifest.rows == 20
    asked = len(endpoint.bodies) - before
    assert 0 < asked <= 24 - 2, "what had arrived is kept; of the rest nobody knows"
    assert 24 <= found.manifest.facts["used"]["requests"] <= 24 + 16
    made(store, text, endpoint, rephrase=two, max_failed=0)
    assert len(endpoint.bodies) == before + asked


def test_a_budget_ends_it_and_a_larger_one_goes_on(
    store: Store, text: Artifact, endpoint: Server
) -> None:
    endpoint.script = answering
    short = made(store, text, endpoint, rephrase={}, budget_requests=4)
    assert len(endpoint.bodies) == 4
    assert short.manifest.ledger.rejects["rephrase:budget"] == 8
    assert short.manifest.facts["reached"] == {"budget_requests": 8}
    rest = made(store, text, endpoint, rephrase={}, budget_requests=40, budget_tokens=100_000)
    assert len(endpoint.bodies) == 12 and rest.manifest.rows == 10
    few = made(store, text, endpoint, rephrase={}, budget_tokens=1500, temperature=0.1)
    assert few.manifest.facts["used"]["tokens"] <= 1500 and len(endpoint.bodies) < 24
    with pytest.raises(BadInput, match=r"budget_usd 1 cannot be kept without a price.*judge_usd"):
        made(store, text, endpoint, rephrase={}, budget_usd=1)


def test_an_endpoint_that_is_down_fails_the_stage_and_what_it_said_is_kept(
    store: Store, text: Artifact, endpoint: Server
) -> None:
    def down(body: dict[str, Any], call: int) -> Scripted:
        return answering(body, call) if call < 6 else Scripted(401)

    endpoint.script = down
    with pytest.raises(BadInput, match=r"of 12 requests got no reply.*key_refused"):
        made(store, text, endpoint, rephrase={})
    before = len(endpoint.bodies)
    endpoint.script = answering
    assert made(store, text, endpoint, rephrase={}).manifest.rows == 10
    assert len(endpoint.bodies) == before + 6
    with pytest.raises(BadInput, match=r"no address is set: .*placement.writer_url"):
        asked = SynthesizeSettings.model_validate({"model": "m", "rephrase": {}})
        build(synthesize, store, text=text, settings=asked, seed=1)


def test_made_text_is_a_source_that_repeats_nothing(
    store: Store, text: Artifact, endpoint: Server
) -> None:
    endpoint.script = answering
    found = made(store, text, endpoint, rephrase={}, instructions={"check": "rules"})
    unique = build(dedup, store, text=text, settings=DedupSettings())
    new = build(dedup, store, text=found, settings=DedupSettings(), beside=unique)
    assert new.manifest.ledger.rejects == {"exact_duplicate": 1}  # the copy
    sources = ("synthetic-rephrase",)
    both = build(concatenate, store, text=unique, made=new, sources=sources)
    assert both.manifest.ledger.rejects == {"for_instruct": 11}
    rows = read_table(both)
    assert Counter(rows["source"].to_pylist()) == {"mill.jsonl": 12, "synthetic-rephrase": 9}
    assert both.manifest.rows == rows.num_rows == 21
    pairs = made_pairs(new, ("synthetic-instructions",))
    train, heldout, _ = instruction_pairs(InstructSettings(data=None), pairs)
    assert len(train) + len(heldout) == 11
    page = render([text, unique, found, new, both], "mill")
    assert "Text made by a model" in page and "near duplicate 1" in page
    asked = next(pair for pair in pairs if pair.id == "mill.jsonl:9#instructions-0.1/1")
    assert asked.instruction == uses(8)
    assert asked.response == f"It is used for {topic(8)}.\nAnd to grind."


def test_grades_teach_the_classifier_of_the_filters(
    store: Store, tmp_path: Path, read_path: Callable[..., Artifact], endpoint: Server
) -> None:
    spam = "Buy {} now! The best price of all is here, so click and win a prize. " * 3
    texts = [document(n) if n % 2 else spam.format(*[topic(n)] * 3) for n in range(60)]
    lines = [json.dumps({"text": t}) for t in [*texts, f"{document(61)} Mail a@b.org."]]
    (tmp_path / "web.jsonl").write_text("\n".join(lines))
    raw = read_path({"path": str(tmp_path / "web.jsonl")})
    endpoint.script = answering
    asked = GradeSettings(model="writer", documents=50)
    place = Placement(judge_url=endpoint.url)
    filters = FilterSettings(limits={}, quality=QualitySettings(folds=3, repeats=1))
    graded = build(
        grade, store, raw=raw, settings=asked, rules=filters.rules, seed=0, placement=place
    )
    about = graded.manifest
    assert about.rows == 50 and set(about.facts["scores"]) == {"1", "4"}
    assert about.ledger is not None and about.ledger.rows_in == 50
    assert not any("a@b.org" in body["messages"][0]["content"] for body in endpoint.bodies)
    kept = build(filter_text, store, raw=raw, settings=filters, graded=graded)
    assert kept.manifest.facts["quality"]["accuracy"] == 1
    assert {"Buy" in text for text in read_table(kept)["text"].to_pylist()} == {False}
    shown = view([raw, graded, kept], "web")["made"][0]
    assert shown["kinds"] == [{"kind": "grade", "asked": 50, "made": 50, "pairs": 0, "refused": {}}]
    assert "Grades made by a model" in render([raw, graded, kept], "web")
    one = asked.model_copy(update={"good": 5})
    none = build(grade, store, raw=raw, settings=one, rules=filters.rules, seed=0, placement=place)
    with pytest.raises(BadInput, match=r"0 good rows and 50 others.*set `grade.good`"):
        build(filter_text, store, raw=raw, settings=filters, graded=none)
    assert len(endpoint.bodies) == 50


@stage(version=1, name="pretrain")
def untrained(tokenizer: Artifact, draft: Draft) -> None:
    """A network that has learnt nothing, and likes to end."""
    torch.manual_seed(0)
    encoder = load(tokenizer)
    network = Transformer(from_depth(1, vocab_size=encoder.ids, context=1024))
    network.embedding.weight.data[sorted(encoder.ends)] *= 3
    hub.save(draft.path, network)
    shutil.copy(tokenizer.file("tokenizer.json"), draft.path)


def test_a_model_of_our_own_writes_and_grades_the_same_again(
    store: Store, text: Artifact, tmp_path: Path
) -> None:
    size = TokenizerSettings(vocab_size=400)
    tokenizer = build(train_tokenizer, store, text=text, settings=size)
    model = build(untrained, store, tokenizer=tokenizer)
    rephrase = {"shortest": 0, "longest": 1000}
    values = {"from": str(model.path), "max_tokens": 40, "rephrase": rephrase, "documents": 4}
    asked = SynthesizeSettings.model_validate(values)
    given = {"text": text, "settings": asked, "model": model}
    found = build(synthesize, store, **given, seed=0)
    about = found.manifest
    assert about.ledger is not None and about.ledger.rows_in == 4 and 0 < (about.rows or 0) <= 4
    assert about.facts["used"]["requests"] == 4 and about.facts["used"]["tokens"] > 4 * 100
    again = build(synthesize, store, **given, seed=0, force=True)
    assert read_table(again) == read_table(found)
    assert again.manifest.facts["used"] == {"requests": 0, "tokens": 0}, "replies are kept"
    origins = pq.read_table(found.file("provenance.parquet"))
    assert set(origins["model"].to_pylist()) == {f"{model.name}@{model.fingerprint}"}
    values = {"from": str(model.path), "documents": 2}
    judged = GradeSettings.model_validate(values)
    rules: dict[str, float] = {}
    graded = build(grade, store, raw=text, settings=judged, rules=rules, seed=0, model=model)
    assert graded.manifest.rows == 2


def test_pairs_are_read_as_they_are_shown() -> None:
    pairs = [Pair("Why is it so?", "Because.\n\nAnd so on."), Pair("Who?", "1. Me\n2. You")]
    assert pairs_in(shown(pairs, "questions")) == pairs
    assert pairs_in(shown(pairs[:1], "instructions")) == pairs[:1]
    assert pairs_in("Q: no\nAnswer: of nothing\nQuestion: unanswered") == []


def test_passages_end_where_paragraphs_do_and_lose_nothing() -> None:
    text = "\n\n".join(f"Paragraph {n} has some words in it. " * 5 for n in range(9))
    parts = passages(text, 700)
    assert all(len(part) <= 700 and part.startswith("Paragraph") for part in parts)
    assert "".join("".join(parts).split()) == "".join(text.split())
    assert max(len(part) for part in passages("x" * 2500, 1000)) <= 1000
    assert passages("  ", 100) == []


def test_an_instruction_is_new_where_no_earlier_one_shares_most_of_it() -> None:
    earlier = Earlier()
    said = "Explain how the water of the river turns the wheel of the mill."
    like = "Explain how the water of the river turns the great wheel of the mill."
    other = "List the tools of a baker, and what each of them is for."
    assert earlier.take([said, like, other, "Why?"], [0.7] * 4) == [True, False, True, True]
    assert earlier.take([like, "Why?"], [0.99, 0.7]) == [True, False]
    words = [f"word{n}" for n in range(600)]
    long = [" ".join(words[12 * n : 12 * n + 12]) for n in range(50)]
    changed = [" ".join(["other", *text.split()[1:10], "than", "before"]) for text in long]
    assert all(earlier.take(long, [0.7] * 50))
    assert not any(earlier.take(changed, [0.7] * 50)), "9 of 12 words, in order: 0.75"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"rephrase": {}}, "either `model`, an endpoint's, or `from`"),
        ({"model": "m"}, "say what to make"),
        ({"model": "m", "rephrase": {"styles": ["wikipeda"]}}, "did you mean 'wikipedia'"),
        ({"from": ".", "rephrase": {}, "budget_usd": 1}, "`from` costs nothing"),
    ],
)
def test_what_cannot_be_asked_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SynthesizeSettings.model_validate(values)
