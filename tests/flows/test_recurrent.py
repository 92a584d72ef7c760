"""Recurrent networks by the door: recipes, the report's plot, translation from nothing."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from cluster.errors import BadInput
from flows.recipe import load
from model import hub
from tasks.training.agreement import check_objective
from tests.flows.test_adapt import carried_out

TINY = (
    "filters.preset=basic", "dedup.fuzzy=false", "tokenizer.vocab_size=300", "model.depth=1",
    "model.width=24", "pretrain.context=32", "pretrain.tokens=2_048", "pretrain.batch_tokens=256",
    "evaluate.heldout.max_tokens=2_000",
)  # fmt: skip
MASKED = "pretrain.objective=masked"
PAIRS = (
    "translate.source=label", "translate.target=text", "translate.epochs=0.2",
    "translate.most_measured=3", "translate.length=24",
)  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "rows.jsonl"
    texts = [f"The wheel of mill {i} turns, and water runs {i * i} times." * 9 for i in range(120)]
    halves = ("first", "second")
    lines = [
        json.dumps({"text": text, "label": text[:30], "half": halves[i % 2]})
        for i, text in enumerate(texts)
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def made(name: str, rows: Path, *more: str, last: str) -> dict[str, Any]:
    return carried_out(load(name, (*TINY, f"sources=[{{path: {rows}}}]", *more)), last)


def translated(rows: Path, attention: str, last: str) -> dict[str, Any]:
    own = (f"translate.data={rows}", f"model.recurrent.attention={attention}", *PAIRS)
    shape = [change for change in TINY if not change.startswith(("pretrain", "evaluate"))]
    recipe = load("translation", (*shape, f"sources=[{{path: {rows}}}]", *own))
    return carried_out(recipe, last)


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
    done = translated(rows, kind, "translate")
    assert done["translate"].manifest.metrics["rows"] == 3
    assert 0 <= done["translate"].manifest.metrics["bleu"] <= 100


def test_attention_while_a_translation_is_written_is_drawn(rows: Path) -> None:
    done = translated(rows, "additive", "report")
    maps = done["translate"].manifest.facts["attention"]
    for one in maps:
        assert len(one["weights"]) == len(one["written"]) and one["written"][-1] == "(end)"
        assert all(sum(line) == pytest.approx(1, abs=0.02) for line in one["weights"])
        assert all(len(line) == len(one["read"]) for line in one["weights"])
    assert len(maps) == 3
    assert "<h2>Attention</h2>" in (done["report"].path / "report.html").read_text()


def test_elmo_stays_as_it_is_and_its_layers_are_weighed(rows: Path) -> None:
    done = made("elmo", rows, f"classify.data={rows}", "classify.label=half", last="classify")
    before, after = (hub.tensors(done[name].path) for name in ("pretrain", "classify"))
    mix = after["headrace_head.mix"]
    assert mix.shape == (2,) and mix.abs().max() > 0 and after["headrace_head.gain"] != 1
    assert all(before[n].equal(w) for n, w in after.items() if n in before)
    module = hub.load_headed(done["classify"].path).eval()
    assert module.head.layers == "weighted" and module.head.pooling == "mean"
    ids = torch.arange(5, 15)[None]
    first, last = [], module.network(ids)
    module.network.blocks[0].register_forward_pre_hook(lambda _, given: first.append(given[0]))
    states = module.states(ids)
    shares = mix.softmax(0)
    mixed = module.gain * (shares[0] * first[0] + shares[1] * last)
    torch.testing.assert_close(states, mixed)
    assert "accuracy" in done["classify"].manifest.metrics


def test_both_directions_of_elmo_are_scored(rows: Path) -> None:
    done = made("elmo", rows, "classify=null", last="evaluate")
    figures = done["evaluate"].manifest.metrics
    assert figures["bits_per_byte"] > 0 and figures["backward_tokens_loss"] > 0
    assert figures["backward_tokens_unigram_loss"] > 0


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
