"""Robust regression of a scaling law on log loss, many starts or bootstrap replicas at a time.

The objective is the sum over runs, never the mean, of Huber's loss of the log residual: r^2 / 2 up
to delta, delta (|r| - delta / 2) beyond. `lad` is its limit for small delta, divided by delta: the
sum of |r|. Squares are its limit for large delta.

Minimised by damped Gauss-Newton with Huber's weights (iteratively reweighted least squares), which
is indifferent to the objective's tiny scale and runs on all starts in one batch. L-BFGS on the same
objective, divided by delta so that its stopping rule can see it, gives the second opinion.
"""

from collections.abc import Callable

import numpy as np

from tasks.scaling.laws import Law
from tasks.scaling.runs import Columns

LAD_DELTA = 1e-6
SMOOTH_DELTA = 1e-3
SQUARES_DELTA = 1e6


def minimise(
    law: Law,
    columns: Columns,
    target_N: np.ndarray,
    delta: float,
    starts_SP: np.ndarray,
    weights_SN: np.ndarray,
    frozen: tuple[int, ...] = (),
    iterations: int = 200,
) -> tuple[np.ndarray, np.ndarray]:
    """Parameters [S, P] and Huber sums [S], one minimisation per start; `frozen` ones stay put."""

    def residuals(theta_SP: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        log_SN, jacobian_SNP = law.evaluate(theta_SP, columns)
        jacobian_SNP[..., list(frozen)] = 0
        return log_SN - target_N, jacobian_SNP

    theta_SP = starts_SP
    # A trial step may overflow; its objective is then no improvement and the step is not taken.
    with np.errstate(over="ignore", invalid="ignore"):
        for width in _continuation(delta):
            theta_SP, total_S = _gauss_newton(residuals, theta_SP, weights_SN, width, iterations)
    return theta_SP, total_S


def best_of_starts(
    law: Law, columns: Columns, target_N: np.ndarray, delta: float, weights_N: np.ndarray
) -> np.ndarray:
    """The best minimum [P] from all of the law's starts."""
    starts_SP, weights_SN = law.starts(columns), weights_N[None, :]
    args = (law, columns, target_N, max(delta, SMOOTH_DELTA))
    theta_SP, total_S = minimise(*args, starts_SP, weights_SN, iterations=25)
    leading = np.argsort(total_S)[:12]
    args = (law, columns, target_N, delta)
    theta_SP, total_S = minimise(*args, theta_SP[leading], weights_SN)
    return theta_SP[total_S.argmin()]


def second_opinion(
    law: Law, columns: Columns, target_N: np.ndarray, delta: float, weights_N: np.ndarray
) -> np.ndarray:
    """The minimum [P] that L-BFGS finds from the best few of the law's starts."""
    from scipy.optimize import minimize

    smooth = max(delta, 1e-4)

    def scaled(theta_P: np.ndarray) -> tuple[float, np.ndarray]:
        log_SN, jacobian_SNP = law.evaluate(theta_P[None], columns)
        residual_N = log_SN[0] - target_N
        total = float(weights_N @ huber(residual_N, smooth)) / smooth
        slope_N = weights_N * np.clip(residual_N / smooth, -1, 1)
        return total, slope_N @ jacobian_SNP[0]

    starts_SP = law.starts(columns)
    residual_SN = law.evaluate(starts_SP, columns)[0] - target_N
    leading = np.argsort(huber(residual_SN, smooth) @ weights_N)[:4]
    options = {"maxiter": 3000, "maxfun": 3000, "ftol": 1e-15, "gtol": 1e-10}
    found = [
        minimize(scaled, start, jac=True, method="L-BFGS-B", options=options)
        for start in starts_SP[leading]
    ]
    return np.array(min(found, key=lambda f: f.fun).x)


def huber(residual: np.ndarray, delta: float) -> np.ndarray:
    """Huber's loss, elementwise."""
    size = np.abs(residual)
    return np.where(size <= delta, residual**2 / 2, delta * (size - delta / 2))


def bootstrap(
    law: Law,
    columns: Columns,
    target_N: np.ndarray,
    delta: float,
    weights_N: np.ndarray,
    theta_P: np.ndarray,
    replicas: int,
    seed: int,
) -> np.ndarray:
    """Fits [S, P] to resamples of the runs, the better of two: one started from `theta_P`, one from
    the law's own best start, since a fit whose E has gone to 0 has no slope to leave it again.

    Resamples with fewer distinct runs than parameters cannot be fitted and are left out.
    """
    runs = len(target_N)
    draws = np.random.default_rng(seed).multinomial(runs, np.full(runs, 1 / runs), size=replicas)
    draws = draws[(draws > 0).sum(axis=1) >= law.parameters]
    if not len(draws):
        return np.empty((0, law.parameters))
    starts_SP = np.repeat([theta_P, _best_start(law, columns, target_N)], len(draws), axis=0)
    weights_SN = np.tile(draws * weights_N, (2, 1))
    args = (law, columns, target_N, delta, starts_SP, weights_SN)
    theta_SP, total_S = minimise(*args, iterations=50)
    second = total_S[len(draws) :] < total_S[: len(draws)]
    return np.where(second[:, None], theta_SP[len(draws) :], theta_SP[: len(draws)])


def _best_start(law: Law, columns: Columns, target_N: np.ndarray) -> np.ndarray:
    """The start with the least squares among those whose E, if there is one, is not near 0."""
    starts_SP = law.starts(columns)
    if law.floor is not None:
        low = np.log(0.2) + target_N.min()
        starts_SP[:, law.floor] = np.maximum(starts_SP[:, law.floor], low)
    squares_S = ((law.evaluate(starts_SP, columns)[0] - target_N) ** 2).sum(axis=1)
    return starts_SP[squares_S.argmin()]


def profile(
    law: Law,
    columns: Columns,
    target_N: np.ndarray,
    delta: float,
    weights_N: np.ndarray,
    theta_P: np.ndarray,
    index: int,
    values_S: np.ndarray,
) -> np.ndarray:
    """The least Huber sum [S] with parameter `index` held at each of `values_S`."""
    starts_SP = law.starts(columns)
    leading = starts_SP[:: len(starts_SP) // 4]
    leading[:, index] = theta_P[index]
    starts_SP = np.concatenate([theta_P[None], leading])
    grid_SP = np.repeat(starts_SP, len(values_S), axis=0)
    grid_SP[:, index] = np.tile(values_S, len(starts_SP))
    args = (law, columns, target_N, delta, grid_SP, weights_N[None, :], (index,))
    total_S = minimise(*args, iterations=30)[1]
    return total_S.reshape(len(starts_SP), len(values_S)).min(axis=0)


def _continuation(delta: float) -> list[float]:
    return [SMOOTH_DELTA, delta] if delta < SMOOTH_DELTA / 10 else [delta]


def _gauss_newton(
    residuals: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]],
    theta_SP: np.ndarray,
    weights_SN: np.ndarray,
    delta: float,
    iterations: int,
) -> tuple[np.ndarray, np.ndarray]:
    theta_SP, damping_S = theta_SP.copy(), np.full(len(theta_SP), 1e-3)
    residual_SN, jacobian_SNP = residuals(theta_SP)
    total_S = (weights_SN * huber(residual_SN, delta)).sum(axis=1)
    total_S = np.where(np.isfinite(total_S), total_S, np.inf)
    for _ in range(iterations):
        step_SP = _step(residual_SN, jacobian_SNP, weights_SN, delta, damping_S)
        trial_SP = theta_SP - step_SP
        new_residual, new_jacobian = residuals(trial_SP)
        new_total = (weights_SN * huber(new_residual, delta)).sum(axis=1)
        better = new_total < total_S
        settled = total_S - new_total < 1e-13 * total_S
        theta_SP[better], total_S[better] = trial_SP[better], new_total[better]
        residual_SN[better], jacobian_SNP[better] = new_residual[better], new_jacobian[better]
        damping_S = np.clip(np.where(better, damping_S / 4, damping_S * 4), 1e-12, 1e8)
        if (settled & (better | (damping_S >= 1e8))).all():
            break
    return theta_SP, total_S


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
