"""Ten billion tokens: the same memory as ten thousand."""

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cluster.artifact import Artifact
from cluster.manifest import MANIFEST, Manifest, record
from tasks.tokens.loader import Loader
from tasks.tokens.shards import stream

SHARD, SHARDS = 1 << 25, 300


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Three hundred shards of 64 MiB which are one file on the disk."""
    folder = tmp_path_factory.mktemp("huge")
    tokens = np.arange(SHARD, dtype=np.uint32).astype(np.uint16)
    batch = pa.record_batch([pa.array(tokens)], names=["tokens"])
    names = [f"train-{i:05d}.arrow" for i in range(SHARDS)]
    with pa.ipc.new_file(str(folder / names[0]), batch.schema) as file:
        file.write_batch(batch)
    about = record(folder / names[0])
    for name in names[1:]:
        (folder / name).hardlink_to(folder / names[0])
    train = {"documents": 1, "tokens": SHARD * SHARDS, "bytes": 1, "shards": [SHARD] * SHARDS}
    manifest = Manifest(
        stage="shards",
        version=1,
        recipe="huge",
        fingerprint="0" * 64,
        settings={},
        inputs={},
        facts={
            "dtype": "uint16",
            "eod": 0,
            "vocab_size": 1 << 16,
            "train": train,
            "heldout": train,
        },
        files=dict.fromkeys(names, about),
    )
    (folder / MANIFEST).write_text(manifest.sealed())
    return Artifact.load(folder)


def resident() -> int:
    """Bytes of this process's own memory; pages of mapped files are the system's to take back."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found
    return int(found[1]) << 10


def test_memory_stays_the_same_at_ten_billion_tokens(
    huge: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "RESIDENT_BYTES", 16 << 20)
    loader = Loader(huge, "train", 1024, 0)
    assert len(loader.stream) > 10_000_000_000
    loader.batch(0, 32)
    before = resident()
    for first in range(32, 1600, 32):
        loader.batch(first, 32)
    assert resident() - before < 48 << 20, "1,568 samples"


def test_the_last_sample_is_the_end_of_the_last_shard(huge: Artifact) -> None:
    loader = Loader(huge, "train", 1024, 0)
    last = loader.layout.windows(np.array([len(loader) - 1]))[0]
    end = (len(loader) * 1024) % (1 << 16)
    assert last[-1] == end
    assert last[0] == (end - 1024) % (1 << 16)
