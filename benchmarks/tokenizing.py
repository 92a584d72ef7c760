"""BPE training and token shards against their peers, on the same text in one run.

    uv run --with tiktoken==0.14.0 python benchmarks/tokenizing.py FILE [--vocabulary 32000]

FILE is jsonl (plain or .zst) or Parquet with a column `text`. Training: the native trainer,
`tokenizers`, and gigatoken, which only knows the words of GPT-2 and so learns other merges. Shards:
the whole stage, from a text artifact to a manifest with every hash, against a tiktoken loop that
writes uint16 (as nanochat does) and against `tokenizers`. Figures are CPU seconds of this process,
kernels compiled before; ids are compared in full.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fairness import made, need, need_texts
from filtering import read

from cluster.artifact import Artifact
from cluster.stage import build, stage
from cluster.store import Draft, Store
from tasks.data.text import TextWriter, read_batches
from tasks.tokens.encoder import Encoder, load
from tasks.tokens.patterns import PATTERNS
from tasks.tokens.shards.settings import ShardSettings
from tasks.tokens.shards.stage import shards
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import _train, _train_natively, train_tokenizer

ROWS = 128  # nanochat's batch


def main() -> None:
    """Print speeds, ratios and whether merges and ids are equal."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--vocabulary", type=int, default=32_000)
    parser.add_argument("--megabytes", type=float, default=100, help="text read, at most")
    parser.add_argument("--without-training", action="store_true")
    options = parser.parse_args()
    need(tiktoken="tiktoken==0.14.0")
    texts = need_texts(list(read(options.file, int(options.megabytes * 1e6))), options.file)
    size = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{len(texts)} documents, {size:.2f} MB, vocabulary {options.vocabulary}")
    settings = TokenizerSettings(vocab_size=options.vocabulary, text_bytes=1 << 40)
    if not options.without_training:
        training(texts, settings, size)
    with tempfile.TemporaryDirectory() as folder:
        sharding(texts, settings, size, Path(folder))


def training(texts: list[str], settings: TokenizerSettings, size: float) -> None:
    """All learn from text in memory."""
    need(gigatoken="gigatoken")
    import gigatoken

    arrays = [pa.array(texts, pa.large_string())]
    raw = b"\0".join(text.encode() for text in texts)
    _train_natively([arrays[0][:1]], settings, kernel=True)
    end = ["<|endoftext|>"]
    ours = timed("headrace", size, lambda: _train_natively(arrays, settings, kernel=True))
    peer = timed(
        "gigatoken",
        size,
        lambda: gigatoken.train_bpe(raw, settings.vocab_size, end, separator=b"\0"),
    )
    reference = timed("tokenizers", size, lambda: _train(arrays, settings))
    print(f"time over gigatoken's {ours[0] / peer[0]:.2f}")
    print(f"same file as tokenizers {ours[1].to_str() == reference[1].to_str()}\n")


def sharding(texts: list[str], settings: TokenizerSettings, size: float, folder: Path) -> None:
    """All read the same Parquet files; ours is what `headrace run` does."""
    store = Store(folder)
    text = build(write_text, store, texts=texts)
    tokenizer = build(train_tokenizer, store, text=text, settings=settings)
    encoder = load(tokenizer)
    arguments: dict[str, Any] = {
        "tokenizer": tokenizer,
        "settings": ShardSettings(heldout_share=0.5),
    }
    warm = Store(folder / "warm")  # of few documents, the same work: it must not be found again
    few = build(write_text, warm, texts=texts[:100])
    build(shards, warm, text=few, **arguments)
    work = made(store, lambda: build(shards, store, text=text, **arguments))
    ours = timed("headrace", size, work)
    peer = timed("tiktoken", size, lambda: tiktoken_loop(text, encoder, folder / "peer.bin"))
    library = timed("tokenizers", size, lambda: library_loop(text, encoder))
    print(f"times tiktoken's speed {peer[0] / ours[0]:.1f}")
    counted = (
        ours[1].manifest.facts["train"]["tokens"] + ours[1].manifest.facts["heldout"]["tokens"]
    )
    same = np.array_equal(np.fromfile(folder / "peer.bin", np.uint16), library[1])
    print(f"tokens {counted}; the same in each {np.array_equal(in_order(ours[1]), library[1])}")
    print(f"tiktoken has the ids of tokenizers {same}")


@stage(version=1, name="text")
def write_text(texts: list[str], draft: Draft) -> None:
    """The texts as the data stages leave them."""
    fixed = {"source": "made", "license": None}
    with TextWriter(draft.path) as writer:
        for number, text in enumerate(texts):
            row = {"id": f"made/{number}", "text": text, "origin": f"made:{number}", **fixed}
            writer.write(pa.Table.from_pylist([row]))
    draft.rows = len(texts)


def tiktoken_loop(text: Artifact, encoder: Encoder, path: Path) -> None:
    """Batches of rows to lists of ids, to uint16, to a file: no hash, index or held-out text."""
    import tiktoken

    ranks = {
        encoder.decode_bytes([index]): index
        for index in range(encoder.vocab_size)
        if index not in encoder.special_ids
    }
    peer = tiktoken.Encoding(
        "ours",
        pat_str=PATTERNS["cl100k"],
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": encoder.eod},
    )
    with path.open("wb") as file:
        for source in (file.path for file in text.files("text-*.parquet")):
            for batch in pq.ParquetFile(source).iter_batches(ROWS, columns=["text"]):
                for ids in peer.encode_ordinary_batch(batch.column(0).to_pylist(), num_threads=1):
                    file.write(np.array([*ids, encoder.eod], np.uint16).tobytes())


def library_loop(text: Artifact, encoder: Encoder) -> np.ndarray:
    """All ids by `tokenizers`."""
    found = []
    for batch in read_batches(text, ["text"]):
        for ids in encoder.encode_batch(batch.column(0).to_pylist()):
            found.append(np.array([*ids, encoder.eod], np.uint16))
    return np.concatenate(found)


def in_order(artifact: Artifact) -> np.ndarray:
    """The tokens of all documents in the order of the text."""
    documents = table(artifact, "documents.arrow").to_pylist()
    names = {(d["split"], d["shard"]): f"{d['split']}-{d['shard']:05d}.arrow" for d in documents}
    tokens = {key: table(artifact, name)["tokens"].to_numpy() for key, name in names.items()}
    parts = [(tokens[d["split"], d["shard"]], d["start"], d["length"]) for d in documents]
    return np.concatenate([part[start : start + length] for part, start, length in parts])


def table(artifact: Artifact, name: str) -> pa.Table:
    """An Arrow file of an artifact."""
    with pa.memory_map(str(artifact.file(name))) as source:
        return pa.ipc.open_file(source).read_all()


def timed(name: str, size: float, work: Callable[[], Any]) -> tuple[float, Any]:
    """CPU seconds and result; printed."""
    started = time.process_time()
    result = work()
    seconds = time.process_time() - started
    print(f"{name:10} {seconds:8.2f} CPU s {size / seconds:8.2f} MB per CPU second", flush=True)
    return seconds, result


if __name__ == "__main__":
    main()
