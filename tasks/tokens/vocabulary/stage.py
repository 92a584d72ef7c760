"""The tokenizer stage: a vocabulary of subwords over bytes, learnt from the text.

The alphabet is the 256 bytes, so every string has an encoding and decoding gives it back exactly.
BPE and WordPiece come out the same every time. Unigram does not quite: `tokenizers` adds up its
expected counts in the order of a hash table whose seed differs from process to process, so scores
differ in the third digit. Its tokenizer's hash, which shards and models carry, tells two apart.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import stage
from cluster.store import Draft
from tasks.tokens.encoder import FILE, SPECIALS, Encoder, byte_characters, library_threads, load
from tasks.tokens.patterns import KERNEL_PATTERN, steps
from tasks.tokens.vocabulary.settings import TokenizerSettings

if TYPE_CHECKING:
    from pyarrow import Array
    from tokenizers import Tokenizer

MEASURED_BYTES, SAMPLE_BYTES = 1_000_000, 100_000
SAMPLE_VOCABULARY, SHOWN = 2000, 10
WORDPIECE_WORD = 64  # WordPiece looks up every prefix of a word: quadratic in its length
log = logging.getLogger("headrace.tokenizer")


@stage(version=1, name="tokenizer")
def train_tokenizer(text: Artifact, settings: TokenizerSettings, draft: Draft) -> None:
    """Learn a vocabulary from the documents; writes `tokenizer.json`.

    Facts: `kind`, `vocab_size` as reached, `trained_by`, and, over a sample of 1 MB of text,
    `bytes_per_token`, `fertility` (tokens per whitespace-separated word), `vocabulary_use` (share
    of ids that occur) and the `longest` tokens of the vocabulary.
    Raises BadInput when there is no text.
    """
    total = sum(_size(texts) for texts in _texts(text))
    if not total:
        raise BadInput(
            f"{text.name} holds no text to train a tokenizer on; `headrace show {text.name}` shows "
            "what the stages before it rejected, and why"
        )
    wanted = min(total, settings.text_bytes)
    sample = list(_spread(text, min(1.0, SAMPLE_BYTES / total)))
    merges = settings.vocab_size > settings.least  # without, there is nothing to compile for
    kernel = merges and settings.kind == "bpe" and settings.pattern == KERNEL_PATTERN
    kernel = kernel and _agree(sample, settings)
    # `tokenizers` breaks ties in one way only.
    native = kernel or (merges and settings.ties != "huggingface")
    texts = _reported(_spread(text, wanted / total), wanted, draft)
    tokenizer = _train_natively(texts, settings, kernel) if native else _train(texts, settings)
    tokenizer.save(str(draft.path / FILE))
    encoder = load(draft.path)
    if encoder.vocab_size < settings.vocab_size:
        log.warning(
            "the text fills a vocabulary of %d, not %d", encoder.vocab_size, settings.vocab_size
        )
    if settings.kind == "unigram":
        log.warning("unigram scores differ slightly from run to run; bpe gives the same every time")
    about = {
        "kind": settings.kind,
        "vocab_size": encoder.vocab_size,
        "trained_by": "headrace" if native else "tokenizers",
        "longest": [encoder.decode([index]) for index in encoder.longest(SHOWN)],
    }
    draft.facts = about | _measure(encoder, _spread(text, min(1.0, MEASURED_BYTES / total)))


def _agree(sample: "list[Array]", settings: TokenizerSettings) -> bool:
    """Whether the native trainer learns from a sample what `tokenizers` does."""
    vocab_size = min(settings.vocab_size, SAMPLE_VOCABULARY)
    few = settings.model_copy(update={"vocab_size": vocab_size, "ties": "huggingface"})
    if _train_natively(sample, few, kernel=True).to_str() == _train(sample, few).to_str():
        return True
    log.warning("native training differs from `tokenizers` on a sample; the latter does it all")
    return False


def _train_natively(
    texts: "Iterable[Array]", settings: TokenizerSettings, kernel: bool
) -> "Tokenizer":
    """Words by a kernel, which knows one pattern, or as `tokenizers` splits them; merges ours."""
    from tokenizers.pre_tokenizers import Sequence

    from tasks.tokens.vocabulary import bpe

    specials = settings.all_special_tokens
    splits = Sequence(steps(settings.pattern, specials))
    words = bpe.count_words(texts) if kernel else bpe.count_words_by(splits, _documents(texts))
    tokenizer = _empty(settings)
    lexical = settings.ties == "lexical"
    tokenizer.model = bpe.train(*words, settings.vocab_size, specials, lexical=lexical)
    tokenizer.add_special_tokens(specials)
    return tokenizer


def _train(texts: "Iterable[Array]", settings: TokenizerSettings) -> "Tokenizer":
    tokenizer = _empty(settings)
    with library_threads():
        tokenizer.train_from_iterator(_documents(texts), _trainer(settings))
    return tokenizer


def _documents(texts: "Iterable[Array]") -> Iterator[str]:
    return (document for batch in texts for document in batch.to_pylist())


def _empty(settings: TokenizerSettings) -> "Tokenizer":
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    parts = [*steps(settings.pattern, settings.all_special_tokens), byte_level]
    model: Any
    kind = settings.kind
    if kind == "wordpiece":
        # Without a prefix for inner pieces every byte is a piece, so nothing is ever unknown.
        model = models.WordPiece(
            unk_token=SPECIALS[0],
            continuing_subword_prefix="",
            max_input_chars_per_word=4 * WORDPIECE_WORD,
        )
        parts.insert(-1, pre_tokenizers.FixedLength(WORDPIECE_WORD))
    else:
        model = models.BPE() if kind == "bpe" else models.Unigram()
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(parts)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _trainer(settings: TokenizerSettings) -> Any:
    from tokenizers import trainers

    kinds = {
        "bpe": trainers.BpeTrainer,
        "wordpiece": trainers.WordPieceTrainer,
        "unigram": trainers.UnigramTrainer,
    }
    prefix: Any = {"continuing_subword_prefix": ""} if settings.kind == "wordpiece" else {}
    return kinds[settings.kind](
        vocab_size=settings.vocab_size,
        special_tokens=settings.all_special_tokens,
        initial_alphabet=byte_characters(),
        show_progress=False,
        **prefix,
    )


def _texts(text: Artifact) -> "Iterator[Array]":
    from tasks.data.text import read_batches

    return (batch.column("text") for batch in read_batches(text, ["text"]))


def _size(texts: "Array") -> int:
    import pyarrow.compute as pc

    return pc.sum(pc.binary_length(texts)).as_py() or 0


def _spread(text: Artifact, share: float) -> "Iterator[Array]":
    """Documents from all over the text that make up about this share of its bytes; at least one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    seen = taken = 0
    for texts in _texts(text):
        chosen = []
        for size in pc.binary_length(texts).to_pylist():
            chosen.append(size > 0 and taken <= share * seen)
            taken, seen = taken + size * chosen[-1], seen + size
        yield texts.filter(pa.array(chosen, pa.bool_()))


def _reported(batches: "Iterator[Array]", total: int, draft: Draft) -> "Iterator[Array]":
    done = 0
    for texts in batches:
        yield texts
        done += _size(texts)
        draft.progress(min(done, total), total, "bytes")


def _measure(encoder: Encoder, batches: "Iterator[Array]") -> dict[str, float]:
    size = tokens = words = 0
    used: set[int] = set()
    for document in (document for texts in batches for document in texts.to_pylist()):
        ids = encoder.encode(document)
        used.update(ids)
        size, tokens = size + len(document.encode()), tokens + len(ids)
        words += len(document.split())
    return {
        "bytes_per_token": size / tokens,
        "fertility": tokens / max(words, 1),
        "vocabulary_use": len(used) / (encoder.vocab_size - len(encoder.special_ids)),
    }
