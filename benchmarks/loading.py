"""The loader against `datasets`: shuffled samples of 1,024 tokens, 32 at a time, one process.

    uv run --with datasets==5.2.0 python benchmarks/loading.py [--megabytes 120] [--huge]

Both sides read the same tokens, mapped from files in the page cache: `datasets` rows of a sample's
tokens by a list of shuffled indices, in its NumPy format, the fastest of its ways; Headrace the
same rows by sample number. `tokens` are [32, 1025] as stored; `batch` is what a network takes:
inputs, targets, documents and positions as int64, made of the peer's rows by our own code. The
peer's shuffled list is made before its clock starts. Figures are samples per CPU second, the best
of some passes. `--huge` opens ten billion tokens in sparse files: first batch, and memory.
"""

import argparse
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from fairness import need

from cluster.manifest import BLOCK_BYTES, MANIFEST, Manifest, record
from tasks.tokens.batches import assemble
from tasks.tokens.loader import Loader

CONTEXT, BATCH, EOD = 1024, 32, 0
PASSES = 5
HUGE_SHARD, HUGE_SHARDS = 1 << 25, 300


def main() -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=120, help="size of the tokens")
    parser.add_argument("--huge", action="store_true", help="ten billion tokens, without the peer")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        if arguments.huge:
            _huge(Path(name))
        else:
            need(datasets="datasets==5.2.0")
            _compare(Path(name), arguments.megabytes)


def _compare(folder: Path, megabytes: int) -> None:
    tokens = _tokens(megabytes * 500_000)
    _write_shards(folder, [tokens])
    loader = Loader(folder, "train", CONTEXT, seed=0)
    peer = _peer(folder, tokens, len(loader))
    count = len(loader) // BATCH
    sides: dict[str, tuple[Callable[[int], Any], Callable[[int], Any]]] = {
        "tokens": (peer, lambda step: loader.raw(step * BATCH, BATCH)[0]),
        "batch": (
            lambda step: assemble(peer(step), EOD),
            lambda step: loader.batch(step * BATCH, BATCH),
        ),
    }
    print(f"{len(loader):,} samples; per CPU second{'datasets':>14}{'headrace':>14}{'ratio':>8}")
    for what, (theirs, ours) in sides.items():
        rates = [max(_rate(side, count) for _ in range(PASSES)) for side in (theirs, ours)]
        ratio = rates[1] / rates[0]
        print(f"{what:<32}{rates[0]:>14,.0f}{rates[1]:>14,.0f}{ratio:>8.1f}")


def _rate(read: Callable[[int], Any], count: int) -> float:
    """Samples per CPU second of all batches."""
    started = time.process_time()
    for step in range(count):
        read(step)
    return count * BATCH / (time.process_time() - started)


def _peer(folder: Path, tokens: np.ndarray, samples: int) -> Callable[[int], np.ndarray]:
    """Batches of `datasets`, from an Arrow file that it maps."""
    from datasets import Dataset

    windows = np.lib.stride_tricks.sliding_window_view(tokens, CONTEXT + 1)[::CONTEXT][:samples]
    column = pa.FixedSizeListArray.from_arrays(pa.array(windows.ravel()), CONTEXT + 1)
    table = pa.table({"tokens": column})
    path = str(folder / "peer.arrow")
    with pa.OSFile(path, "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=1000)  # its own writer's batches
    dataset = Dataset.from_file(path).with_format("numpy")
    order = np.random.default_rng(0).permutation(samples)

    def read(step: int) -> np.ndarray:
        rows: np.ndarray = dataset[order[step * BATCH : (step + 1) * BATCH].tolist()]["tokens"]
        return rows

    assert read(0).shape == (BATCH, CONTEXT + 1)
    return read


def _huge(folder: Path) -> None:
    """First batch and memory with ten billion tokens of zeros, which take no room on the disk."""
    _write_shards(folder, [np.zeros(HUGE_SHARD, np.uint16)] * HUGE_SHARDS)
    started, busy = time.perf_counter(), time.process_time()
    loader = Loader(folder, "train", CONTEXT, seed=0)
    loader.batch(0, BATCH)
    seconds, before = time.perf_counter() - started, _peak()
    busy = time.process_time() - busy
    for step in range(1, 400):
        loader.batch(step * BATCH, BATCH)
    print(f"{len(loader.stream):,} tokens: first batch in {seconds:.2f} s, {busy:.2f} s of CPU")
    print(f"peak memory {before >> 20} MiB then, {_peak() >> 20} MiB after {400 * BATCH:,} samples")


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _tokens(count: int) -> np.ndarray:
    """Random tokens with ends of documents about 800 apart."""
    random = np.random.default_rng(0)
    tokens = random.integers(1, 32_000, count).astype(np.uint16)
    tokens[random.integers(0, count, count // 800)] = EOD
    return tokens


def _write_shards(folder: Path, parts: list[np.ndarray]) -> None:
    """A shards artifact with these train shards; all parts are the same, hashed once."""
    names = [f"train-{i:05d}.arrow" for i in range(len(parts))]
    filled, size = _blocks(parts[0])
    for name in names:
        _write(folder / name, filled, size)
    files = dict.fromkeys(names, record(folder / names[0]))
    sizes = [len(tokens) for tokens in parts]
    train = {"documents": 1, "tokens": sum(sizes), "bytes": 1, "shards": sizes}
    manifest = Manifest(
        stage="shards",
        version=1,
        recipe="benchmark",
        fingerprint="0" * 64,
        settings={},
        inputs={},
        facts={"dtype": "uint16", "eod": EOD, "vocab_size": 32_000, "train": train},
        files=files,
    )
    (folder / MANIFEST).write_text(manifest.sealed())


def _blocks(tokens: np.ndarray) -> tuple[dict[int, bytes], int]:
    """The blocks of an Arrow file that are not all zero, by their place, and its size in bytes."""
    batch = pa.record_batch([pa.array(tokens)], names=["tokens"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data = memoryview(sink.getvalue())
    blocks = {i: bytes(data[i : i + BLOCK_BYTES]) for i in range(0, len(data), BLOCK_BYTES)}
    return {i: block for i, block in blocks.items() if block.strip(b"\0")}, len(data)


def _write(path: Path, filled: dict[int, bytes], size: int) -> None:
    """A file with holes where there are only zeros."""
    with path.open("wb") as file:
        for place, block in filled.items():
            file.seek(place)
            file.write(block)
        file.truncate(size)


if __name__ == "__main__":
    main()
