"""Tokenizers of cached stages are compared when a run is planned."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.manifest import Manifest, record
from flows.plan.agreement import check_tokenizers


def found(root: Path, stage: str, tokenizer: str | None, **facts: Any) -> Any:
    """A cached stage of a plan."""
    folder = root / stage
    folder.mkdir()
    files = {}
    if tokenizer is not None:
        (folder / "tokenizer.json").write_text(tokenizer)
        files["tokenizer.json"] = record(folder / "tokenizer.json")
    about = Manifest(
        stage=stage, version=1, recipe="r", fingerprint="f", settings={}, inputs={}, facts=facts,
        files=files,
    )  # fmt: skip
    return SimpleNamespace(found=Artifact(folder, about), spec=SimpleNamespace(stage=stage))


SHA = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae"  # of "foo"


def test_one_tokenizer_everywhere_is_fine(tmp_path: Path) -> None:
    missing = SimpleNamespace(found=None, spec=SimpleNamespace(stage="report"))
    check_tokenizers([  # type: ignore[arg-type]
        found(tmp_path, "read", None),
        found(tmp_path, "tokenizer", "foo"),
        found(tmp_path, "shards", None, tokenizer_sha256=SHA),
        found(tmp_path, "pretrain", "foo"),
        missing,
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("shards", "model", "rebuild"), [("0" * 64, "foo", "shards"), (SHA, "bar", "pretrain")]
)
def test_the_stage_made_with_another_one_is_named(
    tmp_path: Path, shards: str, model: str, rebuild: str
) -> None:
    plan = [
        found(tmp_path, "tokenizer", "foo"),
        found(tmp_path, "shards", None, tokenizer_sha256=shards),
        found(tmp_path, "pretrain", model),
    ]
    with pytest.raises(BadInput, match=f"tokenizer/.*`--rebuild {rebuild}`"):
        check_tokenizers(plan)  # type: ignore[arg-type]
