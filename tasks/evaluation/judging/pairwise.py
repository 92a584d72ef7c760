"""Which of two answers is better: asked in both orders, and a ranking from all comparisons.

A judge that prefers a place rather than an answer is seen at once: the two orders disagree. The
score is the mean over both; `flips` are the rows where the likelier answer turns with the order.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tasks.evaluation.judging.criteria import Criterion
from tasks.evaluation.judging.prometheus import NO_OTHER
from tasks.evaluation.judging.questions import Distribution, Judge, Question, Unscored, Verdict
from tasks.evaluation.judging.rows import Row, Score
from tasks.evaluation.statistics.intervals import mean_interval

CHOICES = ("a", "b", "tie")
ITERATIONS = 500


def pairwise(judge: Judge, criterion: Criterion, rows: Sequence[Row]) -> list[Score]:
    """Per row how probably the prediction is better than `other`, a tie counting half, 0-1.

    `parts` are the values in either order. A row without `other` is unscored as `no_other`.
    """
    pairs = [row for row in rows if row.other is not None]
    swapped = [replace(row, prediction=row.other or "", other=row.prediction) for row in pairs]
    verdicts = judge.distributions([_question(row, criterion) for row in [*pairs, *swapped]])
    both = zip(verdicts[: len(pairs)], verdicts[len(pairs) :], strict=True)
    found = {row.id: pair for row, pair in zip(pairs, both, strict=True)}
    lacking: tuple[Verdict, Verdict] = (NO_OTHER, NO_OTHER)
    return [_score(row, criterion, *found.get(row.id, lacking)) for row in rows]


def comparison(rows: Sequence[Row], scores: Sequence[Score]) -> dict[str, Any]:
    """What the comparisons come to: `flips`, the share of scored rows whose better answer turns
    with the order; `first`, how often the first place won, with its 95 % `first_interval` (a fair
    judge's holds .5); `ranking` where rows name systems.
    """
    both = [s.parts for s in scores if s.parts]
    forth_back = [(f, b) for f, b in both if f is not None and b is not None]
    flips = sum((f - 0.5) * (b - 0.5) < 0 for f, b in forth_back)
    result: dict[str, Any] = {"pairs": len(forth_back)}
    if forth_back:
        result["flips"] = flips / len(forth_back)
        first = [(f + 1 - b) / 2 for f, b in forth_back]
        result["first"] = sum(first) / len(first)
        result["first_interval"] = list(mean_interval(first))
    games = [
        (row.system, row.other_system, score.score)
        for row, score in zip(rows, scores, strict=True)
        if row.system and row.other_system and score.score is not None
    ]
    return result | ({"ranking": bradley_terry(games)} if games else {})


def bradley_terry(games: Sequence[tuple[str, str, float]]) -> dict[str, float]:
    """Strengths of systems, in nats around 0, from games (first, second, share won by the first).

    The probability that i beats j is 1 / (1 + exp(s_j - s_i)); fitted by the MM algorithm of
    Hunter, MM algorithms for generalized Bradley-Terry models, 2004. Every system has half a tie
    with an imagined average one, so that one that never loses has a finite strength.
    """
    names = sorted({name for first, second, _ in games for name in (first, second)})
    index = {name: i for i, name in enumerate(names)}
    played, won = np.zeros((len(names), len(names))), np.full(len(names), 0.25)
    for first, second, share in games:
        i, j = index[first], index[second]
        played[i, j] += 1
        played[j, i] += 1
        won[i] += share
        won[j] += 1 - share
    strength = np.ones(len(names))
    for _ in range(ITERATIONS):
        against = played / (strength[:, None] + strength[None, :])
        strength = won / (against.sum(1) + 0.5 / (strength + 1))
        strength /= np.exp(np.log(strength).mean())
    ranked = sorted(zip(names, np.log(strength), strict=True), key=lambda pair: -pair[1])
    return {name: float(value) for name, value in ranked}


def _question(row: Row, criterion: Criterion) -> Question:
    task = (
        f"Compare two answers by one criterion.\n\nCriterion: {criterion.definition}\n\n"
        "Neither their order nor their length matters. Say a or b for the better answer, or tie."
    )
    material = (
        *row.material([name for name in criterion.material if name != "answer"]),
        ("answer a", row.prediction),
        ("answer b", row.other or ""),
    )
    brief = f"Which answer is better in {criterion.name}: a, b or tie?"
    return Question(task, brief, material, "Better answer (a, b or tie):", CHOICES)


def _score(row: Row, criterion: Criterion, forth: Verdict, back: Verdict) -> Score:
    values = []
    for verdict, own in ((forth, "a"), (back, "b")):
        if isinstance(verdict, Unscored):
            return Score.missing(row, "pairwise", criterion.name, verdict)
        assert isinstance(verdict, Distribution)
        values.append(verdict.probabilities[own] + verdict.probabilities["tie"] / 2)
    mode = forth.mode if isinstance(forth, Distribution) else None
    mean, spread = sum(values) / 2, abs(values[0] - values[1]) / 2
    return Score(row.id, "pairwise", criterion.name, mean, spread, mode, parts=tuple(values))
