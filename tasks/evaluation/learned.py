"""A metric fitted to people in BLEURT's manner: first to synthetic damage, then to human choices.

    headrace learn PAIRS.jsonl --to metric.json --json       # rows {"ref", "better", "worse"}
    headrace score FILE.jsonl --metrics learned --learned metric.json

A weighted sum of what the overlap metrics say. Warm-up: references are damaged at random and the
weights learn how much of each is left; then they learn which of two predictions people preferred,
by logistic regression whose prior is centred on the warm-up. What the metric promises is measured
on documents that were held out.

Source: Sellam et al., BLEURT: learning robust metrics for text generation, 2020, for the two steps.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics.chrf import CHRF
from scipy.optimize import minimize
from scipy.special import expit

from cluster.errors import BadInput
from cluster.files import write_atomically
from tasks.data.row_files import AS_THEY_ARE, RowLayout, read_row_file
from tasks.evaluation.overlap.meteor import meteor
from tasks.evaluation.overlap.rouge import rouge
from tasks.evaluation.statistics.intervals import bootstrap

ROUGES = ("rouge1", "rouge2", "rouge3", "rougeL", "rougeSU4")
FIELDS = ("ref", "better", "worse", "document", "src")
NAMES = (
    "chrf",
    "chrf++",
    "meteor",
    *(f"{name} {part}" for name in ROUGES for part in ("precision", "recall", "fmeasure")),
)
FOLDS, PRIOR, RIDGE = 5, 100.0, 10.0
SHARES = (0.0, 0.1, 0.25, 0.5, 0.75)  # of words damaged


@dataclass(frozen=True)
class Pair:
    """Two predictions for one reference, the better one by human rank; pairs of a document share
    its name.
    """

    reference: str
    better: str
    worse: str
    document: str


@dataclass(frozen=True)
class LearnedMetric:
    """The weight of each feature, by `NAMES`."""

    weights: dict[str, float]

    @classmethod
    def read(cls, path: Path) -> "LearnedMetric":
        """From a file of `save`. Raises BadInput for any other."""
        try:
            metric = cls(**json.loads(path.read_text(encoding="utf-8")))
            names = tuple(metric.weights)
        except (OSError, ValueError, TypeError) as error:
            raise BadInput(
                f"{path} holds no learned metric ({error}); make one: headrace learn"
            ) from error
        if names != NAMES:
            raise BadInput(f"{path} was learnt from other features; run `headrace learn` again")
        return metric

    def save(self, path: Path) -> None:
        """Write the file."""
        write_atomically(path, json.dumps(asdict(self)))

    def score(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Per row; higher is better, without a bound."""
        weights = np.array([*self.weights.values()])
        scores: list[float] = (features(predictions, references) @ weights).tolist()
        return scores


def features(predictions: Sequence[str], references: Sequence[Sequence[str]]) -> np.ndarray:
    """What each overlap metric says of each row, float64 `[rows, len(NAMES)]`; of several
    references, each the value of the best.
    """
    rows = rouge(predictions, references, ROUGES, stem=True)
    parts = [[row[name][part] for name in ROUGES for part in row[name]] for row in rows]
    chrfs = [
        [metric.sentence_score(*pair).score / 100 for metric in (CHRF(), CHRF(word_order=2))]
        for pair in zip(predictions, references, strict=True)
    ]
    return np.column_stack([chrfs, meteor(predictions, references), parts])


def learn_file(
    path: Path, to: Path | None = None, seed: int = 0, layout: RowLayout = AS_THEY_ARE
) -> dict[str, Any]:
    """Fit to a file of rows `{"ref", "better", "worse"}` and say what it is worth.

    `tau`, Kendall-like (better above worse, ties against it) over documents held out in five folds,
    with its 95 % `interval` over documents; `chrf` the same of chrF, `gain` the difference with its
    `gain_interval`. Documents are those of `document`, else of `src`, else of `ref`.
    """
    pairs = read_pairs(path, layout)
    texts = list(dict.fromkeys((text, p.reference) for p in pairs for text in (p.better, p.worse)))
    place = {text: i for i, text in enumerate(texts)}
    rows = features([text for text, _ in texts], [[reference] for _, reference in texts])
    better = rows[[place[p.better, p.reference] for p in pairs]]
    worse = rows[[place[p.worse, p.reference] for p in pairs]]

    def fitted(seen: np.ndarray) -> np.ndarray:
        references = sorted({p.reference for p, chosen in zip(pairs, seen, strict=True) if chosen})
        return _fit(references, better[seen], worse[seen], seed)

    documents = [pair.document for pair in pairs]
    folds, gaps = _folds(documents, seed), np.zeros(len(pairs))
    for fold in range(FOLDS):
        gaps[folds == fold] = (better - worse)[folds == fold] @ fitted(folds != fold)
    result: dict[str, Any] = {"pairs": len(pairs), "documents": len(set(documents))}
    result |= _summary(gaps, (better - worse)[:, NAMES.index("chrf")], documents)
    if to is not None:
        weights = fitted(np.ones(len(pairs), bool)).tolist()
        LearnedMetric(dict(zip(NAMES, weights, strict=True))).save(to)
        result["metric"] = str(to)
    return result


def read_pairs(path: Path, layout: RowLayout = AS_THEY_ARE) -> list[Pair]:
    """The pairs of a file. Raises BadInput naming the line."""
    found = []
    for number, row in read_row_file(path, layout):
        texts = [row.get(name) for name in ("ref", "better", "worse")]
        if not all(isinstance(text, str) for text in texts):
            raise BadInput(f"{path}, line {number}: expected texts in ref, better and worse")
        document = row.get("document", row.get("src", row["ref"]))
        found.append(Pair(row["ref"], row["better"], row["worse"], str(document)))
    if len({pair.document for pair in found}) < FOLDS:
        raise BadInput(f"{path}: {FOLDS} documents or more are needed to hold some out")
    return found


def _folds(documents: list[str], seed: int) -> np.ndarray:
    """Which fold each pair's document is in."""
    names, numbers = np.unique(documents, return_inverse=True)
    return (np.random.default_rng(seed).permutation(len(names)) % FOLDS)[numbers]


def _fit(references: list[str], better: np.ndarray, worse: np.ndarray, seed: int) -> np.ndarray:
    """The weights of the features, by what is better and what is worse of each pair."""
    scale = np.concatenate([better, worse]).std(0) + 1e-9
    return _preferences((better - worse) / scale, _warm_up(references, scale, seed)) / scale


def _warm_up(references: list[str], scale: np.ndarray, seed: int) -> np.ndarray:
    """Weights that tell how much of a damaged reference is left: ridge regression."""
    random = np.random.default_rng(seed)
    texts = [references[i] for i in random.permutation(len(references))[:200]]
    damaged = [(damage(text, share, random), text, 1 - share) for text in texts for share in SHARES]
    x = features([d for d, _, _ in damaged], [[t] for _, t, _ in damaged]) / scale
    y = np.array([left for _, _, left in damaged])
    x, y = x - x.mean(0), y - y.mean()
    return np.linalg.solve(x.T @ x + RIDGE * np.eye(x.shape[1]), x.T @ y)


def damage(text: str, share: float, random: np.random.Generator) -> str:
    """A text of whose words a share is dropped, doubled, moved or replaced by one of its others."""
    words = text.split()
    for _ in range(round(share * len(words))):
        if not words:
            break
        at, other = random.integers(len(words), size=2)
        kind = random.integers(4)
        if kind == 0:
            words.pop(at)
        elif kind == 1:
            words.insert(at, words[at])
        elif kind == 2:
            words.insert(other, words.pop(at))
        else:
            words[at] = words[other]
    return " ".join(words)


def _preferences(gaps: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Logistic regression of which is better, its weights held near a multiple of `start`."""
    reach = max(1e-9, float((gaps @ start).std()))
    prior = start / reach

    def loss(weights: np.ndarray) -> tuple[float, np.ndarray]:
        margins = gaps @ weights
        away = weights - prior
        value = np.logaddexp(0, -margins).sum() + PRIOR / 2 * away @ away
        return value, -gaps.T @ expit(-margins) + PRIOR * away

    return np.asarray(minimize(loss, prior, jac=True, method="L-BFGS-B").x)


def tau(gaps: np.ndarray) -> float:
    """Kendall-like tau of better-worse pairs: a tie counts as discordant."""
    return float(2 * (gaps > 0).mean() - 1)


def _summary(gaps: np.ndarray, chrf: np.ndarray, documents: list[str]) -> dict[str, Any]:
    """The figures of `learn_file`: the gaps, by the metric and by chrF, are better less worse."""

    def taus(rows: np.ndarray) -> list[float]:
        ours, theirs = tau(gaps[rows]), tau(chrf[rows])
        return [ours, ours - theirs]

    found = bootstrap(taus, len(gaps), documents, count=1000)
    return {
        "tau": float(found.found_S[0]),
        "interval": list(found.interval(0)),
        "chrf": tau(chrf),
        "gain": float(found.found_S[1]),
        "gain_interval": list(found.interval(1)),
    }
