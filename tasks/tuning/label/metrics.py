"""Figures of tags: accuracy of words, and F1 of spans by the rules of seqeval (and `conlleval`).

A span is right if its type and both ends are. Tags that follow no scheme still give spans: an I-
behind nothing, or behind another type, begins one.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from tasks.evaluation.statistics.intervals import statistic_interval

Tags = Sequence[str]
Span = tuple[str, int, int]


def spans(tags: Tags) -> list[Span]:
    """Type, first and last word of every span, as `seqeval.metrics.sequence_labeling.get_entities`
    finds them.
    """
    found: list[Span] = []
    before, type_before, start = "O", "", 0
    for place, tag in enumerate((*tags, "O")):
        kind, type_ = tag[:1], tag[1:].partition("-")[2] or tag[1:].lstrip("-") or "_"
        other = type_before != type_
        if (
            before in ("E", "S")
            or (before in ("B", "I") and kind in ("B", "S", "O"))
            or (before != "O" and other)
        ):
            found.append((type_before, start, place - 1))
        begins = kind in ("B", "S") or (before in ("E", "S", "O") and kind in ("E", "I"))
        if begins or (kind != "O" and other):
            start = place
        before, type_before = kind, type_
    return found


def span_figures(gold: Sequence[Tags], predicted: Sequence[Tags]) -> dict[str, float]:
    """Precision, recall and F1 of all spans (micro); 0 where there are none."""
    right, wanted, told = _span_counts(gold, predicted).sum(0).tolist()
    return {
        "precision": right / told if told else 0.0,
        "recall": right / wanted if wanted else 0.0,
        "f1": 2 * right / (wanted + told) if wanted or told else 0.0,
    }


def intervals(gold: Sequence[Tags], predicted: Sequence[Tags]) -> dict[str, tuple[float, float]]:
    """95 % of the accuracy of words and of F1, resampled by sentences, whose words are not
    independent.
    """
    right = [sum(map(str.__eq__, *pair)) for pair in zip(gold, predicted, strict=True)]
    words = np.array([right, [len(tags) for tags in gold]], float).T
    found = _span_counts(gold, predicted).astype(float)
    both = np.stack([2 * found[:, 0], found[:, 1] + found[:, 2]], 1)
    return {"accuracy": statistic_interval(_share, words), "f1": statistic_interval(_share, both)}


def _span_counts(gold: Sequence[Tags], predicted: Sequence[Tags]) -> np.ndarray:
    """Spans that are right, that are wanted and that are told, of each sentence `[N, 3]`."""
    sides = ((set(spans(g)), set(spans(p))) for g, p in zip(gold, predicted, strict=True))
    return np.array([[len(w & t), len(w), len(t)] for w, t in sides], int).reshape(-1, 3)


def _share(counts: np.ndarray) -> float:
    """The sum of the first column over that of the second; 0 where that is nothing."""
    part, whole = counts.sum(0)
    return part / whole if whole else 0.0


def word_accuracy(gold: Sequence[Tags], predicted: Sequence[Tags]) -> float:
    """Share of words whose tag is right."""
    pairs = [
        g == p
        for ours, theirs in zip(gold, predicted, strict=True)
        for g, p in zip(ours, theirs, strict=True)
    ]
    return sum(pairs) / len(pairs)


def most_frequent(words: Sequence[Tags], tags: Sequence[Tags]) -> tuple[Mapping[str, str], str]:
    """The tag that each word has most often, and that of most words."""
    sentences = zip(words, tags, strict=True)
    pairs = Counter(pair for one in sentences for pair in zip(*one, strict=True))
    found: dict[str, str] = {}
    for (word, tag), _ in sorted(pairs.items(), key=lambda item: (-item[1], item[0])):
        found.setdefault(word, tag)
    overall = Counter(tag for sentence in tags for tag in sentence)
    return found, min(overall, key=lambda tag: (-overall[tag], tag))
