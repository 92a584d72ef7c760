"""Filtering and redacting by any number of workers, of sources in any order: the same bytes."""

import json

import pytest

from cluster.placement import Placement
from cluster.stage import build
from tasks.data import blocks
from tasks.data.deduplication import search
from tasks.data.deduplication.settings import DedupSettings
from tasks.data.deduplication.stage import dedup
from tasks.data.filtering.settings import FilterSettings
from tasks.data.filtering.stage import filter_text
from tasks.data.privacy.settings import RedactSettings
from tasks.data.privacy.stage import redact
from tasks.data.reading import intake
from tasks.data.reading.stage import ReadSettings, read
from tests.data.deduplication.documents import document, edited

FILES = 5
PRESET = FilterSettings(preset="basic")


@pytest.fixture
def folder(ray_session, tmp_path, monkeypatch):
    """Five files, a block each: good and bad documents, near copies, personal data."""
    monkeypatch.setattr(intake, "BLOCK_BYTES", 1)
    for module in (blocks, search):
        monkeypatch.setattr(module, "SMALL_BYTES", 0)
    (tmp_path / "in").mkdir()
    for number in range(FILES):
        base = [document(100 * number + i, 60) for i in range(20)]
        texts = base + [edited(base[i], 1, seed=i) for i in range(5)] + [document(7, 60), "short"]
        texts += [f"{document(i, 40)} write to u{i}.{number}@example.org" for i in range(5)]
        rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
        (tmp_path / "in" / f"{number}.jsonl").write_text(rows)
    return tmp_path / "in"


def stages(store, sources, at_once):
    """Everything that four stages leave, file hashes, facts and ledgers."""
    placement, left = Placement(data_workers=at_once), []

    def made(function, **inputs):
        artifact = build(function, store, placement=placement, force=True, **inputs)
        facts = {k: v for k, v in artifact.manifest.facts.items() if k != "sources"}
        left.append((artifact.manifest.files, facts, artifact.manifest.ledger))
        return artifact

    entries = [{"path": str(path)} for path in sources]
    text = made(read, settings=ReadSettings.model_validate({"sources": entries}))
    text = made(filter_text, raw=text, settings=PRESET)
    text = made(dedup, text=text, settings=DedupSettings())
    made(redact, text=text, settings=RedactSettings())
    return left


def test_workers_and_the_order_of_sources_change_nothing(store, folder):
    sources = sorted(folder.iterdir())
    expected = stages(store, sources, 1)
    _, filtered, kept, redacted = expected
    assert filtered[2].rejects["too_short"] == FILES
    assert kept[2].rejects["near_duplicate"] >= 5 * FILES
    assert redacted[1]["counts"]["email"] == 5
    assert stages(store, sources, 2) == expected
    assert stages(store, sources[::-1], 4) == expected
