"""Repeated passages: Headrace beside a suffix array, as Lee et al. (2021) use it.

    uv run --with pydivsufsort==0.0.20 python benchmarks/passages.py FILE [--words 50]
        [--chars 2500] [--peer-mb 20] [--rounds 3]

FILE is plain text or jsonl (field `text`), also zstd; long texts are cut into documents of --chars
characters. One in ten gets a passage of 3 x --words words of another put in. Ours goes from an
Arrow array to the texts without the passages; the suffix array alone is what the peer begins with:
common prefixes, matches and cuts would come on top. Figures are CPU seconds, each side's best
round, in one process, in turns.
"""

import argparse
import io
import json
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import zstandard
from fairness import need, need_texts

from tasks.data.deduplication.passages import Marks, runs
from tasks.data.deduplication.spans import Spans, cut


def main() -> None:
    """Print the speed of both sides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--words", type=int, default=50)
    parser.add_argument("--chars", type=int, default=2500)
    parser.add_argument("--peer-mb", type=float, default=20.0)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    need(pydivsufsort="pydivsufsort==0.0.20")
    texts = documents(options.file, options.chars, options.words)
    need_texts(texts, options.file)
    some = texts[: max(1, int(len(texts) * options.peer_mb / megabytes(texts)))]
    sides: dict[str, tuple[Callable[[], int], list[str]]] = {
        "Headrace, all of it": (partial(ours, texts, options.words), texts),
        "Headrace": (partial(ours, some, options.words), some),
        "suffix array alone": (partial(suffixes, some), some),
    }
    ours(texts[:20], options.words)  # compiling is not what is measured
    best = dict.fromkeys(sides, float("inf"))
    gone = dict.fromkeys(sides, 0)
    for _ in range(options.rounds):
        for name, (side, _) in sides.items():
            started = time.process_time()
            gone[name] = side()
            best[name] = min(best[name], time.process_time() - started)
    rates = {name: megabytes(texts) / best[name] for name, (_, texts) in sides.items()}
    print(f"{'':20} {'MB':>7} {'CPU s':>8} {'MB/CPU-s':>9} {'ratio':>6} {'MB cut':>7}")
    for name, (_, texts) in sides.items():
        print(
            f"{name:20} {megabytes(texts):7.1f} {best[name]:8.3f} {rates[name]:9.1f} "
            f"{rates['Headrace'] / rates[name]:6.1f} {gone[name] / 1e6:7.2f}"
        )


def ours(texts: list[str], words: int) -> int:
    """Bytes that are cut: marks, the runs round repeated ones, the cut."""
    array = pa.array(texts, pa.large_string())
    marks = Marks(words)(array, 0)
    several, _ = repeated(marks)
    spans = runs(array, 0, words, marks.where(several))
    _, later = repeated(spans)
    return array.nbytes - cut(array, spans.where(later)).nbytes


def repeated(spans: Spans) -> tuple[np.ndarray, np.ndarray]:
    """Which spans are in several places, and which have an earlier one."""
    order = np.lexsort((spans.places, spans.low))
    same = spans.low[order][1:] == spans.low[order][:-1]
    several, later = np.zeros(len(order), np.bool_), np.zeros(len(order), np.bool_)
    later[order[1:]] = same
    several[order[:-1]] = same
    return several | later, later


def suffixes(texts: list[str]) -> int:
    """The suffix array of all texts."""
    from pydivsufsort import divsufsort

    divsufsort(" ".join(texts).encode())
    return 0


def documents(path: Path, chars: int, words: int) -> list[str]:
    """The texts of a file in pieces, some with a passage of another."""
    with path.open("rb") as file:
        packed = zstandard.ZstdDecompressor().stream_reader(file) if path.suffix == ".zst" else file
        lines = io.TextIOWrapper(packed, encoding="utf-8", errors="ignore").readlines()
    if ".jsonl" in path.name:
        lines = [json.loads(line)["text"] for line in lines]
    whole = "".join(lines)
    texts = [whole[start : start + chars] for start in range(0, len(whole), chars)]
    draw = random.Random(0)
    for number in range(0, len(texts), 10):
        passage = " ".join(draw.choice(texts).split()[: 3 * words])
        texts[number] = f"{texts[number]} {passage}"
    return texts


def megabytes(texts: list[str]) -> float:
    """UTF-8 bytes of some texts, in millions."""
    return sum(len(text.encode()) for text in texts) / 1e6


if __name__ == "__main__":
    main()
