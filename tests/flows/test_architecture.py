"""`headrace show MODEL`: the parts of a network, from closed forms."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.errors import BadInput
from cluster.stage import build as build_stage
from cluster.stage import stage
from cluster.store import Draft, Store
from flows.cli import app
from flows.views.architecture import config_of, describe_model, print_model
from flows.views.output import Output
from model import hub
from model.encoder_decoder import build
from model.presets import PRESETS, preset
from model.shapes import from_depth

SMALL = from_depth(2, vocab_size=67, context=40)


def described(name: str) -> dict:
    return json.loads(json.dumps(describe_model(name, preset(name))))


@pytest.mark.parametrize("name", PRESETS)
def test_the_parts_add_up_to_the_totals(name: str) -> None:
    about = described(name)
    counted = [part for part in about["parts"] if part["counted"]]
    assert sum(part["params"] for part in counted) == about["params"]
    assert sum(part["flops_per_token"] for part in about["parts"]) == about["flops_per_token"]


def test_it_says_what_transformers_calls_it_or_why_it_has_no_name_there() -> None:
    assert described("llama-2-7b")["architecture"] == "LlamaForCausalLM"
    assert described("llama-2-7b")["only_here"] is None
    assert "model.positions is 'sinusoidal'" in described("transformer-base")["only_here"]


def test_the_table_has_a_row_a_part_and_the_total(capsys: pytest.CaptureFixture[str]) -> None:
    print_model(Output(as_json=False), described("bert-base-uncased"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("bert-base-uncased: encoder, 12 layers of width 768, 12 heads")
    (attention,) = (line for line in lines if line.split()[:2] == ["attention", "12"])
    assert "28,348,416" in attention and "25.9%" in attention
    (head,) = (line for line in lines if line.lstrip().startswith("head transform"))
    assert "(592,128)" in head
    (total,) = (line for line in lines if line.lstrip().startswith("total"))
    assert "109,482,240" in total and "710M" in total
    assert any("encoders are published without their head" in line for line in lines)


@stage(version=1)
def grind(draft: Draft) -> None:
    hub.save(draft.path, build(SMALL))
    draft.rows, draft.metrics = 1234, {"loss": 2.345, "rows": 1234.0}
    draft.facts = {"intervals": {"loss": [2.31, 2.42]}, "by": {"kind": None, "on": True},
                   "samples": [{"text": "a"}] * 3, "bytes": 3e6}  # fmt: skip


def test_an_artifact_that_is_a_model_is_shown_as_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    made = build_stage(grind, Store(tmp_path), recipe="mill")
    result = CliRunner().invoke(app, ["show", "grind", "--json"])
    shown = json.loads(result.stdout)
    assert shown["fingerprint"] == made.fingerprint
    assert shown["params"] == describe_model("grind", SMALL)["params"]
    assert shown["flops_per_token"] == describe_model("grind", SMALL)["flops_per_token"]


def test_a_folder_is_shown_like_a_preset_and_a_wrong_one_says_why(tmp_path: Path) -> None:
    hub.save(tmp_path, build(SMALL))
    assert config_of(str(tmp_path)) == SMALL
    assert config_of("nothing") is None
    about = describe_model("mine", replace(SMALL, multi_token=1))
    assert about["parts"][-1]["part"] == "multi-token join and head"
    (tmp_path / "config.json").write_text('{"model_type": "bloom"}')
    with pytest.raises(BadInput, match="model_type is 'bloom'; it must be one of llama, gpt2"):
        config_of(str(tmp_path))


def test_an_artifact_is_shown_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path))
    made = build_stage(grind, Store(tmp_path), recipe="mill")
    shown = CliRunner().invoke(app, ["show", "grind"]).stdout
    assert shown.startswith(f"{made.name}: 1,234 rows, ") and "LlamaForCausalLM" in shown
    rows = {tuple(line.split(maxsplit=1)) for line in shown.splitlines() if line.startswith(" ")}
    cells = {tuple(cell.strip() for cell in row) for row in rows}
    assert {("loss", "2.35 [2.31, 2.42]"), ("rows", "1,234"), ("bytes", "3,000,000"),
            ("by.kind", "none"), ("by.on", "true"), ("samples", "3 entries")} <= cells  # fmt: skip
    assert not set("{}'") & set(shown.replace("Transformers'", ""))
