"""MinHash signatures and LSH candidates: Headrace beside rensa and datasketch.

    uv run --with rensa==0.5.0 --with datasketch==2.0.0 python benchmarks/minhash.py FILE
        [--peer-mb 10] [--chars 2500] [--rounds 3]

FILE is plain text or jsonl (field `text`), also zstd, or a directory with .py files; long texts are
cut into documents of --chars characters. Each side goes from its texts (an Arrow array; Python
strings) to the groups of documents that share one of 14 bands of 8 values over shingles of 5 words:
the peers get lower-cased `\\w+` words and shingle strings made in Python, as their interfaces ask.
The peers see the first --peer-mb of it. Figures are CPU seconds, the best round of each side, in
one process, in turns.

The second table is the error of the Jaccard estimates: root mean square over pairs of documents
with a known similarity, and what independent permutations would have.
"""

import argparse
import io
import json
import random
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import zstandard
from fairness import need, need_texts

from tasks.data.deduplication.candidates import join
from tasks.data.deduplication.minhash import Family, band_keys, signatures

FAMILY = Family(bands=14, rows=8)
VALUES = FAMILY.bands * FAMILY.rows
WORD = re.compile(r"\w+")
SIMILARITIES = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
PAIRS = 300


def main() -> None:
    """Print speed and accuracy of all sides."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--peer-mb", type=float, default=10.0)
    parser.add_argument("--chars", type=int, default=2500)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    need(rensa="rensa==0.5.0", datasketch="datasketch==2.0.0")
    texts = need_texts(documents(options.file, options.chars), options.file)
    some = first(texts, options.peer_mb)
    sides: dict[str, tuple[Callable[[], int], list[str]]] = {
        "Headrace, all of it": (partial(ours, pa.array(texts, pa.large_string())), texts),
        "Headrace": (partial(ours, pa.array(some, pa.large_string())), some),
        "rensa": (partial(rensa, some), some),
        "datasketch": (partial(datasketch, some), some),
    }
    ours(pa.array(texts[:20], pa.large_string()))  # compiling is not what is measured
    speed(sides, options.rounds)
    accuracy()


def speed(sides: dict[str, tuple[Callable[[], int], list[str]]], rounds: int) -> None:
    """CPU seconds of each side, the best of some rounds in turns."""
    best = {name: float("inf") for name in sides}
    candidates = {}
    for _ in range(rounds):
        for name, (side, _) in sides.items():
            started = time.process_time()
            candidates[name] = side()
            best[name] = min(best[name], time.process_time() - started)
    rates = {name: megabytes(texts) / best[name] for name, (_, texts) in sides.items()}
    heads = f"{'MB':>7} {'docs':>7} {'CPU s':>8} {'MB/CPU-s':>9} {'ratio':>6} {'candidates':>11}"
    print(" " * 20, heads)
    for name, (_, texts) in sides.items():
        ratio = rates["Headrace"] / rates[name]
        print(
            f"{name:20} {megabytes(texts):7.1f} {len(texts):7} {best[name]:8.3f} "
            f"{rates[name]:9.1f} {ratio:6.1f} {candidates[name]:11}"
        )


def accuracy() -> None:
    """Root mean square error of the estimate, by similarity, of each side."""
    print(f"\n{'Jaccard':>8} {'Headrace':>9} {'rensa':>9} {'datasketch':>11} {'expected':>9}")
    totals = []
    for similarity in SIMILARITIES:
        pairs = [pair(similarity, seed) for seed in range(PAIRS)]
        errors = [
            [estimate(*p) - similarity for p in pairs]
            for estimate in (ours_estimate, rensa_estimate, datasketch_estimate)
        ]
        found = [float(np.sqrt(np.mean(np.square(e)))) for e in errors]
        expected = float(np.sqrt(similarity * (1 - similarity) / VALUES))
        totals.append([*found, expected])
        print(f"{similarity:8.2f} {found[0]:9.4f} {found[1]:9.4f} {found[2]:11.4f} {expected:9.4f}")
    mean = np.sqrt(np.mean(np.square(totals), axis=0))
    print(f"{'all':>8} {mean[0]:9.4f} {mean[1]:9.4f} {mean[2]:11.4f} {mean[3]:9.4f}")


def ours(array: pa.Array) -> int:
    """How many documents share a band with another."""
    parents, repeated = np.arange(len(array)), np.zeros(len(array), np.bool_)
    signed, counts = signatures(array, FAMILY)
    worded = np.flatnonzero(counts)
    for keys in band_keys(signed, FAMILY):
        join(keys[worded], worded, parents, repeated)
    return int(repeated.sum())


def rensa(texts: list[str]) -> int:
    """The same with rensa's fastest signatures."""
    from rensa import RMinHash, RMinHashLSH

    lsh = RMinHashLSH(threshold=0.8, num_perm=VALUES, num_bands=FAMILY.bands)
    signatures = []
    for number, text in enumerate(texts):
        sign = RMinHash(num_perm=VALUES, seed=42)
        sign.update(shingles(text))
        lsh.insert(number, sign)
        signatures.append(sign)
    return sum(len(lsh.query(sign)) > 1 for sign in signatures)


def datasketch(texts: list[str]) -> int:
    """The same with datasketch."""
    from datasketch import MinHash, MinHashLSH

    lsh = MinHashLSH(num_perm=VALUES, params=(FAMILY.bands, FAMILY.rows))
    encoded = ([s.encode() for s in shingles(text)] for text in texts)
    signatures = list(MinHash.generator(encoded, num_perm=VALUES))
    for number, sign in enumerate(signatures):
        lsh.insert(number, sign)
    return sum(len(lsh.query(sign)) > 1 for sign in signatures)


def shingles(text: str) -> list[str]:
    """Every five consecutive words."""
    words = WORD.findall(text.lower())
    return [" ".join(words[k : k + 5]) for k in range(max(1, len(words) - 4))]


def pair(similarity: float, seed: int, size: int = 1000) -> tuple[str, str]:
    """Two texts whose sets of shingles have this Jaccard similarity up to rounding: what they share
    comes first, and each goes on with words of its own.
    """
    rng = random.Random(seed)
    words = [f"{rng.randrange(16**8):x}" for _ in range(3 * size)]
    shared = round(size * 2 * similarity / (1 + similarity))
    common = words[: shared + 4]
    rest = size - shared
    return (
        " ".join(common + words[size * 1 + 4 :][:rest]),
        " ".join(common + words[size * 2 + 4 :][:rest]),
    )


def ours_estimate(a: str, b: str) -> float:
    """Share of equal values."""
    signed, _ = signatures(pa.array([a, b], pa.large_string()), FAMILY)
    return float((signed[0] == signed[1]).mean())


def rensa_estimate(a: str, b: str) -> float:
    """rensa's."""
    from rensa import RMinHash

    one, two = (RMinHash(num_perm=VALUES, seed=42) for _ in range(2))
    one.update(shingles(a))
    two.update(shingles(b))
    return float(one.jaccard(two))


def datasketch_estimate(a: str, b: str) -> float:
    """datasketch's."""
    from datasketch import MinHash

    encoded = ([s.encode() for s in shingles(text)] for text in (a, b))
    one, two = MinHash.generator(encoded, num_perm=VALUES)
    return float(one.jaccard(two))


def documents(path: Path, chars: int) -> list[str]:
    """The texts of a file or folder, cut to documents of so many characters."""
    if path.is_dir():
        whole = [p.read_text(errors="replace") for p in sorted(path.rglob("*.py"))]
    else:
        raw = path.read_bytes()
        if path.suffix == ".zst":
            raw = zstandard.ZstdDecompressor().stream_reader(io.BytesIO(raw)).read()
        lines = raw.decode(errors="replace").split("\n")
        jsonl = ".jsonl" in path.name
        whole = [json.loads(line)["text"] for line in lines if line] if jsonl else lines
    return [text[k : k + chars] for text in whole for k in range(0, len(text), chars)]


def first(texts: list[str], mb: float) -> list[str]:
    """The first documents of about so many megabytes."""
    sizes = np.cumsum([len(text.encode()) for text in texts])
    return texts[: int(np.searchsorted(sizes, mb * 1e6)) + 1]


def megabytes(texts: list[str]) -> float:
    """Their size in UTF-8."""
    return sum(len(text.encode()) for text in texts) / 1e6


if __name__ == "__main__":
    main()
