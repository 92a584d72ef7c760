"""Scaling laws as functions of parameters and runs: log loss, its Jacobian, starting points.

Shapes: S starts (or bootstrap replicas), N runs, P parameters of the law, K terms of its sum.
n, d, u are log params, log tokens, log unique tokens; l is the log loss.

    chinchilla  L = E + A / params^alpha + B / tokens^beta              Hoffmann 2022, eq. 10
    tied        the same with alpha = beta                              Gadre 2024, eq. 4
    kaplan      L = ((N_c / params)^(alpha_N / alpha_D) + D_c / tokens)^alpha_D
                                                                        Kaplan 2020, eq. 1.5
    repeated    tied, with effective params and tokens that saturate    Muennighoff 2023, eq. 5-7
    power       y = c x^a
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from cluster.errors import BadInput
from cluster.settings import nearest
from tasks.scaling.law.runs import Columns

Evaluated = tuple[np.ndarray, np.ndarray]
GRID = np.geomspace(0.05, 1.5, 9)
# nats; a fit without a floor drives log E to minus infinity
NO_FLOOR = 1e-6
PARAMETERS = {
    "chinchilla": ("E", "A", "B", "alpha", "beta"),
    "tied": ("E", "A", "B", "alpha"),
    "kaplan": ("N_c", "D_c", "alpha_N", "alpha_D"),
    "repeated": ("E", "A", "B", "alpha", "R_N", "R_D"),
    "power": ("c", "a"),
}
"""Names of a form's parameters, in their order; all but `PLAIN` stand there as logarithms."""
PLAIN = ("alpha", "beta", "a")


@dataclass(frozen=True)
class Law:
    """One form. `evaluate` gives log loss [S, N] and its Jacobian [S, N, P]; `starts` [S, P];
    `report` maps one parameter vector to the names a user knows. `floor` is the index of log E.
    """

    parameters: int
    evaluate: Callable[[np.ndarray, Columns], Evaluated]
    starts: Callable[[Columns], np.ndarray]
    report: Callable[[np.ndarray], dict[str, float]]
    floor: int | None = None


def sum_of_powers(theta_SP: np.ndarray, columns: Columns) -> Evaluated:
    """log L of chinchilla through log-sum-exp; theta is log E, log A, log B, alpha, beta."""
    n_N, d_N = np.log(columns["params"]), np.log(columns["tokens"])
    e_S1, a_S1, b_S1, alpha_S1, beta_S1 = np.moveaxis(theta_SP[:, :, None], 1, 0)
    terms = (e_S1 + 0 * n_N, a_S1 - alpha_S1 * n_N, b_S1 - beta_S1 * d_N)
    log_SN, share_SNK = _log_sum_exp(np.stack(terms, axis=-1))
    slopes = (-share_SNK[..., 1] * n_N, -share_SNK[..., 2] * d_N)
    return log_SN, np.concatenate([share_SNK, np.stack(slopes, axis=-1)], axis=-1)


def tied(theta_SP: np.ndarray, columns: Columns) -> Evaluated:
    """Chinchilla with one exponent; theta is log E, log A, log B, alpha."""
    log_SN, jacobian = sum_of_powers(theta_SP[:, [0, 1, 2, 3, 3]], columns)
    both = jacobian[..., 3:4] + jacobian[..., 4:5]
    return log_SN, np.concatenate([jacobian[..., :3], both], axis=-1)


def kaplan(theta_SP: np.ndarray, columns: Columns) -> Evaluated:
    """Kaplan's joint form; theta is log N_c, log D_c, log alpha_N, log alpha_D."""
    n_N, d_N = np.log(columns["params"]), np.log(columns["tokens"])
    nc_S1, dc_S1, log_an_S1, log_ad_S1 = np.moveaxis(theta_SP[:, :, None], 1, 0)
    # A trial step may go anywhere: exponents beyond these have no meaning, but must have a loss.
    an_S1, ad_S1 = np.exp(np.clip(log_an_S1, -9, 4)), np.exp(np.clip(log_ad_S1, -9, 4))
    size_SN = an_S1 / ad_S1 * (nc_S1 - n_N)
    sum_SN, share_SNK = _log_sum_exp(np.stack([size_SN, dc_S1 - d_N], axis=-1))
    by_size, by_data = share_SNK[..., 0], share_SNK[..., 1]
    columns_of_jacobian = (
        an_S1 * by_size,
        ad_S1 * by_data,
        ad_S1 * by_size * size_SN,
        ad_S1 * (sum_SN - by_size * size_SN),
    )
    return ad_S1 * sum_SN, np.stack(columns_of_jacobian, axis=-1)


def repeated(theta_SP: np.ndarray, columns: Columns) -> Evaluated:
    """The effective-data law; theta is log E, log A, log B, alpha, log R_N, log R_D.

    Repetitions beyond the first epoch, and parameters beyond those optimal for the unique tokens,
    are worth exponentially less (eq. 5 and 7; optimal is params = (A / B)^(1 / alpha) tokens).
    """
    n_N, d_N, u_N = (np.log(columns[c]) for c in ("params", "tokens", "unique_tokens"))
    e_S1, a_S1, b_S1, alpha_S1, rn_S1, rd_S1 = np.moveaxis(theta_SP[:, :, None], 1, 0)
    lead_S1 = (a_S1 - b_S1) / alpha_S1
    n_SN, by_optimal_SN, by_rn_SN = _saturate(n_N, u_N + lead_S1, rn_S1)
    d_SN, _, by_rd_SN = _saturate(d_N, u_N, rd_S1)
    terms = (e_S1 + 0 * n_SN, a_S1 - alpha_S1 * n_SN, b_S1 - alpha_S1 * d_SN)
    log_SN, share_SNK = _log_sum_exp(np.stack(terms, axis=-1))
    floor_SN, size_SN, data_SN = np.moveaxis(share_SNK, -1, 0)
    jacobian = (
        floor_SN,
        size_SN * (1 - by_optimal_SN),
        size_SN * by_optimal_SN + data_SN,
        size_SN * (by_optimal_SN * lead_S1 - n_SN) - data_SN * d_SN,
        -alpha_S1 * size_SN * by_rn_SN,
        -alpha_S1 * data_SN * by_rd_SN,
    )
    return log_SN, np.stack(jacobian, axis=-1)


def power(theta_SP: np.ndarray, columns: Columns) -> Evaluated:
    """A straight line in logarithms; theta is log c, a."""
    x_N = np.log(columns["x"])
    one_SN = np.ones((len(theta_SP), len(x_N)))
    return theta_SP[:, :1] + theta_SP[:, 1:] * x_N, np.stack([one_SN, one_SN * x_N], axis=-1)


def placed(form: str, values: Mapping[str, float]) -> dict[int, float]:
    """Parameters by their place in theta. Raises BadInput for one that the form does not have."""
    names = PARAMETERS[form]
    if unknown := [name for name in values if name not in names]:
        raise BadInput(f"form {form} has no parameter '{unknown[0]}': {nearest(unknown[0], names)}")
    return {
        names.index(name): value if name in PLAIN else float(np.log(value))
        for name, value in values.items()
    }


def keeping(law: Law, known: Mapping[int, float], near: Mapping[int, float]) -> Law:
    """The law with some parameters known, by their place, so that the F others are fitted; where
    `near` gives these, from there alone.
    """
    free = [place for place in range(law.parameters) if place not in known]

    def whole(theta_SF: np.ndarray) -> np.ndarray:
        theta_SP = np.empty((*theta_SF.shape[:-1], law.parameters))
        theta_SP[..., list(known)] = list(known.values())
        theta_SP[..., free] = theta_SF
        return theta_SP

    def evaluate(theta_SF: np.ndarray, columns: Columns) -> Evaluated:
        log_SN, jacobian_SNP = law.evaluate(whole(theta_SF), columns)
        return log_SN, jacobian_SNP[..., free]

    def starts(columns: Columns) -> np.ndarray:
        if near:
            return np.array([[near[place] for place in free]])
        return np.unique(law.starts(columns)[:, free], axis=0)

    floor = free.index(law.floor) if law.floor in free else None
    return Law(len(free), evaluate, starts, lambda theta_F: law.report(whole(theta_F)), floor)


def _saturate(
    x_SN: np.ndarray, unique_SN: np.ndarray, log_r_S1: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log of u + u R (1 - exp(-r / R)), where u = min(x, unique) and r = x / u - 1, all arguments
    in logs; and its slopes by log unique and by log R.
    """
    beyond_SN = np.clip(x_SN - unique_SN, 0, 500)
    # Where tokens hardly exceed the unique ones, exp - 1 would lose its digits.
    again_SN, r_S1 = np.expm1(beyond_SN), np.exp(np.clip(log_r_S1, -12, 12))
    fade_SN = np.exp(-again_SN / r_S1)
    gain_SN = r_S1 * (1 - fade_SN)
    by_unique_SN = np.where(beyond_SN > 0, 1 - fade_SN * (1 + again_SN) / (1 + gain_SN), 0)
    by_r_SN = (gain_SN - fade_SN * again_SN) / (1 + gain_SN)
    return np.minimum(x_SN, unique_SN) + np.log1p(gain_SN), by_unique_SN, by_r_SN


def _log_sum_exp(terms_SNK: np.ndarray) -> Evaluated:
    # Less the largest, so that exp cannot overflow; the shares are the gradient of the sum's log.
    top = terms_SNK.max(axis=-1, keepdims=True)
    share = np.exp(terms_SNK - top)
    total = share.sum(axis=-1, keepdims=True)
    return (top + np.log(total))[..., 0], share / total


def _chinchilla_starts(columns: Columns) -> np.ndarray:
    return _projected(columns, np.array(list(itertools.product(GRID, GRID[:8]))))


def _tied_starts(columns: Columns) -> np.ndarray:
    exponents = np.geomspace(0.05, 1.5, 24)
    return _projected(columns, np.stack([exponents, exponents], axis=-1))[:, :4]


def _projected(columns: Columns, exponents_S2: np.ndarray) -> np.ndarray:
    """Variable projection: for given exponents the law is linear in E, A, B."""
    size_SN = columns["params"] ** -exponents_S2[:, :1]
    data_SN = columns["tokens"] ** -exponents_S2[:, 1:]
    basis_SNK = np.stack([np.ones_like(size_SN), size_SN, data_SN], axis=-1)
    # Divided by the loss: relative errors, which are what a log residual measures.
    weights = _nonnegative(basis_SNK / columns["loss"][:, None])
    # A term at 0 has the logarithm -inf, from which no step leads back.
    least = 1e-3 * columns["loss"].mean() / basis_SNK.mean(axis=1)
    return np.concatenate([np.log(np.maximum(weights, least)), exponents_S2], axis=-1)


def _kaplan_starts(columns: Columns) -> np.ndarray:
    exponents_S2 = np.array(list(itertools.product(GRID, GRID[:8])))
    an_S1, ad_S1 = exponents_S2[:, :1], exponents_S2[:, 1:]
    n_N, d_N, l_N = (np.log(columns[c]) for c in ("params", "tokens", "loss"))
    # Linear in N_c^(alpha_N / alpha_D) and D_c; in logarithms, since the powers are extreme.
    log_SNK = np.stack([-an_S1 / ad_S1 * n_N - l_N / ad_S1, -d_N - l_N / ad_S1], axis=-1)
    middle_SK = log_SNK.mean(axis=1)
    weights = _nonnegative(np.exp(np.clip(log_SNK - middle_SK[:, None], -50, 50)))
    nc_S, dc_S = (np.log(np.maximum(weights, 1e-3)) - middle_SK).T
    nc_S = nc_S * ad_S1[:, 0] / an_S1[:, 0]
    return np.stack([nc_S, dc_S, *np.log(exponents_S2.T)], axis=-1)


def _repeated_starts(columns: Columns) -> np.ndarray:
    once = columns["tokens"] <= columns["unique_tokens"] * 1.01
    base = {k: v[once] for k, v in columns.items()} if once.sum() >= 5 else columns
    saturation = np.log(list(itertools.product((2.0, 10.0, 50.0), (5.0, 20.0))))
    pairs = itertools.product(_tied_starts(base)[2::2], saturation)
    return np.array([np.concatenate(pair) for pair in pairs])


def _power_starts(columns: Columns) -> np.ndarray:
    x_N, y_N = np.log(columns["x"]), np.log(columns["y"])
    slope = np.polyfit(x_N, y_N, 1)[0]
    return np.array([[y_N.mean() - slope * x_N.mean(), slope]])


def _nonnegative(basis_SNK: np.ndarray) -> np.ndarray:
    """Least squares of a constant 1 on K non-negative terms, by trying every subset of terms."""
    # Terms differ by orders of magnitude; of one length they make a system that can be solved.
    scale = np.linalg.norm(basis_SNK, axis=1)
    basis_SNK = basis_SNK / scale[:, None]
    terms = basis_SNK.shape[-1]
    best_S, weights = np.full(len(basis_SNK), np.inf), np.zeros((len(basis_SNK), terms))
    subsets = (c for k in range(1, terms + 1) for c in itertools.combinations(range(terms), k))
    for subset in map(list, subsets):
        part = basis_SNK[..., subset]
        # The ridge keeps it solvable where two terms are all but the same.
        gram = part.swapaxes(1, 2) @ part + 1e-13 * np.eye(len(subset))
        found = np.linalg.solve(gram, part.sum(axis=1)[..., None])[..., 0]
        error_S = ((1 - np.einsum("snk,sk->sn", part, found)) ** 2).sum(axis=1)
        better = (found > 0).all(axis=1) & (error_S < best_S)
        best_S[better] = error_S[better]
        weights[better] = 0
        weights[np.ix_(better, subset)] = found[better]
    return weights / scale


def _report_sum(theta: np.ndarray) -> dict[str, float]:
    e, a, b = (float(np.exp(t)) for t in theta[:3])
    alpha, beta = (float(t) for t in theta[3:])
    share = beta / (alpha + beta)  # params ~ C^a, tokens ~ C^b where the loss is least
    floor = e if e > NO_FLOOR else 0.0
    return {"E": floor, "A": a, "B": b, "alpha": alpha, "beta": beta, "a": share, "b": 1 - share}


def _report_tied(theta: np.ndarray) -> dict[str, float]:
    return _report_sum(theta[[0, 1, 2, 3, 3]])


def _report_repeated(theta: np.ndarray) -> dict[str, float]:
    saturation = dict(
        zip(("R_N", "R_D"), np.exp(np.clip(theta[4:], -12, 12)).tolist(), strict=True)
    )
    return {**_report_tied(theta[:4]), **saturation}


def _report_kaplan(theta: np.ndarray) -> dict[str, float]:
    n_c, d_c, alpha_n, alpha_d = (float(t) for t in np.exp(theta))
    return {"N_c": n_c, "alpha_N": alpha_n, "D_c": d_c, "alpha_D": alpha_d}


def _report_power(theta: np.ndarray) -> dict[str, float]:
    return {"c": float(np.exp(theta[0])), "a": float(theta[1])}


LAWS = {
    "chinchilla": Law(5, sum_of_powers, _chinchilla_starts, _report_sum, floor=0),
    "tied": Law(4, tied, _tied_starts, _report_tied, floor=0),
    "kaplan": Law(4, kaplan, _kaplan_starts, _report_kaplan),
    "repeated": Law(6, repeated, _repeated_starts, _report_repeated, floor=0),
    "power": Law(2, power, _power_starts, _report_power),
}
