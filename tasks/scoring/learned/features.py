"""Cheap measures of a prediction beside its reference: what the learned metric looks at.

Words and characters matched by precision and recall, order, length, repetition, and how common the
prediction's characters are in text known to be good. None needs a network.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tasks.scoring.overlap.meteor import meteor_tokens, tokens
from tasks.scoring.overlap.rouge import rouge

ORDERS = (1, 2, 3, 4, 5, 6)
LM_ORDER = 4
ROUGES = ("rouge1", "rouge2", "rouge3", "rougeL", "rougeSU4")
NAMES = (
    *(f"characters{n}_{part}" for n in ORDERS for part in ("precision", "recall")),
    "chrf",
    *(f"{name}_{part}" for name in ROUGES for part in ("precision", "recall", "fmeasure")),
    "meteor",
    "length_ratio",
    "too_short",
    "too_long",
    "repeated_words",
    "first_word",
    "last_word",
    "digits",
    "capitals",
    "strange_letters",
    "nats_per_character",
)


@dataclass(frozen=True)
class CharacterModel:
    """How common runs of characters are in good text: add-one smoothed, of one order."""

    counts: Counter[str]
    contexts: Counter[str]

    @classmethod
    def of(cls, texts: Sequence[str]) -> "CharacterModel":
        """Counted in `texts`."""
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(_runs(_lead(text), LM_ORDER))
        return cls.from_counts(counts)

    @classmethod
    def from_counts(cls, counts: Mapping[str, int]) -> "CharacterModel":
        """From the counts of runs of `LM_ORDER` characters."""
        contexts: Counter[str] = Counter()
        for run, count in counts.items():
            contexts[run[:-1]] += count
        return cls(Counter(counts), contexts)

    def nats(self, text: str) -> float:
        """Mean -log p of its characters."""
        runs = _runs(_lead(text), LM_ORDER)
        total = sum(
            math.log((self.contexts[run[:-1]] + 100) / (self.counts[run] + 1)) for run in runs
        )
        return total / max(1, len(runs))


def features(
    predictions: Sequence[str], references: Sequence[str], good: CharacterModel
) -> np.ndarray:
    """Float64 `[rows, NAMES]`."""
    rows = rouge(predictions, [[text] for text in references], ROUGES, stem=True)
    overlap = [[row[name][part] for name in ROUGES for part in row[name]] for row in rows]
    own = [_own(*pair, good) for pair in zip(predictions, references, strict=True)]
    pairs = zip(own, overlap, strict=True)
    return np.array([first + middle + last for (first, last), middle in pairs])


def _own(prediction: str, reference: str, good: CharacterModel) -> tuple[list[float], list[float]]:
    matched = _characters(prediction, reference)
    said, meant = tokens(prediction), tokens(reference)
    ratio = math.log((len(said) + 1) / (len(meant) + 1))
    last = [
        meteor_tokens(said, meant),
        ratio,
        max(0.0, -ratio),
        max(0.0, ratio),
        1 - len(set(said)) / max(1, len(said)),
        float(said[:1] == meant[:1]),
        float(said[-2:-1] == meant[-2:-1]),
        _alike([w for w in said if w.isdigit()], [w for w in meant if w.isdigit()]),
        _alike(_capitals(prediction), _capitals(reference)),
        sum(ord(c) > 0x24F for c in prediction) / max(1, len(prediction)),
        good.nats(prediction),
    ]
    return matched, last


def _characters(prediction: str, reference: str) -> list[float]:
    """Precision and recall of the character n-grams of each order, white space left out; chrF."""
    a, b = "".join(prediction.split()), "".join(reference.split())
    shares: list[float] = []
    for n in ORDERS:
        left, right = Counter(_runs(a, n)), Counter(_runs(b, n))
        both = (left & right).total()
        shares += [both / max(1, left.total()), both / max(1, right.total())]
    precision, recall = sum(shares[::2]) / len(ORDERS), sum(shares[1::2]) / len(ORDERS)
    weighted = 4 * precision + recall
    return [*shares, 5 * precision * recall / weighted if weighted else 0.0]


def _capitals(text: str) -> list[str]:
    return [word for word in text.split()[1:] if word[:1].isupper()]


def _alike(said: Sequence[str], meant: Sequence[str]) -> float:
    """The F-measure of two bags of words; 1 where both are empty."""
    total = len(said) + len(meant)
    return 2 * (Counter(said) & Counter(meant)).total() / total if total else 1.0


def _lead(text: str) -> str:
    return " " * (LM_ORDER - 1) + text


def _runs(text: str, n: int) -> list[str]:
    return [text[i : i + n] for i in range(len(text) - n + 1)]
