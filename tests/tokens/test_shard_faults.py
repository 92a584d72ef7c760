"""Damaged shards: refused by name before any batch of the damage is served, found by `verify`."""

import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from cluster.artifact import Artifact, faults
from cluster.errors import BadInput
from cluster.manifest import MANIFEST
from cluster.stage import build
from cluster.store import Store
from tasks.tokens.loader import Loader
from tasks.tokens.shards.documents import read_documents
from tasks.tokens.shards.settings import ShardSettings
from tasks.tokens.shards.stage import shards
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import train_tokenizer
from tests.tokens.made import shards_of

NAME = "train-00001.arrow"
CONTEXT = 16


@pytest.fixture
def made(tmp_path: Path) -> Artifact:
    """Four shards of the same size."""
    return shards_of(tmp_path, [20] * 20, shard_tokens=100)


def serve_all(artifact: Path | Artifact) -> None:
    """Every batch of an epoch."""
    loader = Loader(artifact, "train", CONTEXT, 0)
    loader.batch(0, len(loader))


def refused(artifact: Artifact, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        serve_all(artifact.path)
    assert [fault for fault in faults(artifact) if NAME in fault], "verify finds it too"


def test_the_bits_of_a_shard_are_watched(made: Artifact) -> None:
    path = made.file(NAME)
    sound = path.read_bytes()
    for bit in range(0, 8 * len(sound), 7):  # nearly every byte, and each of the eight places
        changed = bytearray(sound)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        with pytest.raises(BadInput, match=rf"{NAME}: block 0 .* changed.*--rebuild shards"):
            Loader(made, "train", CONTEXT, 0).stream.span(100, 101)
        if bit % 700 == 0:
            assert [fault for fault in faults(made) if NAME in fault]
    path.write_bytes(sound)
    serve_all(made)


def test_a_shard_cut_anywhere_is_refused_at_once(made: Artifact) -> None:
    path = made.file(NAME)
    sound = path.read_bytes()
    for size in range(len(sound)):
        os.truncate(path, size)
        with pytest.raises(BadInput, match=rf"{NAME} has {size} bytes, its manifest says"):
            Loader(made, "train", CONTEXT, 0)
        path.write_bytes(sound)


@pytest.mark.parametrize("part", [0, 0.1, 0.5, 0.9, 0.99])
def test_a_shard_cut_and_filled_up_is_refused(made: Artifact, part: float) -> None:
    path = made.file(NAME)
    size = path.stat().st_size
    os.truncate(path, int(part * size))
    os.truncate(path, size)
    refused(made, rf"{NAME}: block 0 \(bytes 0 to 1048576\) changed: SHA-256")


def test_swapped_shards_are_refused(made: Artifact) -> None:
    one, other = made.file(NAME), made.file("train-00002.arrow")
    assert one.stat().st_size == other.stat().st_size
    kept = one.read_bytes()
    shutil.copyfile(other, one)
    other.write_bytes(kept)
    refused(made, r"train-0000\d\.arrow: block 0 .* changed")


def test_a_missing_and_a_renamed_shard_are_refused(made: Artifact) -> None:
    path = made.file(NAME)
    path.rename(path.with_name("train-00009.arrow"))
    refused(made, rf"{NAME} is missing, its manifest says .*headrace verify shards/")
    assert any("train-00009.arrow: not in the manifest" in fault for fault in faults(made))


def test_a_shard_too_many_is_found_and_never_read(made: Artifact) -> None:
    shutil.copyfile(made.file(NAME), made.path / "train-00004.arrow")
    (fault,) = faults(made)
    assert fault.endswith("train-00004.arrow: not in the manifest")
    assert len(Loader(made, "train", CONTEXT, 0).stream) == 400


def test_shards_of_equal_content_are_no_error(tmp_path: Path) -> None:
    serve_all(shards_of(tmp_path, [2] * 100, shard_tokens=20))


def test_a_manifest_cut_or_edited_is_refused(made: Artifact) -> None:
    path = made.path / MANIFEST
    sound = path.read_text()
    path.write_text(sound[: len(sound) // 2])
    with pytest.raises(BadInput, match=r"artifact\.json cannot be read"):
        serve_all(made.path)
    digest = made.manifest.files[NAME].blocks[0]
    path.write_text(sound.replace(digest, digest[::-1]))
    with pytest.raises(BadInput, match=r"artifact\.json cannot be read: its content changed"):
        serve_all(made.path)
    counts = made.manifest.facts["train"]["shards"]
    edited = Artifact.load(_written(made, sound))
    edited.manifest.facts["train"]["shards"] = [counts[0], counts[1] - 1, *counts[2:]]
    with pytest.raises(BadInput, match=rf"{NAME} has 100 tokens, its manifest says 99"):
        serve_all(edited)


def _written(artifact: Artifact, manifest: str) -> Path:
    (artifact.path / MANIFEST).write_text(manifest)
    return artifact.path


def test_arrow_never_sees_bytes_that_are_not_the_manifest_s(
    made: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile Arrow file can crash its reader, so it is refused before it is parsed."""
    path = made.file(NAME)
    path.write_bytes(b"ARROW1\0\0" + b"\xff" * (path.stat().st_size - 8))
    opened: list[object] = []
    monkeypatch.setattr(pa.ipc, "open_file", opened.append)
    with pytest.raises(BadInput, match=rf"{NAME}: block 0"):
        Loader(made, "train", CONTEXT, 0).stream.span(100, 200)
    assert not opened


def test_a_bit_flipped_in_the_map_of_documents_is_refused(made: Artifact) -> None:
    path = made.file("documents.arrow")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(BadInput, match=r"documents\.arrow: bytes 0 to .* --rebuild shards"):
        read_documents(made, "train", "id")


@pytest.fixture(scope="module")
def inputs(
    store: Store, make_text: Callable[[list[str]], Artifact], documents: list[str]
) -> tuple[Artifact, Artifact]:
    text = make_text(documents)
    options = TokenizerSettings(vocab_size=512)
    return text, build(train_tokenizer, store, text=text, settings=options)


WRITER = """
    import os, sys
    from pathlib import Path
    from cluster.artifact import Artifact
    from cluster.stage import build
    from cluster.store import Store
    from tasks.tokens.shards.stage import shards
    from tasks.tokens.shards.settings import ShardSettings

    root, text, tokenizer = map(Path, sys.argv[1:4])
    text, tokenizer = Artifact.load(text), Artifact.load(tokenizer)

    def write(root):
        options = ShardSettings(heldout_share=0.2, shard_tokens=1000)
        return build(shards, Store(root), text=text, tokenizer=tokenizer, settings=options)

    def killing(real, left):
        def call(*arguments, **options):
            left[0] -= 1
            if not left[0]:
                os._exit(9)
            return real(*arguments, **options)
        return call

    def sweep():
        "Kill the writer at every sync and rename, each in a process of its own."
        write(root / "warm")
        for point in range(1, 200):
            child = os.fork()
            if not child:
                left = [point]
                for owner, name in ((os, "fsync"), (Path, "rename"), (Path, "replace")):
                    setattr(owner, name, killing(getattr(owner, name), left))
                write(root / str(point))
                os._exit(0)
            if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0:
                return print(point)

    sweep()
"""


def test_a_writer_killed_at_any_point_leaves_all_or_nothing(
    tmp_path: Path, inputs: tuple[Artifact, Artifact]
) -> None:
    text, tokenizer = inputs
    command = [sys.executable, "-c", textwrap.dedent(WRITER)]
    command += [str(path) for path in (tmp_path, text.path, tokenizer.path)]
    ran = subprocess.run(
        command, capture_output=True, text=True, cwd=Path(__file__).parents[2], timeout=600
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    last = int(ran.stdout)
    assert last > 12
    (whole,) = Store(tmp_path / "warm").artifacts()
    options = ShardSettings(heldout_share=0.2, shard_tokens=1000)
    for point in range(1, last + 1):
        store = Store(tmp_path / str(point))
        for survivor in store.artifacts():
            assert faults(survivor) == []
        again = build(shards, store, text=text, tokenizer=tokenizer, settings=options)
        assert again.manifest.files == whole.manifest.files
        assert faults(again) == []


def test_a_full_disk_names_the_folder_and_leaves_nothing(
    tmp_path: Path, inputs: tuple[Artifact, Artifact]
) -> None:
    text, tokenizer = inputs
    options = ShardSettings(heldout_share=0.2)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(BadInput, match=rf"no space left in {tmp_path}.*is kept"):
            build(shards, Store(tmp_path), text=text, tokenizer=tokenizer, settings=options)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert Store(tmp_path).artifacts() == []
    whole = build(shards, Store(tmp_path), text=text, tokenizer=tokenizer, settings=options)
    assert faults(whole) == []


def test_tokens_are_accounted_for_from_text_to_shards(
    store: Store, inputs: tuple[Artifact, Artifact]
) -> None:
    text, tokenizer = inputs
    made = build(shards, store, text=text, tokenizer=tokenizer, settings=ShardSettings())
    rows = {split: read_documents(made, split, "length", "bytes") for split in ("train", "heldout")}
    for split, table in rows.items():
        facts = made.manifest.facts[split]
        loader = Loader(made, split, 8, 0)
        tokens = loader.stream.span(0, len(loader.stream))
        lengths = table["length"].to_numpy()
        assert (
            np.flatnonzero(tokens == loader.stream.eod).tolist() == (lengths.cumsum() - 1).tolist()
        )
        assert sum(facts["shards"]) == facts["tokens"] == lengths.sum() == len(tokens)
        assert facts["documents"] == len(table)
    assert made.manifest.ledger is not None
    assert (
        made.manifest.ledger.rows_out
        == sum(len(table) for table in rows.values())
        == text.manifest.rows
    )
