"""The objectives by name: which families learn them, and what they put into a text.

Plain Python, so that a recipe is checked without PyTorch.

| objective | input | target |
|---|---|---|
| causal | the text | each token from those before it |
| bidirectional | the text | each token from those before it, and from those behind it (ELMo) |
| prefix | its beginning, seen both ways | the rest |
| permuted | the text | tokens in a sampled order, each from those earlier in it (XLNet) |
| masked | 15 % hidden: 80 % mask, 10 % random, 10 % kept | those tokens (BERT, RoBERTa) |
| next_sentence | masked, two texts | those tokens; does the second follow the first (BERT) |
| sentence_order | masked, two texts | those tokens; are the two in order (ALBERT) |
| sentence_comparison | two texts, apart | are they of one piece, by their class vectors |
| replaced_token_detection | some tokens replaced by a small generator | which ones (ELECTRA) |
| mass | one span masked | the span, by a decoder that sees nothing else (MASS) |
| token_masking, token_deletion, text_infilling, sentence_permutation, document_rotation | the text
  so noised (BART) | the text |
| token_reordering | all tokens shuffled | the text |
| span_corruption | spans replaced by sentinels | the spans, each behind its sentinel (T5) |
| mixture_of_denoisers | short, long and dense spans, prefixes, each announced (UL2) | the spans |
"""

from dataclasses import dataclass
from typing import Literal

from model.config import Family
from model.objectives.lengths import Rates, sentinels

ObjectiveName = Literal[
    "causal",
    "bidirectional",
    "prefix",
    "permuted",
    "masked",
    "next_sentence",
    "sentence_order",
    "sentence_comparison",
    "replaced_token_detection",
    "mass",
    "token_masking",
    "token_deletion",
    "text_infilling",
    "sentence_permutation",
    "document_rotation",
    "token_reordering",
    "span_corruption",
    "mixture_of_denoisers",
]


@dataclass(frozen=True, kw_only=True)
class About:
    """One objective: who learns it, its special tokens beside sentinels, what it hides."""

    families: tuple[Family, ...]
    tokens: tuple[str, ...] = ()
    rate: float | None = None
    """Share of the tokens it hides unless told otherwise; None where there is no such choice."""
    spans: bool = False
    """Whether it hides spans, whose mean length is then a choice."""


def _denoiser(*tokens: str, rate: float | None = None, spans: bool = False) -> About:
    return About(families=("encoder_decoder",), tokens=("class", *tokens), rate=rate, spans=spans)


OBJECTIVES: dict[str, About] = {
    "causal": About(families=("decoder",)),
    "bidirectional": About(families=("encoder",), tokens=("class",)),
    "prefix": About(families=("decoder", "encoder_decoder"), tokens=("class",)),
    "permuted": About(families=("decoder", "encoder"), tokens=("class", "mask"), rate=1 / 6),
    "masked": About(families=("encoder",), tokens=("class", "mask"), rate=0.15),
    "next_sentence": About(families=("encoder",), tokens=("class", "separator", "mask"), rate=0.15),
    "sentence_order": About(
        families=("encoder",), tokens=("class", "separator", "mask"), rate=0.15
    ),
    "sentence_comparison": About(families=("encoder",), tokens=("class",)),
    "replaced_token_detection": About(families=("encoder",), tokens=("class", "mask"), rate=0.15),
    "mass": _denoiser("mask", rate=0.5),
    "token_masking": _denoiser("mask", rate=0.15),
    "token_deletion": _denoiser(rate=0.15),
    "text_infilling": _denoiser("mask", rate=0.3, spans=True),
    "sentence_permutation": _denoiser(),
    "document_rotation": _denoiser(),
    "token_reordering": _denoiser(),
    "span_corruption": About(families=("decoder", "encoder_decoder"), rate=0.15, spans=True),
    "mixture_of_denoisers": About(
        families=("decoder", "encoder_decoder"),
        tokens=("denoise_r", "denoise_x", "denoise_s"),
    ),
}
DEFAULT: dict[Family, ObjectiveName] = {
    "decoder": "causal",
    "encoder": "masked",
    "encoder_decoder": "span_corruption",
}


def learned_by(family: Family) -> list[str]:
    """The objectives a family can learn."""
    return [name for name, about in OBJECTIVES.items() if family in about.families]


def special_tokens(objective: str, family: Family, context: int, rates: Rates) -> tuple[str, ...]:
    """The special tokens an objective needs beside the end of a document and padding, in order."""
    count = sentinels(objective, family, context, rates)
    return (*OBJECTIVES[objective].tokens, *(f"sentinel_{i}" for i in range(count)))
