"""Exams during a training: scores of the model as it was then, and a training as without them."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.stage import build
from cluster.store import Store
from cluster.tracking import NullTracker
from flows.end_to_end import plan
from flows.plan.dag import Dag, Node
from flows.plan.estimate import estimate
from flows.recipe import Recipe, validate
from tasks.evaluation.exams.candidates import NetworkCandidate
from tasks.evaluation.exams.results import NamedCandidate, take_exam
from tasks.report.page import view
from tasks.training.telemetry import TIMING

STEPS, CONTEXT, BATCH = 12, 64, 4
TASK = """
task: follows
dataset_path: json
dataset_kwargs: {data_files: {test: lines.jsonl}}
test_split: test
output_type: loglikelihood
doc_to_text: "{{first}}"
doc_to_target: "{{last}}"
"""


class Home:
    """A store, a text, two exams of it, and recipes that train on it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, Store(folder / "home")
        said = "the miller said that wheel {i} of the mill runs {n} times while the water is high"
        self._write("text", [{"text": said.format(i=i, n=i * i)} for i in range(200)])
        rows = [("the miller said that", "wheel", "water"), ("of the", "times", "mill")]
        asked = [
            {"question": q, "choices": [a, b], "answer": n} for n, (q, a, b) in enumerate(rows)
        ]
        self._write("rows", asked)
        self._write("lines", [{"first": "the wheel of the", "last": "mill"}] * 3)
        (folder / "words.yaml").write_text("name: words\nkind: choice\nrows: rows.jsonl\n")
        (folder / "follows.yaml").write_text(TASK)

    def _write(self, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        lines = "\n".join(map(json.dumps, rows))
        (self.folder / f"{name}.jsonl").write_text(lines)

    def exams(self, **when: Any) -> dict[str, Any]:
        return {"files": [str(self.folder / f"{n}.yaml") for n in ("words", "follows")], **when}

    def recipe(self, steps: int = STEPS, family: str = "decoder", **training: Any) -> Recipe:
        shape = {"context": CONTEXT, "batch_tokens": BATCH * CONTEXT}
        # Constant, so that a shorter training has the weights of a longer one on its way.
        rates = {"learning_rate": 1e-2, "schedule": "constant", "warmup_steps": 2}
        size = {"tokens": steps * BATCH * CONTEXT, "optimizer": rates}
        return validate(
            {
                "name": "exams",
                "sources": [str(self.folder / "text.jsonl")],
                "dedup": {"fuzzy": False},
                "tokenizer": {"vocab_size": 300},
                "model": {"depth": 1, "width": 32, "family": family},
                "pretrain": shape | size | training,
            },
            "test",
        )

    def trained(self, recipe: Recipe, **options: Any) -> Artifact:
        """The model, made in this process."""
        done: dict[str, Artifact] = {}
        for node in plan("pretrain", Dag(recipe.name, self.store), recipe):
            inputs = {k: done[v.name] for k, v in node.upstream.items() if isinstance(v, Node)}
            more = options if node.name == "pretrain" else {}
            given: dict[str, Any] = {"recipe": recipe.name, **inputs, **node.literals, **more}
            done[node.name] = build(node.function, self.store, **given)
            if node.name == "pretrain":
                break
        return done["pretrain"]

    def scored(self, model: Artifact) -> dict[str, Any]:
        """What `headrace exam` says of a model."""
        asked = [self.folder / "words.yaml", self.folder / "follows.yaml"]
        named = NamedCandidate(model.name, model)
        facts = [take_exam(self.store, named, path)[0].manifest.facts for path in asked]
        return {one["exam"]: one["results"] for one in facts}


class Recorder(NullTracker):
    """Keeps what it is told, and may end a training with it."""

    def __init__(self, until: int = STEPS) -> None:
        self.rows: list[Mapping[str, float]] = []
        self.until = until

    def metrics(self, rows: Sequence[Mapping[str, float]]) -> None:
        self.rows += rows
        if rows[-1]["step"] >= self.until:
            raise KeyboardInterrupt


def rows_of(model: Artifact) -> list[dict[str, Any]]:
    return [json.loads(line) for line in model.file("metrics.jsonl").read_text().splitlines()]


def results_of(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one["results"] for name, one in row["exams"].items()}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("exams")
        patch.setenv("HEADRACE_HOME", str(folder / "home"))
        return Home(folder)


@pytest.fixture(autouse=True)
def at_home(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(home.store.root))


Told = tuple[Artifact, list[Mapping[str, float]], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def told(home: Home) -> Told:
    """A model, what its tracked run was told, and its progress."""
    tracker, progress = Recorder(until=STEPS + 1), list[dict[str, Any]]()
    recipe = home.recipe(exams=home.exams(every=5, at=[2]))
    model = home.trained(recipe, tracker=tracker, on_progress=progress.append)
    return model, tracker.rows, progress


def test_scores_are_those_of_a_model_kept_at_that_step(home: Home, told: Told) -> None:
    rows = {row["step"]: row for row in rows_of(told[0]) if "exams" in row}
    assert list(rows) == [2, 5, 10, STEPS]
    assert results_of(rows[STEPS]) == home.scored(told[0])
    then = home.scored(home.trained(home.recipe(steps=5)))
    assert results_of(rows[5]) == then != home.scored(told[0])


def test_the_training_is_the_same_as_without(home: Home, told: Told) -> None:
    plain = home.trained(home.recipe())
    assert [r["loss"] for r in rows_of(told[0])] == [r["loss"] for r in rows_of(plain)]
    weights = [model.file("model.safetensors").read_bytes() for model in (told[0], plain)]
    assert weights[0] == weights[1]
    assert "exams" not in plain.manifest.facts
    assert "exams" not in plain.manifest.settings["settings"]  # older models are found again


def test_scores_are_a_curve_of_the_tracked_run_and_stand_in_progress_and_manifest(
    told: Told,
) -> None:
    model, tracked, progress = told
    accuracy = "exams/words.accuracy"
    curve = {row["step"]: row[accuracy] for row in tracked if accuracy in row}
    assert list(curve) == [2, 5, 10, STEPS]
    last = results_of(rows_of(model)[-1])["words"]["accuracy"]
    assert [tracked[-1][f"{accuracy}.{end}"] for end in ("low", "high")] == last["interval"]
    assert model.manifest.metrics[accuracy] == last["value"] == progress[-1][accuracy]
    assert model.manifest.metrics["exam_seconds"] > 0
    points = [p for p in model.manifest.facts["exams"] if p.get("figure") == "accuracy"]
    assert {p["step"]: p["value"] for p in points} == curve
    assert points[0]["baseline"] == 0.5
    (drawn, other) = view([model], "exams")["trainings"][0]["exams"]
    assert drawn["title"] == "words, accuracy" and other["title"].startswith("follows, ")
    assert all("<svg" in one["plot"] and not one["failed"] for one in (drawn, other))


def test_a_killed_training_goes_on_and_has_each_score_once(home: Home, told: Told) -> None:
    recipe = home.recipe(exams=home.exams(every=5, at=[2])).model_copy(update={"name": "killed"})
    often = {"placement": Placement(checkpoint_seconds=1e-6), "force": True}
    cut, rest = Recorder(until=6), Recorder(until=STEPS + 1)
    with pytest.raises(KeyboardInterrupt):
        home.trained(recipe, tracker=cut, **often)
    resumed = home.trained(recipe, tracker=rest, **often)
    assert 6 <= cut.rows[-1]["step"] < STEPS

    def lasting(model: Artifact) -> list[dict[str, Any]]:
        return [{k: v for k, v in row.items() if k not in TIMING} for row in rows_of(model)]

    assert lasting(resumed) == lasting(told[0])
    assert resumed.manifest.facts["exams"] == told[0].manifest.facts["exams"]


def test_answers_that_say_nothing_are_no_score_and_end_no_training(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from model.generation import Scored

    monkeypatch.setattr(
        NetworkCandidate,
        "_score",
        lambda self, asked, progress: [[Scored(-1.0, False)] * len(b) for _, b in asked],
    )
    model = home.trained(home.recipe(steps=2, exams=home.exams(at=[1, 2])))
    first = next(p for p in model.manifest.facts["exams"] if p["exam"] == "words")
    assert first["step"] == 1 and "all choices are equally likely" in first["why"]
    assert "exams/words.accuracy" not in model.manifest.metrics
    failed = view([model], "exams")["trainings"][0]["exams"][0]
    assert not failed["plot"] and len(failed["failed"]) == 2


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"choices": ["same", "same"]}, "all choices are equally likely"),
        ({"choices": ["", "b"]}, "a choice has no tokens"),
        ({"question": "word " * 9, "choices": ["long " * 80, "b"]}, "it must be 1 to 63"),
        ({}, "has no choices"),
    ],
)
def test_what_cannot_be_asked_is_found_before_the_first_step(
    home: Home, tmp_path: Path, row: dict[str, Any], words: str
) -> None:
    prompt = "question" in row
    (tmp_path / "rows.jsonl").write_text(json.dumps({"question": "q", "answer": 0} | row))
    (tmp_path / "bad.yaml").write_text(
        "name: bad\nkind: choice\nrows: rows.jsonl\n" + ("" if prompt else "prompt: '{question} '")
    )
    asked = {"files": [str(tmp_path / "bad.yaml")], "at": [1]}
    seen: list[Any] = []
    with pytest.raises(BadInput, match=words):
        home.trained(home.recipe(exams=asked), on_progress=seen.append)
    assert not seen


def test_a_plan_finds_what_is_missing_and_counts_the_exams(home: Home) -> None:
    plain = estimate(home.recipe(steps=7))
    asked = estimate(home.recipe(steps=7, exams=home.exams(every=1)))

    def seconds(found: dict[str, Any]) -> float:
        (one,) = [s["seconds"] for s in found["stages"] if s["name"] == "pretrain"]
        return float(one)

    assert seconds(asked) > seconds(plain) > 0
    with pytest.raises(BadInput, match=r"nowhere\.yaml"):
        estimate(home.recipe(exams={"files": [str(home.folder / "nowhere.yaml")], "every": 2}))
    twice = home.exams(every=2)["files"] * 2
    with pytest.raises(BadInput, match="two have the same name"):
        estimate(home.recipe(exams={"files": twice, "every": 2}))


@pytest.mark.parametrize(
    ("training", "words"),
    [
        ({"exams": {"files": ["a.yaml"]}}, "say when they are sat"),
        ({"exams": {"files": ["a.yaml"], "at": [13]}}, "exams.at is 13; training makes the steps"),
        ({"exams": {"files": [], "every": 3}}, "files"),
        ({"exams": {"files": ["a.yaml"], "every": 3}, "family": "encoder"}, "is encoder, which"),
    ],
)
def test_exams_that_cannot_be_sat_are_refused_with_the_recipe(
    home: Home, training: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        home.recipe(**training)


def test_an_encoder_decoder_sits_them_too(home: Home) -> None:
    files = [str(home.folder / "words.yaml")]
    recipe = home.recipe(steps=2, family="encoder_decoder", exams={"files": files, "every": 2})
    model = home.trained(recipe)
    row = rows_of(model)[-1]
    found, _ = take_exam(home.store, NamedCandidate("it", model), home.folder / "words.yaml")
    assert results_of(row)["words"] == found.manifest.facts["results"]
