"""Whether anything still holds a piece of erased texts: runs of 13 words that no kept row has,
looked for in whatever a home keeps.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cluster.artifact import Artifact
from tasks.data.text import read_batches
from tasks.tokens.encoder import load
from tasks.tokens.shards.settings import SPLITS
from tasks.tokens.shards.stream import TokenStream

WORDS = 13
"""As long as what GPT-3's authors looked for (Brown et al. 2020, appendix C)."""
TOKENS = 1 << 20
OVERLAP = 1 << 10
PIECE = 1 << 24
WEIGHTS = (".safetensors", ".arrow", ".bin", ".npz")


def grams(text: str) -> set[str]:
    """The runs of 13 words of a text; a shorter text is one run."""
    return {run for _, _, run in runs(text)}


def runs(text: str) -> Iterator[tuple[int, int, str]]:
    """Where each run begins and ends, and its words with a space between."""
    # In JSON a line ends with two characters, of which the second would be part of a word.
    words = list(re.finditer(r"\w+", re.sub(r"\\[nrt]", "  ", text)))
    for end in range(min(WORDS, len(words)), len(words) + 1) if words else ():
        run = words[max(0, end - WORDS) : end]
        yield run[0].start(), run[-1].end(), " ".join(word[0] for word in run)


def own_grams(texts: Iterable[str], reads: Iterable[Artifact], gone: Collection[str]) -> set[str]:
    """The runs of erased texts that no row of these `read` artifacts has but those with the ids
    that are `gone`.
    """
    found = {gram for text in texts for gram in grams(text)}
    for read in reads:
        for batch in read_batches(read, ["id", "text"]):
            for id, text in zip(batch["id"].to_pylist(), batch["text"].to_pylist(), strict=True):
                if id not in gone:
                    found -= grams(text)
    return found


def holders(folder: Path, wanted: set[str], left_out: Collection[Path]) -> list[Path]:
    """The files below a folder, but for some folders, that hold one of these runs: as text, as
    Parquet, or in a database.
    """
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    inside = (path for path in paths if not any(path.is_relative_to(out) for out in left_out))
    return [path for path in inside if any(not wanted.isdisjoint(grams(t)) for t in _texts(path))]


def shards_hold(shards: Artifact, tokenizer: Artifact, wanted: set[str]) -> bool:
    """Whether the text of some shards has one of these runs."""
    encoder = load(tokenizer)
    for split in SPLITS:
        stream = TokenStream(shards, split)
        for start in range(0, len(stream), TOKENS):
            piece = stream.span(start, min(start + TOKENS + OVERLAP, len(stream)))
            text = encoder.decode(stream.living(piece).tolist())
            if not wanted.isdisjoint(grams(text)):
                return True
    return False


def _texts(path: Path) -> Iterator[str]:
    """What a file holds, in pieces."""
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        strings = [f.name for f in table.schema if pa.types.is_string(f.type) or _is_large(f.type)]
        for name in strings:
            yield from (text for text in table[name].to_pylist() if text)
    elif path.suffix not in WEIGHTS:
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                yield (piece + file.read(OVERLAP * 8)).decode(errors="ignore")
                if len(piece) == PIECE:
                    file.seek(-OVERLAP * 8, 1)


def _is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind))
