"""Scores on the scale people use: a line or a rising step function fitted to human ratings.

What it is worth is measured on rows held out in ten folds. Source for the steps: Zadrozny and
Elkan, Transforming classifier scores into accurate multiclass probability estimates, 2002.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from cluster.errors import BadInput

How = Literal["linear", "isotonic"]
FOLDS = 10


def calibrate(scores: Sequence[float], humans: Sequence[float], how: How) -> dict[str, Any]:
    """`error`: mean absolute distance to people's ratings of held-out rows after calibration, and
    `error_of_mean`, that of always saying the mean rating; `points` (score, calibrated) of the map
    fitted to all rows, to be joined by straight lines.
    """
    x, y = np.asarray(scores, float), np.asarray(humans, float)
    if len(x) < FOLDS:
        raise BadInput(f"{len(x)} rows are too few to calibrate on; {FOLDS} are needed")
    # Drawn, since rows often come sorted; of one size, since a permutation is cut.
    folds = np.random.default_rng(0).permutation(len(x)) % FOLDS
    error, plain = np.zeros(len(x)), np.zeros(len(x))
    for fold in range(FOLDS):
        kept, out = folds != fold, folds == fold
        error[out] = np.abs(_fit(x[kept], y[kept], how)(x[out]) - y[out])
        plain[out] = np.abs(y[kept].mean() - y[out])
    at = np.unique(x)
    points = np.stack([at, _fit(x, y, how)(at)], axis=1)
    return {
        "how": how,
        "error": float(error.mean()),
        "error_of_mean": float(plain.mean()),
        "points": points.tolist(),
    }


def _fit(x: np.ndarray, y: np.ndarray, how: How) -> Callable[[np.ndarray], np.ndarray]:
    if how == "linear":
        slope, start = np.polyfit(x, y, 1) if np.ptp(x) else (0.0, y.mean())
        return lambda new: slope * new + start
    from sklearn.isotonic import IsotonicRegression

    # By default a held-out score outside the fitted ones would get nan.
    steps = IsotonicRegression(out_of_bounds="clip").fit(x, y)
    return lambda new: np.asarray(steps.predict(new))
