"""Robust regression of a scaling law, many starts or bootstrap replicas at a time.

The objective is the sum over runs, never the mean, of Huber's loss of the log residual: r^2 / 2 up
to delta, delta (|r| - delta / 2) beyond. `lad` is its limit for small delta, divided by delta: the
sum of |r|. Squares are its limit for large delta; they may also be of the loss itself.

Minimised by damped Gauss-Newton with Huber's weights (iteratively reweighted least squares), which
is indifferent to the objective's tiny scale and runs on all starts in one batch. L-BFGS on the same
objective, divided by delta so that its stopping rule can see it, gives the second opinion. Both
have an upper limit of iterations, so a fit whose E is not identified ends as well.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tasks.scaling.law.laws import Law
from tasks.scaling.law.runs import Columns

LAD_DELTA = 1e-6
SMOOTH_DELTA = 1e-3
SQUARES_DELTA = 1e6
MOST_STARTS = 24


@dataclass(frozen=True)
class Problem:
    """A law, the runs [N] with what they measured and their weights, and the loss of residuals.

    Residuals are of the logarithm, or, when `linear`, of the value itself.
    """

    law: Law
    columns: Columns
    delta: float
    linear: bool = False

    @cached_property
    def target_N(self) -> np.ndarray:
        """Logarithms of what was measured."""
        return np.log(self.columns["loss"] if "loss" in self.columns else self.columns["y"])

    @cached_property
    def weights_N(self) -> np.ndarray:
        """The runs' weights; 1 where none are given."""
        return self.columns.get("weight", np.ones(self.runs))

    @property
    def runs(self) -> int:
        """How many there are."""
        return len(next(iter(self.columns.values())))

    def residuals(self, theta_SP: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Predicted minus measured [S, N], and the Jacobian [S, N, P]."""
        log_SN, jacobian_SNP = self.law.evaluate(theta_SP, self.columns)
        if not self.linear:
            return log_SN - self.target_N, jacobian_SNP
        value_SN = np.exp(log_SN)
        return value_SN - np.exp(self.target_N), jacobian_SNP * value_SN[..., None]

    def log_residuals(self, theta_P: np.ndarray) -> np.ndarray:
        """log predicted minus log measured [N]."""
        return self.law.evaluate(theta_P[None], self.columns)[0][0] - self.target_N

    def total(self, theta_SP: np.ndarray) -> np.ndarray:
        """The weighted Huber sums [S]."""
        return huber(self.residuals(theta_SP)[0], self.delta) @ self.weights_N

    def subset(self, kept: np.ndarray) -> "Problem":
        """The same problem for some of the runs, given by mask or index."""
        return replace(self, columns={name: c[kept] for name, c in self.columns.items()})


def minimise(
    problem: Problem,
    starts_SP: np.ndarray,
    weights_SN: np.ndarray | None = None,
    frozen: tuple[int, ...] = (),
    iterations: int = 200,
) -> tuple[np.ndarray, np.ndarray]:
    """Parameters [S, P] and Huber sums [S], one minimisation per start; `frozen` ones stay put.

    `weights_SN` replace the runs' own, a row per start.
    """
    if weights_SN is None:
        weights_SN = problem.weights_N[None, :]
    theta_SP = starts_SP
    # A trial step may overflow; its objective is then no improvement and the step is not taken.
    with np.errstate(over="ignore", invalid="ignore"):
        for delta in _continuation(problem.delta):
            part = replace(problem, delta=delta)
            theta_SP, total_S = _gauss_newton(part, theta_SP, weights_SN, frozen, iterations)
    return theta_SP, total_S


def best_of_starts(problem: Problem) -> np.ndarray:
    """The best minimum [P] from the better ones of the law's starts."""
    smooth = replace(problem, delta=max(problem.delta, SMOOTH_DELTA))
    starts_SP = problem.law.starts(problem.columns)
    leading = np.argsort(smooth.total(starts_SP))[:MOST_STARTS]
    theta_SP, total_S = minimise(smooth, starts_SP[leading], iterations=25)
    theta_SP, total_S = minimise(problem, theta_SP[np.argsort(total_S)[:12]])
    return theta_SP[total_S.argmin()]


def second_opinion(problem: Problem) -> np.ndarray:
    """The minimum [P] that L-BFGS finds from the best few of the law's starts."""
    from scipy.optimize import minimize

    smooth = replace(problem, delta=max(problem.delta, 1e-4))
    scale = min(smooth.delta, 1.0)
    weights_N = problem.weights_N

    def scaled(theta_P: np.ndarray) -> tuple[float, np.ndarray]:
        residual_SN, jacobian_SNP = smooth.residuals(theta_P[None])
        total = float(weights_N @ huber(residual_SN[0], smooth.delta)) / scale
        slope_N = weights_N * np.clip(residual_SN[0], -smooth.delta, smooth.delta) / scale
        return total, slope_N @ jacobian_SNP[0]

    starts_SP = problem.law.starts(problem.columns)
    leading = np.argsort(smooth.total(starts_SP))[:4]
    options = {"maxiter": 3000, "maxfun": 3000, "ftol": 1e-15, "gtol": 1e-10}
    found = [
        minimize(scaled, start, jac=True, method="L-BFGS-B", options=options)
        for start in starts_SP[leading]
    ]
    return np.array(min(found, key=lambda f: f.fun).x)


def refit(problem: Problem, theta_P: np.ndarray) -> np.ndarray:
    """The better minimum [P] of two: from the parameters of much the same runs, and from the law's
    own best start, since a fit whose E has gone to 0 has no slope to leave it again.
    """
    found_SP, total_S = minimise(problem, np.stack([theta_P, _best_start(problem)]), iterations=60)
    return found_SP[total_S.argmin()]


def huber(residual: np.ndarray, delta: float) -> np.ndarray:
    """Huber's loss, elementwise."""
    size = np.abs(residual)
    return np.where(size <= delta, residual**2 / 2, delta * (size - delta / 2))


def bootstrap(problem: Problem, theta_P: np.ndarray, replicas: int) -> np.ndarray:
    """Fits [S, P] to resamples of the runs, each the better of two, as in `refit`.

    Resamples with fewer distinct runs than parameters cannot be fitted and are left out.
    """
    runs, parameters = problem.runs, problem.law.parameters
    # Always the same draws: a fit of the same runs gives the same errors.
    draws = np.random.default_rng(0).multinomial(runs, np.full(runs, 1 / runs), size=replicas)
    draws = draws[(draws > 0).sum(axis=1) >= parameters]
    if not len(draws):
        return np.empty((0, parameters))
    starts_SP = np.repeat([theta_P, _best_start(problem)], len(draws), axis=0)
    weights_SN = np.tile(draws * problem.weights_N, (2, 1))
    theta_SP, total_S = minimise(problem, starts_SP, weights_SN, iterations=50)
    second = total_S[len(draws) :] < total_S[: len(draws)]
    return np.where(second[:, None], theta_SP[len(draws) :], theta_SP[: len(draws)])


def leave_one_out(problem: Problem, theta_P: np.ndarray) -> np.ndarray:
    """Fits [N, P], each without one of the runs."""
    weights_NN = np.where(np.eye(problem.runs, dtype=bool), 0.0, problem.weights_N)
    starts_SP = np.repeat(theta_P[None], problem.runs, axis=0)
    return minimise(problem, starts_SP, weights_NN, iterations=30)[0]


def _best_start(problem: Problem) -> np.ndarray:
    """The start with the least squares among those whose E, if there is one, is not near 0."""
    law, starts_SP = problem.law, problem.law.starts(problem.columns)
    if law.floor is not None:
        low = np.log(0.2) + problem.target_N.min()
        starts_SP[:, law.floor] = np.maximum(starts_SP[:, law.floor], low)
    squares_S = (problem.residuals(starts_SP)[0] ** 2).sum(axis=1)
    return starts_SP[squares_S.argmin()]


def profile(problem: Problem, theta_P: np.ndarray, index: int, values_S: np.ndarray) -> np.ndarray:
    """The least Huber sum [S] with parameter `index` held at each of `values_S`."""
    starts_SP = problem.law.starts(problem.columns)
    leading = starts_SP[:: max(1, len(starts_SP) // 2)]
    leading[:, index] = theta_P[index]
    starts_SP = np.concatenate([theta_P[None], leading])
    grid_SP = np.repeat(starts_SP, len(values_S), axis=0)
    grid_SP[:, index] = np.tile(values_S, len(starts_SP))
    total_S = minimise(problem, grid_SP, frozen=(index,), iterations=30)[1]
    return total_S.reshape(len(starts_SP), len(values_S)).min(axis=0)


def _continuation(delta: float) -> list[float]:
    # From afar nearly every residual is beyond a tiny delta: the wider one leads near first.
    return [SMOOTH_DELTA, delta] if delta < SMOOTH_DELTA / 10 else [delta]


def _gauss_newton(
    problem: Problem,
    theta_SP: np.ndarray,
    weights_SN: np.ndarray,
    frozen: tuple[int, ...],
    iterations: int,
) -> tuple[np.ndarray, np.ndarray]:
    delta = problem.delta
    theta_SP, damping_S = theta_SP.copy(), np.full(len(theta_SP), 1e-3)
    residual_SN, jacobian_SNP = _held(problem, theta_SP, frozen)
    total_S = (weights_SN * huber(residual_SN, delta)).sum(axis=1)
    # Nothing is less than nan: such a start would never be left.
    total_S = np.where(np.isfinite(total_S), total_S, np.inf)
    for _ in range(iterations):
        step_SP = _step(residual_SN, jacobian_SNP, weights_SN, delta, damping_S)
        trial_SP = theta_SP - step_SP
        new_residual, new_jacobian = _held(problem, trial_SP, frozen)
        new_total = (weights_SN * huber(new_residual, delta)).sum(axis=1)
        better = new_total < total_S
        # A step that is refused settles nothing until the damping is at its limit.
        settled = total_S - new_total < 1e-13 * total_S
        theta_SP[better], total_S[better] = trial_SP[better], new_total[better]
        residual_SN[better], jacobian_SNP[better] = new_residual[better], new_jacobian[better]
        damping_S = np.clip(np.where(better, damping_S / 4, damping_S * 4), 1e-12, 1e8)
        if (settled & (better | (damping_S >= 1e8))).all():
            break
    return theta_SP, total_S


def _held(
    problem: Problem, theta_SP: np.ndarray, frozen: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Residuals, and a Jacobian in which frozen parameters have no influence."""
    residual_SN, jacobian_SNP = problem.residuals(theta_SP)
    jacobian_SNP[..., list(frozen)] = 0
    return residual_SN, jacobian_SNP


def _step(
    residual_SN: np.ndarray,
    jacobian_SNP: np.ndarray,
    weights_SN: np.ndarray,
    delta: float,
    damping_S: np.ndarray,
) -> np.ndarray:
    # Huber's weight: 1 inside delta, delta / |r| outside.
    scaled_SN = weights_SN * delta / np.maximum(np.abs(residual_SN), delta)
    weighted_SNP = jacobian_SNP * scaled_SN[..., None]
    gradient_SP = np.einsum("snp,sn->sp", weighted_SNP, residual_SN)
    curvature_SPP = weighted_SNP.swapaxes(1, 2) @ jacobian_SNP
    diagonal_SP = np.einsum("spp->sp", curvature_SPP)
    # The ridge keeps a parameter without influence (frozen, or a term at zero) where it is.
    ridge_SP = damping_S[:, None] * diagonal_SP + 1e-15 * diagonal_SP.max(axis=1, keepdims=True)
    damped = curvature_SPP + (ridge_SP + 1e-300)[..., None] * np.eye(diagonal_SP.shape[1])
    return np.linalg.solve(damped, gradient_SP[..., None])[..., 0]
