"""Recurrent networks by the door: recipes, the report's plot, translation from nothing."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadInput
from flows.recipe import load, validate
from flows.yaml_values import read_yaml
from tasks.training.agreement import check_objective
from tests.flows.test_adapt import carried_out

TINY = (
    "filters.preset=basic", "dedup.fuzzy=false", "tokenizer.vocab_size=300", "model.depth=1",
    "model.width=24", "pretrain.context=32", "pretrain.tokens=2_048", "pretrain.batch_tokens=256",
    "evaluate.heldout.max_tokens=2_000",
)  # fmt: skip
MASKED = "pretrain.objective=masked"
PAIRS = """
name: pairs
sources: [{{path: {rows}}}]
filters: {{preset: basic}}
dedup: {{fuzzy: false}}
tokenizer: {{vocab_size: 300}}
model: {{family: encoder_decoder, depth: 1, width: 24, recurrent: {{cell: gru, attention: {kind}}}}}
pretrain: null
translate: {{data: {rows}, target: text, source: label, epochs: 0.2, most_measured: 3, length: 24}}
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    texts = [f"The wheel of mill {i} turns, and water runs {i * i} times." * 9 for i in range(120)]
    lines = [json.dumps({"text": text, "label": text[:30]}) for text in texts]
    path.write_text("\n".join(lines) + "\n")
    return path


def made(name: str, rows: Path, *more: str, last: str) -> dict[str, Any]:
    return carried_out(load(name, (*TINY, f"sources=[{{path: {rows}}}]", *more)), last)


def test_a_recurrent_model_is_trained_and_its_report_shows_how_far_back_it_learns(
    rows: Path,
) -> None:
    done = made("recurrent", rows, last="report")
    back = done["evaluate"].manifest.facts["through_time"]
    assert back["cell"] == "lstm" and back["norms"][0] == 1 and back["windows"] > 0
    assert all(norm >= 0 for norm in back["norms"]) and len(back["norms"]) == 32
    page = (done["report"].path / "report.html").read_text()
    assert "Gradient norm by distance back through time" in page


@pytest.mark.parametrize("kind", ["additive", "general", "null"])
def test_a_translation_is_learned_from_nothing(rows: Path, kind: str) -> None:
    text = PAIRS.format(rows=rows, kind=kind)
    done = carried_out(validate(read_yaml(text, "pairs"), "pairs"), "translate")
    assert done["translate"].manifest.metrics["rows"] == 3
    assert 0 <= done["translate"].manifest.metrics["bleu"] <= 100


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (("pretrain.objective=prefix",), "takes attention"),
        (("model.family=encoder", "model.recurrent.apart=true", MASKED), "apart learns"),
        (("model.family=encoder", "pretrain.objective=bidirectional"), "apart learns"),
        (("model.heads=2",), "left out with model.recurrent"),
        (("model.preset=gpt2",), "null with a preset"),
        (("model.mup=true",), "mup_base_width"),
    ],
)
def test_what_does_not_fit_together_is_said(changes: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        recipe = load("recurrent", changes)
        check_objective(recipe.model, recipe.training)
