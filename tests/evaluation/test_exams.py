"""Tasks defined in YAML, put to model folders and endpoints, graded, kept and split."""

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadInput
from cluster.store import Store
from cluster.tracking import events
from tasks.evaluation.exams.definition import read_exam, read_rows, read_shots, render
from tasks.evaluation.exams.results import ALL, NamedCandidate, named_candidates, shown, take_exam


def exam(folder: Path, kind: str, *rows: dict[str, Any], more: str = "") -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "mine.yaml"
    path.write_text(f"name: mine\nkind: {kind}\nrows: rows.jsonl\nprompt: '{{question}}'\n{more}")
    return path


def local(tiny: Any) -> NamedCandidate:
    (found,) = named_candidates(Store(), str(tiny.model.path))
    return found


CHOICES = [{"question": "def", "choices": ["a", "bb"], "answer": n} for n in (0, 1)]


def test_the_likeliest_choice_is_taken_with_doubt_and_guessing_beside_it(
    tiny: Any, tmp_path: Path, fresh_home: Path
) -> None:
    artifact, found = take_exam(Store(), local(tiny), exam(tmp_path, "choice", *CHOICES))
    result = shown(artifact)
    assert not found and result["model"] == tiny.model.name
    assert result["accuracy"] == result["accuracy_unnormalised"] == 0.5
    figures = result["results"]["accuracy"]
    assert (figures["n"], figures["baseline"], figures["value"]) == (2, 0.5, 0.5)
    low, high = figures["interval"]
    assert 0 < low < 0.5 < high < 1
    for row in result["rows"]:
        first, second = row["nats"]
        assert row["answer"] == ("a" if first / 2 >= second / 3 else "bb")  # bytes, with the space
        assert row["right_unnormalised"] == ((first >= second) == (row["id"] == 1))


def test_a_result_is_found_again_until_the_exam_or_its_rows_change(
    tiny: Any, tmp_path: Path, fresh_home: Path
) -> None:
    path = exam(tmp_path, "choice", *CHOICES)
    first, _ = take_exam(Store(), local(tiny), path)
    (journal,) = (fresh_home / "tracking").glob("*.jsonl")
    told = [event for event, _ in events(journal)]
    assert told[0]["start"]["experiment"] == "exams"
    assert {"table": "exam.json", "rows_of": str(first.path / "rows.jsonl")}.items() <= told[
        -2
    ].items()
    (figures,) = [event["rows"][0] for event in told if "rows" in event]
    assert (figures["accuracy"], figures["n"]) == (0.5, 2)
    elsewhere = tmp_path / "moved"
    elsewhere.mkdir()
    for name in ("mine.yaml", "rows.jsonl"):
        shutil.copy(tmp_path / name, elsewhere)
    again, found = take_exam(Store(), local(tiny), elsewhere / "mine.yaml")
    assert found and again.path == first.path
    assert len(list((fresh_home / "tracking").glob("*.jsonl"))) == 1
    exam(tmp_path, "choice", *CHOICES, *CHOICES)
    assert not take_exam(Store(), local(tiny), path)[1]
    assert not take_exam(Store(), local(tiny), elsewhere / "mine.yaml", rebuild=True)[1]


def test_bits_per_byte_are_of_every_token_once(tiny: Any, tmp_path: Path, fresh_home: Path) -> None:
    from model.generation.choices import score_choices
    from tasks.inference.generation import load_model

    short, long = "def add_1(left, right):", "größer " * 200
    path = exam(tmp_path, "perplexity", {"question": short}, {"question": long})
    result = shown(take_exam(Store(), local(tiny), path)[0])
    network, encoder = load_model(tiny.model.path)
    ids = [*encoder.encode(short), encoder.eod]
    ((expected, _),) = score_choices(network, [encoder.eod], [ids])
    first, second = result["rows"]
    assert first["nats"] == pytest.approx(-expected, rel=1e-5)
    assert first["tokens"] == len(ids)
    assert second["tokens"] == len(encoder.encode(long)) + 1 > 128  # longer than the context
    nats, size = first["nats"] + second["nats"], len((short + long).encode())
    assert result["bits_per_byte"] == pytest.approx(nats / math.log(2) / size)
    tokens = first["tokens"] + second["tokens"]
    assert result["perplexity"] == pytest.approx(math.exp(nats / tokens))
    assert result["better"] == "lower"
    assert result["results"]["bits_per_byte"]["baseline"] == 8.0


def test_written_answers_of_a_network_are_marked(
    tiny: Any, tmp_path: Path, fresh_home: Path
) -> None:
    path = exam(tmp_path, "exact", {"question": "def add", "answers": ["zebra"]})
    assert shown(take_exam(Store(), local(tiny), path)[0])["accuracy"] == 0.0
    path = exam(tmp_path, "code", {"question": "", "head": "x = (", "tests": "assert x"})
    result = shown(take_exam(Store(), local(tiny), path)[0])
    assert (result["accuracy"], result["parses"]) == (0.0, 0.0)
    assert "does not parse" in result["rows"][0]["reason"]


def reply_by(question_to_reply: dict[str, Any], completion: Any) -> Any:
    def script(body: dict[str, Any], call: int) -> Any:
        prompt = body["messages"][-1]["content"]
        reply = next(v for k, v in question_to_reply.items() if k in prompt)
        return completion(reply) if isinstance(reply, str) else reply

    return script


def test_a_served_model_sits_exams_too(
    endpoint: Any, completion: Any, scripted: Any, tmp_path: Path, fresh_home: Path
) -> None:
    who = NamedCandidate("some-model", url=endpoint.url)
    replies = {"sky": "B", "sea": "A", "tree": scripted(400, b"no")}
    endpoint.script = reply_by(replies, completion)
    rows = [
        {"question": f"What is the {q}?", "choices": ["wet", "blue"], "answer": n}
        for q, n in (("sky", 1), ("sea", 1), ("tree", 0))
    ]
    result = shown(take_exam(Store(), who, exam(tmp_path, "choice", *rows))[0])
    assert [row["right"] for row in result["rows"]] == [True, False, None]
    assert (result["accuracy"], result["results"]["accuracy"]["n"]) == (0.5, 2)
    assert result["unscored"] == {"http_400": 1}
    assert "by:letters" in result["signature"]

    endpoint.script = reply_by(
        {"twice": "The answer is 42.\nMore", "code": "    return 1"}, completion
    )
    more = "pattern: 'is (\\d+)'\nmax_tokens: 77\n"
    path = exam(tmp_path, "exact", {"question": "twice 21?", "answers": ["42"]}, more=more)
    result = shown(take_exam(Store(), who, path)[0])
    assert (result["accuracy"], result["rows"][0]["answer"]) == (1.0, "The answer is 42.")
    assert endpoint.bodies[-1]["max_tokens"] == 77
    code = {"question": "code f", "head": "def f():\n    ", "tests": "assert f() == 1"}
    result = shown(take_exam(Store(), who, exam(tmp_path, "code", code))[0])
    assert (result["accuracy"], result["parses"]) == (1.0, 1.0)
    asked = len(endpoint.bodies)
    assert take_exam(Store(), who, tmp_path / "mine.yaml")[1] and len(endpoint.bodies) == asked
    with pytest.raises(BadInput, match="name the model's folder"):
        take_exam(Store(), who, exam(tmp_path, "perplexity", {"question": "x"}))


def test_answers_given_elsewhere_are_marked(tmp_path: Path, fresh_home: Path) -> None:
    path = exam(tmp_path, "choice", *({"id": i, **CHOICES[0]} for i in range(4)))
    answers = tmp_path / "answers.jsonl"
    given = [{"id": 2, "prediction": "BB."}, {"id": 0, "prediction": "a"}]
    given += [{"id": 1, "prediction": "A"}, {"id": 3, "prediction": "perhaps"}]
    answers.write_text("".join(json.dumps(row) + "\n" for row in given))
    (who,) = named_candidates(Store(), "some system", answers=answers)
    result = shown(take_exam(Store(), who, path)[0])
    assert [row["right"] for row in result["rows"]] == [True, True, False, None]
    assert (result["model"], result["unscored"]) == ("some system", {"no_choice": 1})
    answers.write_text('{"prediction": "a"}\n')
    with pytest.raises(BadInput, match="1 answers to 4 rows"):
        take_exam(Store(), who, path)


def test_overlap_has_a_constant_answer_beside_it(
    endpoint: Any, completion: Any, tmp_path: Path, fresh_home: Path
) -> None:
    endpoint.script = reply_by({"one": "a b c d", "two": "x y"}, completion)
    rows = [{"question": "one", "reference": "a b c d"}, {"question": "two", "reference": "x z"}]
    path = exam(tmp_path, "overlap", *rows, more="metric: rouge1\n")
    result = shown(take_exam(Store(), NamedCandidate("m", url=endpoint.url), path)[0])
    assert result["rouge1"] == 0.75
    assert result["results"]["rouge1"]["baseline"] == 0.5  # the first reference, to every row
    assert "rouge1|words:unicode" in result["signature"]


def test_figures_are_split_by_what_was_in_the_training_text(
    tiny: Any, tmp_path: Path, fresh_home: Path
) -> None:
    rows = [{"id": "seen", **CHOICES[0]}, {"id": "new", **CHOICES[1]}, CHOICES[1]]
    items = [{"id": "seen", "dirty": True}, {"id": "rows.jsonl:3", "dirty": True}]
    (tmp_path / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    path = exam(tmp_path, "choice", *rows)
    for contamination in (tmp_path, tmp_path / "items.jsonl"):
        result = shown(take_exam(Store(), local(tiny), path, contamination=contamination)[0])
    figures = result["results"]["accuracy"]
    assert (figures["clean"]["n"], figures["dirty"]["n"]) == (1, 2)
    right = [row["right"] for row in result["rows"]]
    assert figures["clean"]["value"] == right[1]
    assert figures["dirty"]["value"] == (right[0] + right[2]) / 2


QUESTION = "How many grains of wheat lie on the last square of the board of them all?"
OTHER = "Which of the old stones of the mill has ground the grain of the village for years?"


def test_what_the_models_own_stages_found_splits_its_figures(
    tiny: Any, decontaminated: Any, tmp_path: Path, fresh_home: Path
) -> None:
    """By the stage that looked for these rows, and its set of them, whatever else has their ids."""
    rows = [{"id": 1, "question": QUESTION}, {"id": 2, "question": OTHER}]
    path = exam(tmp_path, "choice", *({**CHOICES[0], **row} for row in rows))
    (tmp_path / "twin.jsonl").write_text(json.dumps({"id": 2, "question": QUESTION}) + "\n")
    sets = ({"path": str(tmp_path / name)} for name in ("twin.jsonl", "rows.jsonl"))
    found = decontaminated([one | {"fields": ["question"], "id": "id"} for one in sets])
    (who,) = named_candidates(Store(), "pretrain")
    artifact, _ = take_exam(Store(), who, path)
    accuracy = artifact.manifest.facts["results"]["accuracy"]
    assert (accuracy["clean"]["n"], accuracy["dirty"]["n"]) == (1, 1)
    assert found.fingerprint in artifact.manifest.inputs.values()
    assert take_exam(Store(), who, path, contamination=found.path) == (artifact, True)
    given = take_exam(Store(), who, path, contamination=found.file("items.jsonl"))[0]
    assert given.manifest.facts["results"]["accuracy"]["dirty"]["n"] == 2  # nobody said which set
    (tmp_path / "rows.jsonl").write_text(json.dumps({**CHOICES[0], "question": OTHER}) + "\n")
    assert "dirty" not in take_exam(Store(), who, path)[0].manifest.facts["results"]["accuracy"]


def test_all_models_that_write_are_found(tiny: Any, tmp_path: Path, fresh_home: Path) -> None:
    for name in ("step-1", "step-2", "classes"):
        shutil.copytree(tiny.model.path, tmp_path / name)
    (tmp_path / "step-1" / "artifact.json").unlink()
    (tmp_path / "classes" / "classifier").mkdir()
    (tmp_path / "notes").mkdir()
    found = named_candidates(Store(), str(tmp_path))
    assert [one.name for one in found] == [
        "step-1",
        tiny.model.name.replace(tiny.model.path.name, "step-2"),
    ]
    with pytest.raises(BadInput, match="no model that writes text"):
        named_candidates(Store(), ALL)
    shutil.copytree(tiny.model.path, fresh_home / "artifacts" / "pretrain" / tiny.model.path.name)
    assert [one.name for one in named_candidates(Store(), ALL)] == [tiny.model.name]


def test_examples_come_first_answered(tmp_path: Path) -> None:
    rows = [{"question": "Sea?", "answers": ["wet"]}, {"question": "Sky?", "answers": ["blue"]}]
    (tmp_path / "solved.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    more = "shots: 2\nexamples: solved.jsonl\n"
    definition = read_exam(exam(tmp_path, "exact", {"question": "Tree?", "answers": []}, more=more))
    (row,) = read_rows(definition)
    prompt = read_shots(definition) + render(definition, row)
    assert prompt == "Sea? wet\n\nSky? blue\n\nTree?"


@pytest.mark.parametrize(
    ("row", "more", "words"),
    [
        ({"question": "?"}, "", "no choices, answer, which kind choice needs; it has question"),
        ({"question": "?", "choices": ["a"], "answer": 1}, "", "answer 1 is no number of a choice"),
        ({"choices": ["a"], "answer": 0}, "", "the prompt needs 'question', which line 1 lacks"),
        ({}, "shots: 2\n", "needs `examples`"),
        ({}, "kinds: 2\n", "unknown key 'kinds': did you mean 'kind'"),
        ({}, "max_tokens: x\n", "max_tokens = 'x': Input should be a valid integer"),
        ({}, "rows: absent.jsonl\n", "absent.jsonl cannot be read"),
    ],
)
def test_what_is_unusable_is_named(
    tiny: Any, tmp_path: Path, fresh_home: Path, row: dict[str, Any], more: str, words: str
) -> None:
    path = exam(tmp_path, "choice", row, more=more)
    with pytest.raises(BadInput, match=words):
        take_exam(Store(), local(tiny), path)
