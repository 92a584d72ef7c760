"""The tokenizer stage: a vocabulary of subwords over bytes, learnt from the text.

The alphabet is the 256 bytes, so every string has an encoding and decoding gives it back exactly.
"""

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft
from tasks.tokens.encoder import FILE, SPECIALS, Encoder, byte_characters, library_threads, load

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MEASURED_BYTES = 1_000_000
# How text falls into words before subwords are learnt: the pattern of tiktoken's cl100k_base.
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
WORDPIECE_WORD = 64  # WordPiece looks up every prefix of a word: quadratic in its length
log = logging.getLogger("headrace.tokenizer")


class TokenizerSettings(Settings):
    """How the vocabulary is learnt."""

    kind: Literal["bpe", "wordpiece", "unigram"] = Field(
        "bpe", description="subword algorithm, over bytes; unigram is not reproducible bit for bit"
    )
    vocab_size: int = Field(
        4096, ge=256 + len(SPECIALS), description="tokens at most: bytes and special ones included"
    )
    text_bytes: int = Field(
        50_000_000, ge=1, description="bytes of text to learn from, spread evenly over all of it"
    )


@stage(version=1, name="tokenizer")
def train_tokenizer(text: Artifact, settings: TokenizerSettings, draft: Draft) -> None:
    """Learn a vocabulary from the documents; writes `tokenizer.json`.

    Facts: `vocab_size` as reached, and, over a sample of 1 MB of text, `bytes_per_token`,
    `fertility` (tokens per whitespace-separated word) and `vocabulary_use` (share of ids that
    occur). Raises BadInput when there is no text.
    """
    from tasks.data.text import read_texts

    total = sum(len(document.encode()) for document in read_texts(text))
    if not total:
        raise BadInput(
            f"{text.name} holds no text to train a tokenizer on; `headrace show {text.name}` shows "
            "what the stages before it rejected, and why"
        )
    tokenizer = _empty(settings.kind)
    wanted = min(total, settings.text_bytes)
    with library_threads():
        tokenizer.train_from_iterator(
            _reported(_spread(text, wanted / total), wanted, draft), _trainer(settings)
        )
    tokenizer.save(str(draft.path / FILE))
    encoder = load(draft.path)
    if encoder.vocab_size < settings.vocab_size:
        log.warning(
            "the text fills a vocabulary of %d, not %d", encoder.vocab_size, settings.vocab_size
        )
    if settings.kind == "unigram":
        log.warning("unigram scores differ slightly from run to run; bpe gives the same every time")
    draft.facts = {"kind": settings.kind, "vocab_size": encoder.vocab_size} | _measure(
        encoder, _spread(text, min(1.0, MEASURED_BYTES / total))
    )


def _empty(kind: str) -> "Tokenizer":
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    steps: list[Any] = [pre_tokenizers.Split(Regex(WORDS), "isolated"), byte_level]
    model: Any
    if kind == "wordpiece":
        # Without a prefix for inner pieces every byte is a piece, so nothing is ever unknown.
        model = models.WordPiece(
            unk_token=SPECIALS[0],
            continuing_subword_prefix="",
            max_input_chars_per_word=4 * WORDPIECE_WORD,
        )
        steps.insert(1, pre_tokenizers.FixedLength(WORDPIECE_WORD))
    else:
        model = models.BPE() if kind == "bpe" else models.Unigram()
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _trainer(settings: TokenizerSettings) -> Any:
    from tokenizers import trainers

    kinds = {
        "bpe": trainers.BpeTrainer,
        "wordpiece": trainers.WordPieceTrainer,
        "unigram": trainers.UnigramTrainer,
    }
    prefix = {"continuing_subword_prefix": ""} if settings.kind == "wordpiece" else {}
    return kinds[settings.kind](
        vocab_size=settings.vocab_size,
        special_tokens=list(SPECIALS),
        initial_alphabet=byte_characters(),
        show_progress=False,
        **prefix,
    )


def _spread(text: Artifact, share: float) -> Iterator[str]:
    """Documents from all over the text that make up about this share of its bytes; at least one."""
    from tasks.data.text import read_texts

    seen = taken = 0
    for document in read_texts(text):
        size = len(document.encode())
        if size and taken <= share * seen:
            taken += size
            yield document
        seen += size


def _reported(documents: Iterator[str], total: int, draft: Draft) -> Iterator[str]:
    done = 0
    for document in documents:
        yield document
        done += len(document.encode())
        draft.progress(min(done, total), total, "bytes")


def _measure(encoder: Encoder, documents: Iterator[str]) -> dict[str, float]:
    size = tokens = words = 0
    used: set[int] = set()
    for document in documents:
        ids = encoder.encode(document)
        used.update(ids)
        size, tokens = size + len(document.encode()), tokens + len(ids)
        words += len(document.split())
    return {
        "bytes_per_token": size / tokens,
        "fertility": tokens / max(words, 1),
        "vocabulary_use": len(used) / (encoder.vocab_size - len(SPECIALS)),
    }
