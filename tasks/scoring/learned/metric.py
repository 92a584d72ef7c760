"""A metric fitted to people in BLEURT's manner: first to synthetic damage, then to human choices.

    headrace learn PAIRS.jsonl --to metric.json --json       # rows {"ref", "better", "worse"}
    headrace score FILE.jsonl --metrics learned --learned metric.json

A linear score of cheap `features`. Warm-up: references are damaged at random and the score learns
how much of each is left; then it learns which of two predictions people preferred, by logistic
regression whose prior is centred on the warm-up. What it promises is measured on documents that
were held out.

Source: Sellam et al., BLEURT: learning robust metrics for text generation, 2020, for the two steps.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from cluster.errors import BadInput
from cluster.files import write_atomically
from tasks.scoring.doubt.statistics import interval, resamples
from tasks.scoring.json_lines import read_json_lines
from tasks.scoring.learned.features import NAMES, CharacterModel, features

characters = CharacterModel.from_counts
FOLDS, PRIOR, RIDGE, KEPT_RUNS = 5, 100.0, 10.0, 20_000
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
    """Weights of the standardized features, and the character model that one of them needs."""

    mean: list[float]
    scale: list[float]
    weights: list[float]
    good: dict[str, int]

    @classmethod
    def read(cls, path: Path) -> "LearnedMetric":
        """From a file of `save`. Raises BadInput for any other."""
        try:
            metric = cls(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise BadInput(
                f"{path} holds no learned metric ({error}); make one: headrace learn"
            ) from error
        if len(metric.weights) != len(NAMES):
            raise BadInput(f"{path} was learnt from other features; run `headrace learn` again")
        return metric

    def save(self, path: Path) -> None:
        """Write the file."""
        write_atomically(path, json.dumps(asdict(self)))

    def score(self, predictions: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
        """Per row the best score over its references; higher is better, without a bound."""
        pairs = [(p, r) for p, row in zip(predictions, references, strict=True) for r in row]
        found = features([p for p, _ in pairs], [r for _, r in pairs], characters(self.good))
        scores = (found - self.mean) / self.scale @ np.array(self.weights)
        ends = np.cumsum([len(row) for row in references])
        return [float(part.max()) for part in np.split(scores, ends[:-1])]


def learn_file(path: Path, to: Path | None = None, seed: int = 0) -> dict[str, Any]:
    """Fit to a JSON-lines file of `{"ref", "better", "worse"}` and say what it is worth.

    `tau`, Kendall-like (better above worse, ties against it) over documents held out in five folds,
    with its 95 % `interval` over documents; `chrf` the same of chrF, `gain` the difference with its
    `gain_interval`. Documents are those of `document`, else of `src`, else of `ref`.
    """
    pairs = read_pairs(path)
    table = _Table.of(pairs)
    gaps = table.held_out_gaps(seed)
    chrf = table.feature_gaps("chrf")
    result: dict[str, Any] = {"pairs": len(pairs), "documents": len(set(table.documents))}
    result |= _summary(gaps, chrf, table.documents)
    if to is not None:
        table.fit(np.ones(len(pairs), bool), seed).save(to)
        result["metric"] = str(to)
    return result


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a file. Raises BadInput naming the line."""
    found = []
    for number, row in read_json_lines(path):
        texts = [row.get(name) for name in ("ref", "better", "worse")]
        if not all(isinstance(text, str) for text in texts):
            raise BadInput(f"{path}, line {number}: expected texts in ref, better and worse")
        document = row.get("document", row.get("src", row["ref"]))
        found.append(Pair(row["ref"], row["better"], row["worse"], str(document)))
    if len({pair.document for pair in found}) < FOLDS:
        raise BadInput(f"{path}: {FOLDS} documents or more are needed to hold some out")
    return found


@dataclass(frozen=True)
class _Table:
    """Pairs with the features of each distinct prediction, all but the character model's."""

    pairs: list[Pair]
    documents: list[str]
    base: np.ndarray
    texts: list[tuple[str, str]]
    better: np.ndarray
    worse: np.ndarray

    @classmethod
    def of(cls, pairs: list[Pair]) -> "_Table":
        texts = sorted({(text, p.reference) for p in pairs for text in (p.better, p.worse)})
        place = {text: i for i, text in enumerate(texts)}
        base = features([p for p, _ in texts], [r for _, r in texts], characters({}))
        better = np.array([place[p.better, p.reference] for p in pairs])
        worse = np.array([place[p.worse, p.reference] for p in pairs])
        return cls(pairs, [p.document for p in pairs], base, texts, better, worse)

    def feature_gaps(self, name: str) -> np.ndarray:
        """Better minus worse of one feature."""
        column = self.base[:, NAMES.index(name)]
        return column[self.better] - column[self.worse]

    def held_out_gaps(self, seed: int) -> np.ndarray:
        """Better's score minus worse's, by a metric that has not seen their document."""
        names = sorted(set(self.documents))
        order = np.random.default_rng(seed).permutation(len(names))
        fold_of = {names[i]: rank % FOLDS for rank, i in enumerate(order)}
        folds = np.array([fold_of[name] for name in self.documents])
        gaps = np.zeros(len(self.pairs))
        for fold in range(FOLDS):
            scores = self.scores(self.fit(folds != fold, seed))
            out = folds == fold
            gaps[out] = scores[self.better[out]] - scores[self.worse[out]]
        return gaps

    def scores(self, metric: LearnedMetric) -> np.ndarray:
        """The metric's score of every text."""
        return (self.with_model(metric.good) - metric.mean) / metric.scale @ metric.weights

    def with_model(self, good: dict[str, int]) -> np.ndarray:
        """The features, the last one by this character model."""
        model = characters(good)
        return np.column_stack([self.base[:, :-1], [model.nats(text) for text, _ in self.texts]])

    def fit(self, chosen: np.ndarray, seed: int) -> LearnedMetric:
        """A metric of the chosen pairs alone."""
        used = [pair for pair, wanted in zip(self.pairs, chosen, strict=True) if wanted]
        references = sorted({pair.reference for pair in used})
        good = dict(CharacterModel.of(references).counts.most_common(KEPT_RUNS))
        rows = self.with_model(good)
        seen = np.union1d(self.better[chosen], self.worse[chosen])
        mean, scale = rows[seen].mean(0), rows[seen].std(0) + 1e-9
        start = _warm_up(references, good, mean, scale, seed)
        gaps = (rows[self.better[chosen]] - rows[self.worse[chosen]]) / scale
        weights = _preferences(gaps, start)
        return LearnedMetric(mean.tolist(), scale.tolist(), weights.tolist(), good)


def _warm_up(
    references: list[str], good: dict[str, int], mean: np.ndarray, scale: np.ndarray, seed: int
) -> np.ndarray:
    """Weights that tell how much of a damaged reference is left: ridge regression."""
    random = np.random.default_rng(seed)
    texts = [references[i] for i in random.permutation(len(references))[:200]]
    damaged = [(damage(text, share, random), text, 1 - share) for text in texts for share in SHARES]
    rows = features([d for d, _, _ in damaged], [t for _, t, _ in damaged], characters(good))
    x, y = (rows - mean) / scale, np.array([left for _, _, left in damaged])
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
    draws = resamples(len(gaps), documents, count=1000)
    drawn = [(tau(gaps[rows]), tau(chrf[rows])) for rows in draws]
    ours, theirs = np.array(drawn).T
    return {
        "tau": tau(gaps),
        "interval": list(interval(ours)),
        "chrf": tau(chrf),
        "gain": tau(gaps) - tau(chrf),
        "gain_interval": list(interval(ours - theirs)),
    }
