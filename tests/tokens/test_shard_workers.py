"""Shards by 1, 2 and 4 workers: the same files, figures and ledger."""

from collections.abc import Callable
from pathlib import Path

import pytest

from cluster.artifact import Artifact
from cluster.placement import Placement
from cluster.stage import build
from cluster.store import Store
from tasks.data import blocks, text
from tasks.tokens.shards.settings import ShardSettings
from tasks.tokens.shards.stage import shards


def test_any_number_of_workers_gives_the_same_shards(
    ray_session: None,
    tmp_path: Path,
    make_text: Callable[[list[str]], Artifact],
    documents: list[str],
    base: Artifact,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for limit in ("GROUP_BYTES", "BLOCK_BYTES"):
        monkeypatch.setattr(text, limit, 1)
    monkeypatch.setattr(text.TextWriter, "write", _row_by_row(text.TextWriter.write))
    monkeypatch.setattr(blocks, "SMALL_BYTES", 0)
    source = make_text([*documents[:7], ""])
    assert len(source.files(text.PATTERN)) == 8, "a block for every document"
    made = [
        build(
            shards,
            Store(tmp_path / str(workers)),
            text=source,
            tokenizer=base,
            settings=ShardSettings(heldout_share=0.3, shard_tokens=200),
            placement=Placement(data_workers=workers),
        ).manifest
        for workers in (1, 2, 4)
    ]
    assert made[0].files == made[1].files == made[2].files
    assert made[0].facts == made[1].facts == made[2].facts
    assert made[0].ledger == made[1].ledger == made[2].ledger
    assert len(made[0].facts["train"]["shards"]) > 2


def _row_by_row(write: Callable[..., None]) -> Callable[..., None]:
    def each(writer: text.TextWriter, rows: object) -> None:
        for row in range(rows.num_rows):  # type: ignore[attr-defined]
            write(writer, rows.slice(row, 1))  # type: ignore[attr-defined]

    return each
