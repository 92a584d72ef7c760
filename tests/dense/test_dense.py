"""Dense networks: the algorithm in plain code, and the stage from a recipe to its report."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cluster.artifact import Artifact
from cluster.errors import BadInput
from flows.recipe import load, validate
from model.dense import DenseNetwork
from tasks.dense import algorithm
from tests.flows.test_adapt import carried_out

TOPICS = {"mill": ("wheel", "stone", "flour"), "sea": ("wave", "boat", "sail")}


@pytest.mark.parametrize("loss", ["cross_entropy", "mse"])
def test_back_propagation_gives_what_autograd_and_differences_give(loss: Any) -> None:
    draw = np.random.default_rng(0)
    inputs_BI = draw.normal(size=(5, 3))
    labels = np.array([0, 1, 1, 0, 1]) if loss == "cross_entropy" else draw.normal(size=(5, 2))
    layers = [
        layer._replace(biases=draw.normal(size=len(layer.biases)))
        for layer in algorithm.drawn((3, 4, 4, 2), seed=1)
    ]
    network = DenseNetwork((3, 4, 4, 2), "tanh", loss).double()
    for linear, layer in zip(network.layers, layers, strict=True):
        linear.weight.data = torch.from_numpy(layer.weights.T.copy())
        linear.bias.data = torch.from_numpy(layer.biases.copy())
    total = 5 * network(torch.from_numpy(inputs_BI), torch.from_numpy(labels))
    total.backward()
    states = algorithm.forward(layers, inputs_BI)
    loss_B, delta_BO = algorithm.losses(states[-1], labels, loss)
    assert loss_B.sum() == pytest.approx(total.item())
    found = algorithm.gradients(layers, states, delta_BO)
    checked = algorithm.differences(layers, inputs_BI, labels, loss)
    for linear, one, other in zip(network.layers, found, checked, strict=True):
        assert one.weights == pytest.approx(linear.weight.grad.numpy().T, abs=1e-10)
        assert one.biases == pytest.approx(linear.bias.grad.numpy(), abs=1e-10)
        assert one.weights == pytest.approx(other.weights, abs=1e-6)


def test_steps_are_told_number_by_number() -> None:
    inputs_BI, labels = np.array([[1.0, 0.5], [-1.0, 0.2]]), np.array([0, 1])
    first, second = algorithm.told(
        algorithm.drawn((2, 2, 2), 0), inputs_BI, labels, "cross_entropy", 0.5, 2
    )
    assert second["layers"][0]["before"] == first["layers"][0]["after"]
    for layer in first["layers"]:
        before, slope, after = (np.array(layer[k]) for k in ("before", "gradient", "after"))
        assert after == pytest.approx(before - 0.5 * slope, abs=2e-6)
    assert sum(second["losses"]) < sum(first["losses"]) and first["gap"] < 1e-8
    likelihood = _softmax(first["states"][2][0])[0]
    assert first["losses"][0] == pytest.approx(-np.log(likelihood), abs=1e-5)


def _softmax(scores: list[float]) -> np.ndarray:
    return np.exp(scores) / np.exp(scores).sum()


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts on two topics, and how many of their words are on it."""
    draw, lines = random.Random(0), []
    for number in range(160):
        topic = draw.choice([*TOPICS])
        count = draw.randint(1, 6)
        words = [draw.choice(TOPICS[topic]) for _ in range(count)] + ["and the"] * (7 - count)
        text = f"{' '.join(words)}, says line {number} of the book."
        lines.append({"text": text, "label": topic, "share": count})
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.with_name("text.txt").write_text("\n".join(line["text"] for line in lines))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def done(rows: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Artifact]:
    """The recipe of the first chapter, on these rows."""
    overrides = (
        f"sources=[{{path: {rows.with_name('text.txt')}}}]", "filters.preset=basic",
        "dedup.lines=false", "vectors.width=8", "dense.0.epochs=20", "dense.1.epochs=20",
        f"dense.0.data={rows}", f"dense.1.data={rows}", "dense.1.label=share",
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_HOME", str(tmp_path_factory.mktemp("home")))
        return carried_out(load("guide-first", overrides), "report")


def test_classes_and_numbers_are_learnt(done: dict[str, Artifact]) -> None:
    named, counted = (done[f"dense/{name}"].manifest for name in ("packages", "lengths"))
    assert named.metrics["accuracy"] > 0.9 > named.metrics["accuracy_majority"]
    assert counted.metrics["mse"] < 0.5 * counted.metrics["mse_mean"]
    for manifest in (named, counted):
        assert manifest.metrics["nats"] < manifest.metrics["nats_constant"]
        assert manifest.metrics["gradient_gap"] < 1e-5
        assert manifest.inputs == {"vectors": done["vectors"].fingerprint}
        assert len(manifest.facts["steps"]) == 3
    lines = done["dense/lengths"].file("predictions.jsonl").read_text().splitlines()
    gaps = [(float(r["label"]) - r["prediction"]) ** 2 for r in map(json.loads, lines)]
    assert np.mean(gaps) == pytest.approx(counted.metrics["mse"], rel=1e-5)


def test_the_report_shows_the_algorithm(done: dict[str, Artifact]) -> None:
    page = done["report"].file("report.html").read_text()
    steps = done["dense/packages"].manifest.facts["steps"]
    assert "The algorithm, step by step" in page and "by cross-entropy" in page
    figures = {*done["dense/packages"].manifest.metrics, *done["dense/lengths"].manifest.metrics}
    for name in figures - {"rows"}:  # what a figure is, not its key
        assert f"<dt>{name.replace('_', ' ')}</dt>" not in page or name == "accuracy", name
    for step in steps:
        assert f"summed loss {sum(step['losses']):.4f}" in page
        assert f"{step['layers'][0]['gradient'][0][0]:.4f}" in page


def test_what_does_not_fit_is_refused(rows: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    base = {"name": "d", "pretrain": None, "sources": [str(rows)], "vectors": {}, "dense": [{}]}
    assert validate(base, "").dense[0].loss == "cross_entropy"
    for wrong, why in (
        ({"vectors": None}, "means of word vectors: give `vectors`"),
        ({"dense": [{}, {"loss": "mse"}]}, "two networks have the same name"),
    ):
        with pytest.raises(BadInput, match=why):
            validate(base | wrong, "")


def test_a_class_is_no_number(done: dict[str, Artifact], rows: Path) -> None:
    from tasks.dense.rows import read_rows
    from tasks.dense.settings import DenseSettings
    from tasks.vectors.table import FILE, read_vectors

    vectors = read_vectors(done["vectors"].file(FILE))
    with pytest.raises(BadInput, match="is no number; each row needs one"):
        read_rows(DenseSettings(loss="mse", data=str(rows)), vectors)
