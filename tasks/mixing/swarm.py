"""The weights of a swarm's runs, and the regression of their losses by domain.

1. Weights are drawn from Dirichlet distributions of concentrations between sparse and even, so that
   corners and middle of the simplex are both seen (RegMix, Liu et al. 2025, section 3.1); the first
   run is uniform.
2. The log loss of each domain is linear in the logs of the weights: loss falls as a power of the
   tokens of a domain (Kaplan 2020, eq. 1.2), and text of others helps as a smaller power. All
   domains have one power of their own text unless the runs tell otherwise: how far each may differ
   from it, and what the others' text does, is kept by a ridge that foretells left-out runs best.
   So a noisy swarm proposes about as much of each, not whatever its noise says.
3. The proposal has the least mean loss over domains; its band is that of resampled runs.
"""

from dataclasses import dataclass

import numpy as np

SOFTENING = 0.01  # of a share, whose logarithm is taken
RIDGES = (0.01, 0.1, 1.0, 10.0, 1000.0)
REPLICAS, BAND = 100, (0.05, 0.95)
CONCENTRATIONS = (0.7, 1.5, 4.0)
DIGITS = 4


@dataclass(frozen=True)
class Surface:
    """Losses of domains [K] by weights of sources [K]: level [K] and slopes [K, K] of log loss by
    log weight, and the standard deviation [K] of a run about it.
    """

    level_K: np.ndarray
    slopes_KK: np.ndarray
    noise_K: np.ndarray

    def losses(self, weights_RK: np.ndarray) -> np.ndarray:
        """Losses [R, K] of some mixtures."""
        return np.exp(self.level_K + features(weights_RK) @ self.slopes_KK)


def draw(count: int, sources: int, least: float) -> np.ndarray:
    """The weights [R, K] of a swarm, each source having its least share; always the same."""
    generator = np.random.default_rng(0)
    drawn = [np.full(sources, 1 / sources)]
    while len(drawn) < count:
        strength = CONCENTRATIONS[len(drawn) % len(CONCENTRATIONS)]
        drawn.append(generator.dirichlet(np.full(sources, strength)))
    return np.round(kept(np.array(drawn), least), DIGITS)


def kept(weights_RK: np.ndarray, least: float) -> np.ndarray:
    """Shares that leave every source its least."""
    return least + (1 - least * weights_RK.shape[-1]) * weights_RK


def features(weights_RK: np.ndarray) -> np.ndarray:
    """Logarithms of shares, which stay finite without any text of a source."""
    return np.log(weights_RK / weights_RK.sum(axis=-1, keepdims=True) + SOFTENING)


def fit(weights_RK: np.ndarray, losses_RK: np.ndarray) -> Surface:
    """The surface through the runs, with the ridge that foretells left-out ones best."""
    missed = [_missed(weights_RK, losses_RK, ridge).sum() for ridge in RIDGES]
    return _fit(weights_RK, losses_RK, RIDGES[int(np.argmin(missed))])


def _fit(weights_RK: np.ndarray, losses_RK: np.ndarray, ridge: float) -> Surface:
    """Ridge regression about the power that all domains have of their own text."""
    x_RK, log_RK = features(weights_RK), np.log(losses_RK)
    part_RK, rest_RK = x_RK - x_RK.mean(axis=0), log_RK - log_RK.mean(axis=0)
    # More text of a domain does not make its loss worse.
    shared = min(0.0, float((part_RK * rest_RK).sum() / max((part_RK**2).sum(), 1e-30)))
    gram = part_RK.T @ part_RK + ridge * len(part_RK) * np.eye(part_RK.shape[1])
    slopes_KK = np.linalg.solve(gram, part_RK.T @ (rest_RK - shared * part_RK))
    slopes_KK = slopes_KK + shared * np.eye(part_RK.shape[1])
    missed_RK = rest_RK - part_RK @ slopes_KK
    freedom = max(1, len(x_RK) - x_RK.shape[1] - 1)
    noise_K = np.sqrt((missed_RK**2).sum(axis=0) / freedom)
    return Surface(log_RK.mean(axis=0) - x_RK.mean(axis=0) @ slopes_KK, slopes_KK, noise_K)


def _missed(weights_RK: np.ndarray, losses_RK: np.ndarray, ridge: float) -> np.ndarray:
    """Squared errors [R, K] of log losses of runs that are left out, one at a time."""
    found, every = [], np.arange(len(weights_RK))
    for run in every:
        others = every != run
        surface = _fit(weights_RK[others], losses_RK[others], ridge)
        told_K = surface.losses(weights_RK[run : run + 1])[0]
        found.append(np.log(told_K / losses_RK[run]) ** 2)
    return np.array(found)


def best(surface: Surface, least: float) -> np.ndarray:
    """The weights [K] of the least mean loss over domains, by search from several starts."""
    from scipy.optimize import minimize

    sources = len(surface.level_K)

    def shares(free_K: np.ndarray) -> np.ndarray:
        power_K = np.exp(free_K - free_K.max())
        return kept(power_K / power_K.sum(), least)

    def mean(free_K: np.ndarray) -> float:
        return float(surface.losses(shares(free_K)[None]).mean())

    starts = [np.zeros(sources), *(2 * np.eye(sources))]
    found = [
        minimize(mean, start, method="L-BFGS-B", bounds=[(-6, 6)] * sources) for start in starts
    ]
    return shares(min(found, key=lambda one: one.fun).x)


def resampled(weights_RK: np.ndarray, losses_RK: np.ndarray) -> list[Surface]:
    """Surfaces through resamples of the runs; those with too few distinct ones are left out."""
    generator, (runs, sources) = np.random.default_rng(0), weights_RK.shape
    draws = generator.integers(runs, size=(REPLICAS, runs))
    return [fit(weights_RK[d], losses_RK[d]) for d in draws if len(set(d)) > sources + 1]


def explained(weights_RK: np.ndarray, losses_RK: np.ndarray) -> np.ndarray:
    """Share [K] of the variance of log losses that runs left out are foretold with (R squared)."""
    tried = [_missed(weights_RK, losses_RK, ridge).sum(axis=0) for ridge in RIDGES]
    missed_K = min(tried, key=lambda missed: float(missed.sum()))
    log_RK = np.log(losses_RK)
    whole_K = ((log_RK - log_RK.mean(axis=0)) ** 2).sum(axis=0)
    return 1 - missed_K / np.maximum(whole_K, 1e-30)
