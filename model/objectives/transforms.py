"""A sample of text to a row of a batch, by the name of the objective.

    setup = Setup("masked", "encoder", context=256, vocabulary=vocabulary, rates=Rates())
    row = setup.row(tokens_N, random, other_N)         # pure: same arguments, same row

Letters: N tokens of a sample, `setup.window` of them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from model.objectives import lengths, masking, noising, pairs, permuted, rows, spans
from model.objectives.lengths import UL2, Denoiser, Rates
from model.objectives.rows import Row, Vocabulary


@dataclass(frozen=True)
class Setup:
    """An objective, the family that learns it, its rates, the tokens it works with."""

    objective: str
    family: str
    context: int
    vocabulary: Vocabulary
    rates: Rates

    @cached_property
    def window(self) -> int:
        """Tokens of text in a sample."""
        return lengths.window(self.objective, self.family, self.context, self.rates)

    @cached_property
    def target_length(self) -> int:
        """Tokens of a row's decoder side, for those that have one."""
        if self.family != "encoder_decoder":
            return self.context
        return lengths.target_length(self.objective, self.context, self.rates)

    @property
    def needs_other(self) -> bool:
        """Whether a row is made of two samples."""
        return self.objective in ("next_sentence", "sentence_comparison")

    def row(self, tokens_N: np.ndarray, random: np.random.Generator, other_N: np.ndarray) -> Row:
        """The row of one sample, of any length up to the context.

        `other_N` is a sample of another text, for the objectives that compare two.
        """
        return TRANSFORMS[self.objective](self, tokens_N.astype(np.int64), random, other_N)

    def batch(self, made: list[Row]) -> Row:
        """Rows as a batch, all padded to the same lengths."""
        return rows.stack(made, self.context, self.target_length, self.vocabulary["pad"])


Transform = Callable[[Setup, np.ndarray, np.random.Generator, np.ndarray], Row]


def bidirectional(
    setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, _: object
) -> Row:
    """Each token of a document is the target of the one before it; the other way round it is too
    (`model.objectives.two_way`).
    """
    row = rows.documents_row(tokens_N, setup.vocabulary, setup.context)
    follows = np.append(row["documents"][1:] == row["documents"][:-1], False)
    targets = np.where(follows, np.roll(row["inputs"], -1), rows.IGNORED)
    return row | {"targets": targets}


def masked(setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, _: object) -> Row:
    """BERT's masked LM; special tokens are never hidden."""
    row = rows.documents_row(tokens_N, setup.vocabulary, setup.context)
    return _masked(setup, row, random)


def _masked(setup: Setup, row: Row, random: np.random.Generator) -> Row:
    vocabulary, inputs = setup.vocabulary, row["inputs"]
    eligible = vocabulary.ordinary_V[inputs]
    positions = masking.choose_positions(eligible, setup.rates.rate, random)
    replacements = masking.choose_replacements(
        inputs[positions], vocabulary["mask"], vocabulary.ordinary_N, random
    )
    hidden, targets = masking.mask_tokens(inputs, positions, replacements)
    return row | {"inputs": hidden, "targets": targets}


def replaced_token_detection(
    setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, _: object
) -> Row:
    """ELECTRA: masks for a generator to fill, always the mask token, and its random numbers."""
    row = rows.documents_row(tokens_N, setup.vocabulary, setup.context)
    eligible = setup.vocabulary.ordinary_V[row["inputs"]]
    positions = masking.choose_positions(eligible, setup.rates.rate, random)
    hidden, targets = masking.mask_tokens(row["inputs"], positions, setup.vocabulary["mask"])
    return row | {"inputs": hidden, "targets": targets, "draws": random.random(len(hidden))}


def next_sentence(
    setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, other_N: np.ndarray
) -> Row:
    """Does the second text follow the first? Masked, as in BERT."""
    first, second, label = _pair(setup, tokens_N, random, other_N)
    return _joined(setup, first, second, label, random)


def sentence_order(
    setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, _: object
) -> Row:
    """Are two texts that follow each other in order? Masked, as in ALBERT."""
    vocabulary = setup.vocabulary
    text = pairs.one_document(tokens_N, vocabulary["end"])
    cut = pairs.choose_cut(text, vocabulary.ends_sentence_V, random)
    return _joined(setup, *pairs.choose_order(text[:cut], text[cut:], random), random)


def sentence_comparison(
    setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, other_N: np.ndarray
) -> Row:
    """Are two texts, which do not see each other, of one piece?"""
    return pairs.separate_row(*_pair(setup, tokens_N, random, other_N), setup.vocabulary["class"])


def _pair(
    setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, other_N: np.ndarray
) -> tuple[np.ndarray, np.ndarray, int]:
    vocabulary = setup.vocabulary
    text = pairs.one_document(tokens_N, vocabulary["end"])
    other = pairs.one_document(other_N.astype(np.int64), vocabulary["end"])
    cut = pairs.choose_cut(text, vocabulary.ends_sentence_V, random)
    # The other text begins like a second half does, behind a sentence, and is as long as one.
    begin = pairs.choose_cut(other, vocabulary.ends_sentence_V, random)
    room = min(setup.window - cut, len(text) - cut)
    second, label = pairs.choose_second(text[cut:], other[begin:], room, random)
    return text[:cut], second, label


def _joined(
    setup: Setup, first: np.ndarray, second: np.ndarray, label: int, random: np.random.Generator
) -> Row:
    vocabulary = setup.vocabulary
    row = pairs.joined_row(first, second, label, vocabulary["class"], vocabulary["separator"])
    return _masked(setup, row, random)


def permuted_lm(setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, _: object) -> Row:
    """XLNet: the last tokens of a random order, each from those earlier in it."""
    predicted = lengths.share(len(tokens_N), setup.rates.rate)
    order = random.permutation(len(tokens_N))
    vocabulary = setup.vocabulary
    marks = vocabulary["class"], vocabulary["mask"]
    if setup.family == "decoder":
        return permuted.permuted_row(tokens_N, order, predicted, *marks)
    cut = pairs.choose_cut(tokens_N, vocabulary.ends_sentence_V, random)
    return permuted.two_stream_row(tokens_N, order, predicted, cut, *marks)


def prefix(setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, _: object) -> Row:
    """Go on with a text from a random place."""
    cut = int(random.integers(1, len(tokens_N)))
    return _told(setup, tokens_N[:cut], tokens_N[cut:], head=[setup.vocabulary["class"]])


def mass(setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, _: object) -> Row:
    """Write the span that is masked."""
    start, length = masking.choose_span(len(tokens_N), setup.rates.rate, random)
    vocabulary = setup.vocabulary
    source, decoder, target = masking.mask_span(tokens_N, start, length, vocabulary["mask"])
    row = rows.text_row([vocabulary["class"]], source)
    return row | {"decoder_inputs": decoder, "targets": target}


def span_corruption(
    setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, _: object
) -> Row:
    """T5: write the spans that sentinels stand for."""
    return _told(setup, *_corrupted(setup, tokens_N, setup.rates, random))


def mixture_of_denoisers(
    setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, _: object
) -> Row:
    """UL2: one of its tasks, all equally likely, announced by its mode token."""
    return denoise(setup, UL2[random.integers(len(UL2))], tokens_N, random)


def denoise(
    setup: Setup, denoiser: Denoiser, tokens_N: np.ndarray, random: np.random.Generator
) -> Row:
    """One task of a mixture, on as much of the text as it has room for."""
    tokens_N = tokens_N[: lengths.denoiser_window(denoiser, setup.family, setup.context)]
    if denoiser.span is None:
        told = lengths.share(len(tokens_N), denoiser.rate, most=len(tokens_N) - 1)
        source, target = tokens_N[:-told], tokens_N[-told:]
    else:
        rates = Rates(rate=denoiser.rate, span=denoiser.span)
        source, target = _corrupted(setup, tokens_N, rates, random)
    return _told(setup, source, target, head=[setup.vocabulary[denoiser.mode]])


def _corrupted(
    setup: Setup, tokens_N: np.ndarray, rates: Rates, random: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    starts, spans_ = spans.choose_spans(len(tokens_N), rates, random)
    sentinels = setup.vocabulary.sentinels(len(starts) + 1)
    return spans.corrupt_spans(tokens_N, starts, spans_, sentinels, setup.vocabulary["end"])


def _told(
    setup: Setup, source: np.ndarray, target: np.ndarray, head: list[int] | None = None
) -> Row:
    """Source and target as the family reads them."""
    if setup.family == "decoder":
        return rows.prefix_row(source, target, head or [])
    return rows.sequence_to_sequence_row(source, target, setup.vocabulary["pad"], head or [])


Noise = Callable[[Setup, np.ndarray, np.random.Generator], np.ndarray]


def denoising(noise: Noise) -> Transform:
    """Write the text, given a noised one behind a class token; both end with an end token."""

    def transform(
        setup: Setup, tokens_N: np.ndarray, random: np.random.Generator, _: object
    ) -> Row:
        vocabulary = setup.vocabulary
        source = noise(setup, tokens_N, random)
        target = np.append(tokens_N, vocabulary["end"])
        return _told(setup, source, target, head=[vocabulary["class"]])

    return transform


def token_masking(setup: Setup, tokens_N: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Single tokens masked."""
    positions = _some(setup, tokens_N, random)
    return masking.mask_tokens(tokens_N, positions, setup.vocabulary["mask"])[0]


def token_deletion(setup: Setup, tokens_N: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Single tokens left out."""
    return noising.delete_tokens(tokens_N, _some(setup, tokens_N, random))


def text_infilling(setup: Setup, tokens_N: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Spans, each masked by one token."""
    starts, lengths_S = noising.choose_infilling(len(tokens_N), setup.rates, random)
    return noising.infill(tokens_N, starts, lengths_S, setup.vocabulary["mask"])


def sentence_permutation(
    setup: Setup, tokens_N: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """Sentences shuffled."""
    parts = noising.sentences(tokens_N, setup.vocabulary.ends_sentence_V)
    return noising.reorder(parts, random.permutation(len(parts)))


def document_rotation(
    setup: Setup, tokens_N: np.ndarray, random: np.random.Generator
) -> np.ndarray:
    """The text from a random token on, then its beginning."""
    return noising.rotate(tokens_N, int(random.integers(len(tokens_N))))


def token_reordering(setup: Setup, tokens_N: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """Tokens shuffled."""
    return tokens_N[random.permutation(len(tokens_N))]


def _some(setup: Setup, tokens_N: np.ndarray, random: np.random.Generator) -> np.ndarray:
    eligible = setup.vocabulary.ordinary_V[tokens_N]
    return masking.choose_positions(eligible, setup.rates.rate, random)


TRANSFORMS: dict[str, Transform] = {
    "bidirectional": bidirectional,
    "prefix": prefix,
    "permuted": permuted_lm,
    "masked": masked,
    "next_sentence": next_sentence,
    "sentence_order": sentence_order,
    "sentence_comparison": sentence_comparison,
    "replaced_token_detection": replaced_token_detection,
    "mass": mass,
    "token_masking": denoising(token_masking),
    "token_deletion": denoising(token_deletion),
    "text_infilling": denoising(text_infilling),
    "sentence_permutation": denoising(sentence_permutation),
    "document_rotation": denoising(document_rotation),
    "token_reordering": denoising(token_reordering),
    "span_corruption": span_corruption,
    "mixture_of_denoisers": mixture_of_denoisers,
}
