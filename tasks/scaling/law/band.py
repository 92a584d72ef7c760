"""How far a run may lie from what a law says of it: a 90 % band that the runs themselves put to the
test.

The scale of an error is that of linear propagation (the delta method; Seber and Wild 1989, ch. 5):
the spread of runs about the law at that compute, and the uncertainty of the parameters. How many
such scales hold 90 % is not taken from a normal distribution, since no law is exact and errors
grow where it is not: the same law is fitted to the cheaper runs and predicts the next ones, as far
beyond the fit as is asked for (rolling origin; Tashman 2000), and the band takes the 90 % quantile
of the errors found, each over its scale (split conformal prediction with normalised scores;
Papadopoulos 2008, Lei 2018). Runs of a sweep are few and those of one budget err together, so
`PRIOR` values of Student's distribution stand among the errors, and alone where no part of the
sweep is left to be predicted.
"""

from dataclasses import dataclass

import numpy as np

from tasks.scaling.law import robust
from tasks.scaling.law.robust import Problem
from tasks.scaling.law.runs import Columns

HELD = 0.9
PRIOR = 20
MOST_ORIGINS, LEAST_STEP = 5, 2.0
WIDEST = np.log(10)  # a band of more than a factor 10 to either side says nothing more
# Runs of one budget differ a little in compute.
SAME_BUDGET = 0.1
VARIANCE_OF_LOG_SQUARE = 4.9  # of a standard normal value


@dataclass(frozen=True)
class Band:
    """Half the width of a band [M] in log loss; the law's own relative `error`, root mean square
    over the runs of left-out budgets, None where none could be left out.
    """

    half_M: np.ndarray
    error: float | None


def log_compute(columns: Columns) -> np.ndarray:
    """Logarithm of params x tokens, of `x` where the law has that instead [N]."""
    if "x" in columns:
        return np.log(columns["x"])
    return np.log(columns["params"]) + np.log(columns["tokens"])


def around(
    problem: Problem, theta_P: np.ndarray, at: Columns, noise: float = 0.0, drift: float = 0.0
) -> Band:
    """The band about the law's predictions at places; `noise` and `drift` as in the settings."""
    beyond = float(log_compute(at).max() - log_compute(problem.columns).max())
    scores, errors = _tested(problem, theta_P, beyond, noise)
    scale_M = scales(problem, theta_P, at, noise)
    if not len(errors):
        scale_M = np.hypot(scale_M, drift * max(beyond, 0.0))
    half_M = np.minimum(_quantile(scores, _freedom(problem)) * scale_M, WIDEST)
    return Band(half_M, float(np.sqrt(np.mean(errors**2))) if len(errors) else None)


def scales(problem: Problem, theta_P: np.ndarray, at: Columns, noise: float) -> np.ndarray:
    """Standard deviation [M] of a new run's log loss about the law's prediction, by propagation."""
    weights_N, law = problem.weights_N, problem.law
    jacobian_NP = law.evaluate(theta_P[None], problem.columns)[1][0]
    # Columns of length 1; the ridge keeps a parameter that these runs do not determine still.
    length_P = np.maximum(np.linalg.norm(jacobian_NP, axis=0), 1e-300)
    jacobian_NP = jacobian_NP / length_P
    place_MP = law.evaluate(theta_P[None], at)[1][0] / length_P
    weighted_NP = weights_N[:, None] * jacobian_NP
    gram_PP = weighted_NP.T @ jacobian_NP + 1e-9 * np.eye(law.parameters) * weights_N.mean()
    pull_MN = place_MP @ np.linalg.solve(gram_PP, weighted_NP.T)
    runs_N, own_M = (_variances(problem, theta_P, c) for c in (problem.columns, at))
    # Where all runs lie on the law to the last digit there is still a rounding to divide by.
    least = max(noise, 1e-9) ** 2
    return np.sqrt(np.maximum(own_M, least) + pull_MN**2 @ np.maximum(runs_N, least))


def _variances(problem: Problem, theta_P: np.ndarray, at: Columns) -> np.ndarray:
    """Variance [M] of a run about the law at places, exponential in their log compute (Harvey
    1976): in real sweeps the cheapest runs scatter most. The slope, a regression of log squares, is
    drawn to 0 by a prior of one for a standard deviation of log compute; beyond the runs it ends.

    The level is by the mean absolute residual, on which one bad run weighs less than on its square.
    """
    residual_N, work_N = problem.log_residuals(theta_P), log_compute(problem.columns)
    middle, width = work_N.mean(), work_N.std() + 1e-12
    place_N = (work_N - middle) / width
    square_N = residual_N**2
    log_N = np.log(np.maximum(square_N, 0.01 * np.median(square_N) + 1e-30))
    slope = place_N @ (log_N - log_N.mean()) / (len(log_N) + VARIANCE_OF_LOG_SQUARE)
    place_M = np.clip((log_compute(at) - middle) / width, place_N.min(), place_N.max())
    mean = np.mean(np.abs(residual_N) * np.exp(-slope * place_N / 2))
    level = np.pi / 2 * mean**2 * len(log_N) / _freedom(problem)
    return level * np.exp(slope * place_M)


def _tested(
    problem: Problem, theta_P: np.ndarray, beyond: float, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Errors of the law on runs beyond those it was fitted to, over their scales and as they are,
    from up to MOST_ORIGINS cuts; each as far from the next as the place asked for from the runs,
    or nearer where the sweep is too short for that.
    """
    step = max(beyond, np.log(LEAST_STEP))
    while not (parts := _origins(problem, step)) and step > np.log(LEAST_STEP):
        step = max(step / 2, np.log(LEAST_STEP))
    scores, errors = [np.zeros(0)], [np.zeros(0)]
    for kept_N, next_N in parts:
        smaller, following = problem.subset(kept_N), problem.subset(next_N)
        again_P = robust.refit(smaller, theta_P)
        errors.append(following.log_residuals(again_P))
        scores.append(np.abs(errors[-1]) / scales(smaller, again_P, following.columns, noise))
    return np.concatenate(scores), np.concatenate(errors)


def _origins(problem: Problem, step: float) -> list[tuple[np.ndarray, np.ndarray]]:
    """Masks of the runs up to a cut in compute and of those in the `step` after it, the last first;
    as long as what is below a cut determines the law.
    """
    work_N, columns, found = log_compute(problem.columns), problem.columns, []
    named = ("x",) if "x" in columns else ("params", "tokens")
    for back in range(1, MOST_ORIGINS + 1):
        cut = work_N.max() - back * step + SAME_BUDGET
        kept_N, next_N = work_N <= cut, (work_N > cut) & (work_N <= cut + step)
        distinct = min(len(set(columns[name][kept_N])) for name in named)
        if kept_N.sum() < problem.law.parameters + 2 or distinct < 3:
            break
        if next_N.any():
            found.append((kept_N, next_N))
    return found


def _quantile(scores: np.ndarray, freedom: int) -> float:
    """The 90 % quantile, in the finite-sample form of conformal prediction, of scores and prior."""
    from scipy.stats import t

    middles = (np.arange(PRIOR) + 0.5) / PRIOR
    every = np.sort(np.concatenate([scores, t.ppf((1 + middles) / 2, freedom)]))
    return float(every[int(np.ceil((len(every) + 1) * HELD)) - 1])


def _freedom(problem: Problem) -> int:
    return max(problem.runs - problem.law.parameters, 1)
