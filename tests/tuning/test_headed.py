"""Stages `regress`, `label` and `extract`: rows, alignment, figures, and a tiny tuning of each."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import build
from cluster.store import Store
from model.hub import load_headed
from tasks.inference.generation import load_model
from tasks.tokens.encoder import Encoder
from tasks.tokens.frames import read_frame
from tasks.training.settings import OptimizerSettings
from tasks.tuning.extract import engine as extracting
from tasks.tuning.extract.metrics import exact_match, nearest_sentence, word_f1
from tasks.tuning.extract.rows import Question, read_questions
from tasks.tuning.extract.settings import ExtractSettings
from tasks.tuning.extract.stage import extract
from tasks.tuning.label.engine import prepare as prepare_labels
from tasks.tuning.label.engine import tokens_of_words
from tasks.tuning.label.metrics import intervals, most_frequent, span_figures, spans
from tasks.tuning.label.rows import read_sentences
from tasks.tuning.label.settings import LabelSettings
from tasks.tuning.label.stage import label
from tasks.tuning.regress.settings import RegressSettings
from tasks.tuning.regress.stage import regress
from tests.published import published_folder
from tests.tuning.test_classify import WORDS, text, write

QUICK: dict[str, Any] = {"optimizer": OptimizerSettings(learning_rate=1e-2), "batch_rows": 12}


# Regression


def test_it_learns_a_number(base: Artifact, tuning_store: Store, tmp_path: Path) -> None:
    """How many of four words are of the sea, in a unit of its own."""
    rows = []
    for n in range(150):
        sea = n % 5
        words = text("sea", n).split()[:sea] + text("sky", n).split()[: 4 - sea]
        rows.append({"text": f"{' '.join(words)} {n}", "value": 1000 + 10 * sea, "id": f"row {n}"})
    settings = RegressSettings(
        data=write(tmp_path / "rows.jsonl", rows), epochs=10, pooling="mean", **QUICK
    )
    tuned = build(regress, tuning_store, model=base, settings=settings, seed=0)
    found = tuned.manifest.metrics
    assert found["pearson"] > 0.9 and found["spearman"] > 0.9
    assert found["rmse"] < 0.5 * found["rmse_mean"] < 10
    row = json.loads(tuned.file("predictions.jsonl").read_text().splitlines()[0])
    assert row["id"].startswith("row ") and abs(row["prediction"] - row["label"]) < 30
    scale = tuned.read_json("config.json")["headrace_values"]
    assert scale["mean"] == pytest.approx(1020, abs=3)
    _, encoder = load_model(tuned.path)
    with torch.no_grad():
        logit = load_headed(tuned.path).eval().scores(torch.tensor([encoder.encode(row["text"])]))
    told = scale["mean"] + scale["deviation"] * logit.item()
    assert told == pytest.approx(row["prediction"], abs=1e-2)


def test_what_is_no_number_is_named(base: Artifact, tmp_path: Path) -> None:
    rows = [{"text": f"text {n}", "value": "many" if n == 7 else n} for n in range(20)]
    settings = RegressSettings(data=write(tmp_path / "rows.jsonl", rows), **QUICK)
    with pytest.raises(BadInput, match="'many' of the text 'text 7' is no number"):
        build(regress, Store(tmp_path), model=base, settings=settings, seed=0)


# Labels


@pytest.mark.parametrize(
    ("tags", "found"),
    [
        # As seqeval 1.2.2 finds them: its documentation's examples, then sequences of no scheme.
        ("B-PER I-PER O B-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),
        ("O O O B-MISC I-MISC I-MISC O", [("MISC", 3, 5)]),
        ("O O B-MISC I-MISC I-MISC I-MISC O", [("MISC", 2, 5)]),
        ("I-PER I-PER O I-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 0), ("LOC", 1, 2)]),
        ("B-PER B-PER", [("PER", 0, 0), ("PER", 1, 1)]),
        ("S-PER E-LOC O B-X E-X I-X", [("PER", 0, 0), ("LOC", 1, 1), ("X", 3, 4), ("X", 5, 5)]),
        ("O I-a-b I-a-b", [("a-b", 1, 2)]),
        ("O O", []),
        ("", []),
    ],
)
def test_spans_are_those_of_seqeval(tags: str, found: list[tuple[str, int, int]]) -> None:
    assert spans(tags.split()) == found


def test_a_span_counts_with_type_and_both_ends() -> None:
    gold = [["O", "O", "O", "B-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    told = [["O", "O", "B-MISC", "I-MISC", "I-MISC", "I-MISC", "O"], ["B-PER", "I-PER", "O"]]
    assert span_figures(gold, told) == {"precision": 0.5, "recall": 0.5, "f1": 0.5}
    assert span_figures([["O"]], [["O"]]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0}


def test_intervals_of_tags_are_over_sentences() -> None:
    """Ten words of one sentence say no more of others than one does."""
    gold, told = [["B-a"], ["B-a"]] * 50, [["B-a"], ["O"]] * 50
    low, high = intervals(gold, told)["accuracy"]
    assert 0.38 < low < 0.42 and 0.58 < high < 0.62
    longer = intervals(*([tags * 10 for tags in side] for side in (gold, told)))
    assert longer["accuracy"] == pytest.approx((low, high), abs=0.02)
    assert intervals([["O"], ["O"]], [["O"], ["O"]])["f1"] == (0, 0)


def test_the_usual_tag_of_a_word_and_of_all() -> None:
    usual, most = most_frequent([["a", "b", "a"], ["a"]], [["X", "Y", "Y"], ["Y"]])
    assert (usual, most) == ({"a": "Y", "b": "Y"}, "Y")


CONLLU = """# sent_id = 1
1-2\tdon't\t_\t_\t_
1\tdo\tdo\tAUX\tVBP
2\tn't\tnot\tPART\tRB
2.1\tgo\tgo\tVERB\tVB

# sent_id = 2
1\tGo\tgo\tVERB\tVB
"""


def test_columns_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.conllu").write_text(CONLLU)
    (tmp_path / "b.txt").write_text("-DOCSTART- -X- O\n\nIn IN B-PP\nJapan NNP B-NP\n\n\nNo UH O")
    asked = LabelSettings(data=str(tmp_path / "a.conllu"))
    found = {one.words: one.tags for one in read_sentences(asked, asked.data)}
    assert found == {("do", "n't"): ("AUX", "PART"), ("Go",): ("VERB",)}
    asked = LabelSettings(data=str(tmp_path / "b.txt"))
    found = {one.words: one.tags for one in read_sentences(asked, asked.data)}
    assert found == {("In", "Japan"): ("B-PP", "B-NP"), ("No",): ("O",)}
    asked = LabelSettings(data=str(tmp_path / "b.txt"), column=2)
    assert {one.tags for one in read_sentences(asked, asked.data)} == {("IN", "NNP"), ("UH",)}
    (tmp_path / "b.txt").write_text("In IN\nJapan\n")
    with pytest.raises(BadInput, match="line 2 has 1 column"):
        read_sentences(asked, asked.data)


def test_the_first_token_of_a_word_is_found_in_the_text(encoder: Encoder) -> None:
    """Which the tokens of all words spell out again, whatever their characters."""
    words = ["Boats", "sail", "—", "naïve", "日本", "."]
    found = tokens_of_words(encoder, words)
    assert [id_ for ids, _ in found for id_ in ids] == encoder.encode(" ".join(words))
    for word, (ids, first) in zip(words, found, strict=True):
        assert encoder.decode(ids).strip() == word
        assert first is not None and encoder.decode_bytes(ids[first:]).decode().strip() == word


def sentences(count: int) -> list[dict[str, Any]]:
    """Two words of the sea are a span, in short and long sentences."""
    rows = []
    for n in range(count):
        times = 8 if n % 5 == 0 else 1
        words = [*text("sky", n).split()[:3], *text("sea", n).split()[:2]] * times
        tags = ["O", "O", "O", "B-sea", "I-sea"] * times
        rows.append({"tokens": [f"w{n}", *words], "tags": ["O", *tags], "id": n})
    return rows


def test_it_learns_to_tag_and_cuts_no_sentence(
    base: Artifact, tuning_store: Store, tmp_path: Path
) -> None:
    data = write(tmp_path / "rows.jsonl", sentences(80))
    settings = LabelSettings(data=data, epochs=12, length=24, **QUICK)
    tuned = build(label, tuning_store, model=base, settings=settings, seed=0)
    found = tuned.manifest.metrics
    assert found["accuracy"] > 0.9 and found["f1"] > 0.6  # rows begin amid spans
    assert {"precision", "recall", "f1_majority", "accuracy_majority"} <= found.keys()
    assert all(found[f"{n}_low"] < found[n] < found[f"{n}_high"] for n in ("accuracy", "f1"))
    rows = [json.loads(s) for s in tuned.file("predictions.jsonl").read_text().splitlines()]
    assert all(len(row["prediction"]) == len(row["tokens"]) for row in rows)
    assert max(len(row["tokens"]) for row in rows) > 24
    names = tuned.read_json("config.json")
    assert names["architectures"] == ["LlamaForTokenClassification"]
    assert set(names["id2label"].values()) == {"O", "B-sea", "I-sea"}
    assert found["words"] == sum(len(row["tokens"]) for row in rows)


def test_a_published_decoder_is_labelled(tmp_path: Path) -> None:
    """Behind what its tokenizer puts before a text, each word's target on its last token."""
    network, encoder = load_model(published_folder(tmp_path / "model"))
    data = write(tmp_path / "rows.jsonl", [{"tokens": ["say", "two"], "tags": ["V", "N"]}] * 2)
    other = write(tmp_path / "other.jsonl", [{"tokens": ["three"], "tags": ["N"]}])
    task = prepare_labels(LabelSettings(data=data, heldout=other), encoder, network.config)
    (inputs,), (tags,) = task.train["inputs"], task.train["tags"]
    first, second = encoder.encode("say"), encoder.encode(" two")
    assert inputs.tolist() == [1, *first, *second]
    named = {place: task.names[tag] for place, tag in enumerate(tags) if tag >= 0}
    assert named == {len(first): "V", len(first) + len(second): "N"}


def test_an_encoder_reads_the_first_token_of_a_word(encoder_base: Artifact, tmp_path: Path) -> None:
    network, encoder = load_model(encoder_base.path)
    rows = [{"tokens": ["boats", "sailing"], "tags": ["N", "V"]}] * 2
    other = write(tmp_path / "other.jsonl", [{"tokens": ["three"], "tags": ["N"]}])
    asked = LabelSettings(data=write(tmp_path / "rows.jsonl", rows), heldout=other)
    task = prepare_labels(asked, encoder, network.config)
    named = {place: task.names[tag] for place, tag in enumerate(task.train["tags"][0]) if tag >= 0}
    (first, _), (_, second) = tokens_of_words(encoder, ["boats", "sailing"])
    assert len(first) > 1
    assert named == {1: "N", 1 + len(first) + (second or 0): "V"}


# Answers in a text


def test_answers_are_normalised_as_for_squad() -> None:
    assert exact_match("The  Cat's hat!", ["cats hat"]) == 1
    assert word_f1("a big cat", ["the cat sat"]) == pytest.approx(2 * 0.5 * 0.5 / 1)
    assert word_f1("", []) == exact_match("the", []) == 1
    assert word_f1("cat", []) == exact_match("cat", []) == 0
    assert word_f1("dog", ["cat", "dog"]) == 1
    assert nearest_sentence("who sat down", "He ran. She sat down. End") == "She sat down."


CONTEXT = "The boat is red. The wave is tall."


def test_questions_are_read_in_the_forms_that_there_are(tmp_path: Path) -> None:
    """As rows with lists, as `datasets` has SQuAD, and as SQuAD is published."""
    at = CONTEXT.index("red")
    asked = {"context": CONTEXT, "question": "What colour?"}
    rows = [
        {**asked, "answers": [{"text": "red", "start": at}], "id": "x"},
        {**asked, "question": "2", "answers": {"text": ["red"], "answer_start": [at]}},
        {**asked, "question": "3", "answers": []},
        {**asked, "question": "4", "answers": [{"text": "red", "start": at + 1}]},
        {**asked, "question": "5", "answers": {"text": "red"}},
    ]
    given = {"id": "q", "question": "What?", "answers": [{"text": "red", "answer_start": at}]}
    none = {"id": "n", "question": "Who?", "answers": [], "is_impossible": True}
    squad = {"data": [{"paragraphs": [{"context": CONTEXT, "qas": [given, none]}]}]}
    settings = ExtractSettings(data=write(tmp_path / "rows.jsonl", rows))
    rejects = Counter[str]()
    found = read_questions(settings, rejects, settings.data)
    assert {one.question: one.answers for one in found} == {
        "What colour?": (("red", at),), "2": (("red", at),), "3": (), "5": (("red", at),),
    }  # fmt: skip
    assert rejects == {"answer_not_in_context": 1}
    (tmp_path / "squad.json").write_text(json.dumps(squad))
    found = read_questions(settings, rejects, str(tmp_path / "squad.json"))
    assert {one.id: one.answers for one in found} == {"q": (("red", at),), "n": ()}


def test_windows_cover_a_long_text_and_hold_the_answer_once_or_more(base: Artifact) -> None:
    _, encoder = load_model(base.path)
    context = " ".join(text("sky", n) for n in range(12)) + " " + CONTEXT
    question = Question("colour?", context, (("red", context.index("red")),), "x")
    settings = ExtractSettings(data="x", stride=6, length=32)
    frame = read_frame(encoder, 2, "decoder")
    windows = list(extracting._windows(encoder, frame, settings, 32, [question]))
    assert len(windows) > 3
    covered = {c for w in windows for begin, end in w.spans for c in range(begin, end)}
    assert covered == set(range(len(context)))
    targets = [extracting._target(window, question) for window in windows]
    holding = [(w, t) for w, t in zip(windows, targets, strict=True) if t != (0, 0)]
    assert holding and len(holding) < len(windows)
    for window, (first, last) in holding:
        assert encoder.decode(window.row.ids[first : last + 1]).strip() == "red"
        scores = np.zeros((len(window.row.ids), 2), np.float32)
        scores[first, 0] = scores[last, 1] = 3
        score, begin, end = extracting.best_span(window, scores, 30)
        assert score == 6 and context[begin:end].strip() == "red"
        scores[0] = 4
        assert extracting.best_span(window, scores, 30)[0] < 0


def test_it_learns_to_answer_and_when_there_is_no_answer(
    encoder_base: Artifact, tuning_store: Store, tmp_path: Path
) -> None:
    rows = []
    for n in range(90):
        word = WORDS["sea"][n % 4]
        sky = text("sky", n)
        has = n % 3 > 0
        context = f"{sky} {word} {sky[::-1]}" if has else sky
        answers = [{"text": word, "start": len(sky) + 1}] if has else []
        rows.append({"context": context, "question": "sea?", "answers": answers})
    settings = ExtractSettings(
        data=write(tmp_path / "rows.jsonl", rows), epochs=25, length=48, stride=8, **QUICK
    )
    tuned = build(extract, tuning_store, model=encoder_base, settings=settings, seed=0)
    found = tuned.manifest.metrics
    assert found["f1"] > 0.8 and found["exact_match"] > 0.7
    assert found["f1"] > found["f1_baseline"]
    told = [json.loads(s) for s in tuned.file("predictions.jsonl").read_text().splitlines()]
    assert any(not row["prediction"] and not row["answers"] for row in told)
    assert tuned.read_json("config.json")["architectures"] == ["BertForQuestionAnswering"]
