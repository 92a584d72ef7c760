"""`headrace attention`: patterns of every head as figures, and drawn."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cluster.artifact import Artifact
from cluster.errors import BadInput
from flows.cli import app
from tasks.inference.attention import attention_of

TEXT = "the wheel turns"


def test_a_command_draws_every_head(base: Artifact, tmp_path: Path) -> None:
    page = tmp_path / "attention.html"
    arguments = ["attention", str(base.path), "--text", TEXT, "--to", str(page), "--json"]
    told = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)
    maps = attention_of(base.path, TEXT, None)
    heads = sum(len(one.weights_HTS) for one in maps)
    assert len(told["patterns"]) == heads == page.read_text().count("<svg") > 1
    assert told["tokens"] == maps[0].columns and told["path"] == str(page)
    for row in told["patterns"]:
        assert row["next"] == 0 and row["entropy"] >= 0
        assert 0 < row["itself"] + row["previous"] <= 1 + 1e-6


def test_an_encoder_reads_its_text_framed(encoder_base: Artifact) -> None:
    maps = attention_of(encoder_base.path, TEXT, None)
    assert all(one.rows == one.columns for one in maps)
    assert all(one.weights_HTS.shape[1:] == (len(one.rows),) * 2 for one in maps)


def test_an_encoder_decoder_looks_from_what_it_writes_at_what_it_reads(fresh: Artifact) -> None:
    maps = {one.name: one for one in attention_of(fresh.path, TEXT, "it turns")}
    crossed = [one for name, one in maps.items() if "cross" in name]
    source = next(one for name, one in maps.items() if name.startswith("encoder")).rows
    assert crossed and all(one.columns == source != one.rows for one in crossed)
    with pytest.raises(BadInput, match="give what it writes: --target"):
        attention_of(fresh.path, TEXT, None)


def test_what_does_not_fit_is_refused(base: Artifact) -> None:
    with pytest.raises(BadInput, match="leave out --target"):
        attention_of(base.path, TEXT, "it turns")
    with pytest.raises(BadInput, match=r"the text has \d+ tokens; \d+ have room"):
        attention_of(base.path, TEXT * 1_000, None)
