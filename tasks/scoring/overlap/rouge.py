"""ROUGE as ROUGE-1.5.5 defines it: N, L, Lsum (union LCS), W, S and SU.

Source: Lin, ROUGE: a package for automatic evaluation of summaries, 2004. Tokens are lower-case
runs of letters and digits of any script, coded as integers; with stemming, words of over three
letters are replaced by their stems (without ROUGE-1.5.5's list of irregular forms, which is
WordNet's). A text's sentences are its lines; they matter to `rougeLsum` alone.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tasks.scoring.overlap.stemmer import SIGNATURE as STEMMER
from tasks.scoring.overlap.stemmer import stems

WORD = re.compile(r"[^\W_]+")
W_POWER = 1.2
MultiReference = Literal["max", "pool"]
Text = list[list[int]]


@dataclass(frozen=True)
class Hits:
    """What matched, and how much there was to match on either side."""

    matched: float
    predicted: float
    referred: float

    def scores(self) -> dict[str, float]:
        """Precision, recall and their harmonic mean, 0-1; 0 where nothing could match."""
        precision = self.matched / self.predicted if self.predicted else 0.0
        recall = self.matched / self.referred if self.referred else 0.0
        both = precision + recall
        fmeasure = 2 * precision * recall / both if both else 0.0
        return {"precision": precision, "recall": recall, "fmeasure": fmeasure}


def rouge(
    predictions: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Sequence[str],
    stem: bool = False,
    multi_reference: MultiReference = "max",
) -> list[dict[str, dict[str, float]]]:
    """Per row and metric `{precision, recall, fmeasure}`, 0-1.

    With several references, `max` takes the one with the highest F-measure; `pool` adds up the
    counts over all references, as ROUGE-1.5.5 does by default (`-f A`).
    """
    texts = [*predictions, *(text for row in references for text in row)]
    encode = _encoder(texts, stem)
    return [
        _row(encode(prediction), [encode(text) for text in row], metrics, multi_reference)
        for prediction, row in zip(predictions, references, strict=True)
    ]


def signature(metric: str, stem: bool, multi_reference: MultiReference = "max") -> str:
    """All that a ROUGE value depends on besides the texts."""
    details = {"rougeW": f"|weight:{W_POWER}", "rougeS": "|skip:unlimited", "rougeSU4": "|skip:4"}
    stemming = STEMMER if stem else "no"
    return f"{metric}|stem:{stemming}|refs:{multi_reference}{details.get(metric, '')}|headrace:1"


def _encoder(texts: Sequence[str], stem: bool) -> Callable[[str], Text]:
    words = {word for text in texts for word in WORD.findall(text.lower())}
    forms = stems(words) if stem else {}
    codes: dict[str, int] = {}
    word_code = {
        word: codes.setdefault(forms.get(word, word) if len(word) > 3 else word, len(codes))
        for word in sorted(words)
    }

    def encode(text: str) -> Text:
        return [[word_code[w] for w in WORD.findall(line)] for line in text.lower().split("\n")]

    return encode


def _row(
    prediction: Text, references: list[Text], metrics: Sequence[str], multi: MultiReference
) -> dict[str, dict[str, float]]:
    row = {}
    for metric in metrics:
        hits = [METRICS[metric](prediction, reference) for reference in references]
        row[metric] = _pool(metric, hits) if multi == "pool" else _best(metric, hits)
    return row


def _best(metric: str, hits: list[Hits]) -> dict[str, float]:
    return max((_scores(metric, one) for one in hits), key=lambda s: s["fmeasure"])


def _pool(metric: str, hits: list[Hits]) -> dict[str, float]:
    total = Hits(
        sum(one.matched for one in hits),
        sum(one.predicted for one in hits),
        sum(one.referred for one in hits),
    )
    return _scores(metric, total)


def _scores(metric: str, hits: Hits) -> dict[str, float]:
    if metric != "rougeW":
        return hits.scores()
    # W's weights are undone after the division: equation 14 and 15 of the paper.
    root = 1 / W_POWER
    share = hits.scores()
    return Hits(
        (share["precision"] * share["recall"]) ** root,
        share["recall"] ** root,
        share["precision"] ** root,
    ).scores()


def _flat(text: Text) -> list[int]:
    return [token for sentence in text for token in sentence]


def _ngrams(prediction: Text, reference: Text, n: int) -> Hits:
    def grams(text: Text) -> Counter[tuple[int, ...]]:
        tokens = _flat(text)
        return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))

    return _overlap(grams(prediction), grams(reference))


def _overlap(predicted: Counter, referred: Counter) -> Hits:
    return Hits((predicted & referred).total(), predicted.total(), referred.total())


def _skip_bigrams(
    prediction: Text, reference: Text, skip: int | None = None, unigrams: bool = False
) -> Hits:
    def pairs(text: Text) -> Counter[tuple[int, ...]]:
        tokens = _flat(text)
        reach = len(tokens) if skip is None else skip + 1
        found: Counter[tuple[int, ...]] = Counter()
        for distance in range(1, min(reach, len(tokens) - 1) + 1):
            found.update(zip(tokens, tokens[distance:], strict=False))
        if unigrams:
            found.update((token,) for token in tokens)
        return found

    return _overlap(pairs(prediction), pairs(reference))


def _longest(prediction: Text, reference: Text) -> Hits:
    a, b = _flat(prediction), _flat(reference)
    return Hits(_lcs_length(a, b), len(a), len(b))


def _lcs_length(a: list[int], b: list[int]) -> int:
    """Length of the longest common subsequence, a machine word of `a` at a time.

    Source: Hyyrö, Bit-parallel LCS-length computation revisited, 2004.
    """
    places: dict[int, int] = {}
    for i, token in enumerate(a):
        places[token] = places.get(token, 0) | 1 << i
    full = (1 << len(a)) - 1
    free = full
    for token in b:
        matched = free & places.get(token, 0)
        free = ((free + matched) | (free - matched)) & full
    return len(a) - free.bit_count()


def _longest_union(prediction: Text, reference: Text) -> Hits:
    """Summary-level LCS (section 3.2): per reference sentence, the union of its matches with every
    predicted sentence; no token is matched more often than it occurs.
    """
    predicted, referred = Counter(_flat(prediction)), Counter(_flat(reference))
    free_predicted, free_referred, matched = predicted.copy(), referred.copy(), 0
    for sentence in reference:
        union = set().union(*(_lcs_places(sentence, other) for other in prediction))
        for place in union:
            token = sentence[place]
            if free_predicted[token] > 0 and free_referred[token] > 0:
                free_predicted[token] -= 1
                free_referred[token] -= 1
                matched += 1
    return Hits(matched, predicted.total(), referred.total())


def _lcs_places(a: list[int], b: list[int]) -> set[int]:
    """The places in `a` of one longest common subsequence with `b`."""
    length = [[0] * (len(b) + 1)]
    for token in a:
        above, row = length[-1], [0]
        for j, other in enumerate(b):
            row.append(above[j] + 1 if token == other else max(above[j + 1], row[j]))
        length.append(row)
    places, i, j = set(), len(a), len(b)
    while i and j:
        if a[i - 1] == b[j - 1]:
            i, j = i - 1, j - 1
            places.add(i)
        elif length[i][j - 1] > length[i - 1][j]:
            j -= 1
        else:
            i -= 1
    return places


def _weighted(prediction: Text, reference: Text) -> Hits:
    """LCS that prefers consecutive matches: a run of k counts k^1.2 (section 3.3)."""
    a, b = _flat(prediction), _flat(reference)
    gain = [(k + 1) ** W_POWER - k**W_POWER for k in range(min(len(a), len(b)) + 1)]
    best, runs = [0.0] * (len(b) + 1), [0] * (len(b) + 1)
    for token in a:
        row, row_runs = [0.0], [0]
        for j, other in enumerate(b):
            if token == other:
                row.append(best[j] + gain[runs[j]])
                row_runs.append(runs[j] + 1)
            else:
                row.append(max(best[j + 1], row[j]))
                row_runs.append(0)
        best, runs = row, row_runs
    return Hits(best[-1], len(a) ** W_POWER, len(b) ** W_POWER)


METRICS: dict[str, Callable[[Text, Text], Hits]] = {
    "rouge1": partial(_ngrams, n=1),
    "rouge2": partial(_ngrams, n=2),
    "rougeL": _longest,
    "rougeLsum": _longest_union,
    "rougeW": _weighted,
    "rougeS": _skip_bigrams,
    "rougeSU4": partial(_skip_bigrams, skip=4, unigrams=True),
}
