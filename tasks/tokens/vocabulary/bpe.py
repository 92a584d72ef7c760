"""Byte-level BPE trained by native kernels, to the very `tokenizer.json` that `tokenizers` writes.

What `tokenizers` learns is the reference. The stage has both learn from a sample of the text, and
where they differ `tokenizers` learns from all of it.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tasks.data.kernels.buffers import Bytes, Offsets, text_array, text_buffer
from tasks.data.kernels.characters import CODE_POINTS, kept
from tasks.tokens.encoder import byte_characters
from tasks.tokens.vocabulary.bpe_merges import learn_merges
from tasks.tokens.vocabulary.bpe_words import LETTER, NEWLINE, NUMBER, SPACE, word_bounds

if TYPE_CHECKING:
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import PreTokenizer

Words = tuple[Bytes, Offsets]
Counts = npt.NDArray[np.int64]
# Code points classed at a time. Surrogates, which no text holds, are exactly one chunk.
CHUNK = 0x800
CLASSES = {r"\p{L}": LETTER, r"\p{N}": NUMBER, r"\s": SPACE}


def train(
    words: Words, counts: Counts, vocab_size: int, specials: Sequence[str], *, lexical: bool
) -> "BPE":
    """The model that `BpeTrainer` learns from so many of these words, ties as `ties` says them."""
    from tokenizers.models import BPE

    characters = byte_characters()
    alphabet = sorted(characters)
    tokens = [*specials, *alphabet]
    place = {character: len(specials) + k for k, character in enumerate(alphabet)}
    ids = np.array([place[character] for character in characters], np.int64)
    merges = []
    learnt = learn_merges(*words, counts, ids, len(tokens), vocab_size, lexical)
    for left, right, made in learnt.tolist():
        merges.append((tokens[left], tokens[right]))
        # Another merge may have made the same string: it has one id.
        if made == len(tokens):
            tokens.append(tokens[left] + tokens[right])
    return BPE({token: index for index, token in enumerate(tokens)}, merges)


def count_words(texts: Iterable[pa.Array]) -> tuple[Words, Counts]:
    """The distinct words of all texts, as `text_buffer` gives them, and how often each occurs.

    By the pattern `cl100k`, whose words a kernel finds.
    """
    kinds, found = character_classes(), []
    for batch in texts:
        data, offsets = text_buffer(batch)
        words = text_array(data, word_bounds(data, offsets, kinds))
        found.append(pa.Table.from_struct_array(pc.value_counts(words)))
    distinct = pa.concat_tables(found).group_by("values").aggregate([("counts", "sum")])
    return text_buffer(distinct["values"]), distinct["counts_sum"].to_numpy()


def count_words_by(splits: "PreTokenizer", texts: Iterable[str]) -> tuple[Words, Counts]:
    """The same by any pattern, as the library splits a text."""
    found: Counter[str] = Counter()
    for text in texts:
        found.update(word for word, _ in splits.pre_tokenize_str(text))
    words = pa.array(found, pa.large_string())
    return text_buffer(words), np.fromiter(found.values(), np.int64, len(found))


def character_classes() -> npt.NDArray[np.uint8]:
    """`[CODE_POINTS]` bits of `bpe_words`, as the regular expressions of `tokenizers` have them."""
    return kept(f"tokenizers-{version('tokenizers')}.npy", _character_classes)


def _character_classes() -> npt.NDArray[np.uint8]:
    from tokenizers import Regex, pre_tokenizers

    table = np.zeros(CODE_POINTS, np.uint8)
    for pattern, bit in CLASSES.items():
        split = pre_tokenizers.Split(Regex(f"{pattern}+"), "removed")
        for first in range(0, CODE_POINTS, CHUNK):
            if 0xD800 <= first < 0xE000:
                continue
            left_out = split.pre_tokenize_str("".join(map(chr, range(first, first + CHUNK))))
            # Set for all, then taken from those that are left over: the split removes its matches.
            table[first : first + CHUNK] |= bit
            for _, (begin, end) in left_out:
                table[first + begin : first + end] ^= bit
    table[[10, 13]] |= NEWLINE
    return table
