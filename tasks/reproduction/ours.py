"""What sweeps of one's own say of a published law: figures by path, computed when asked for.

sweep.law.a               of the law fitted to the arm `sweep` (`tasks.scaling.law.stage.fit`)
sweep.optimum.all.a       of parabolas at equal compute, by one of the counts
sweep.kaplan.alpha_N      of Kaplan's law, without embeddings
sweep.forecast.0.error    of the first larger run, in per cent
all.repeated.R_D          of all arms together, each with its own unique text
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from tasks.reproduction.published import Figures, more
from tasks.scaling.law import isoflop
from tasks.scaling.law.fit_file import fit_columns
from tasks.scaling.law.runs import Columns

Run = Mapping[str, Any]
COUNTS = ("kaplan", "head", "all")
"""What a model's size, and its cost a token, are: `kaplan` neither embeddings nor head, 6 N; `head`
what a token is multiplied by, attention and head included (Porian's standard); `all` parameters,
embeddings included, and exact FLOPs."""
KINDS = ("law", "optimum", "kaplan", "forecast")
DRAWS = 200
BUDGETS = 9
BAND = (0.05, 0.95)
LEAST_NOISE = 2e-3
ROOM = 1.02  # by rounding to whole batches, runs of one budget differ a little


class Arm:
    """A sweep: its runs, the larger ones included, and the figures they give."""

    def __init__(self, facts: Mapping[str, Any], unique_tokens: float):
        self.facts = facts
        finished = [dict(run) for run in facts["runs"] if run["loss"] is not None]
        self.runs = [run | {"unique_tokens": min(run["tokens"], unique_tokens)} for run in finished]

    @cached_property
    def law(self) -> Figures:
        """The law of the fit."""
        return dict(self.facts["fit"])

    @cached_property
    def noise(self) -> float:
        """Standard deviation of a run's log loss about the law."""
        return max(LEAST_NOISE, self.law.get("rms_log_residual") or 0.0)

    @cached_property
    def optimum(self) -> Figures:
        """Compute-optimal sizes by each count."""
        return {count: optimum(self.runs, count, self.noise) for count in COUNTS}

    @cached_property
    def kaplan(self) -> Figures:
        """Kaplan's law of parameters without embeddings."""
        columns = columns_of(self.runs) | {"params": _array(self.runs, "params_non_embedding")}
        return _fitted(columns, "kaplan")

    @cached_property
    def forecast(self) -> list[Figures]:
        """The larger runs: `error` of what was foretold, in per cent, with that of its band."""
        told = (self.facts.get("forecast") or {}).get("targets", ())
        return [_error(one) for one in told if one["measured"] and one["predictions"]]

    def step(self, part: str) -> Any:
        """One kind of figures; see the module's head."""
        return getattr(self, part) if part in KINDS else None


class Ours:
    """All arms, and the figures that a path leads to."""

    def __init__(self, arms: Mapping[str, Arm]):
        self.arms = arms

    @cached_property
    def repeated(self) -> Figures:
        """The law of repeated data through the runs of all arms."""
        runs = [run for arm in self.arms.values() for run in arm.runs]
        return _fitted(columns_of(runs, "unique_tokens"), "repeated")

    def step(self, part: str) -> Any:
        """An arm; or, of all together, the law of repeated data."""
        return {"repeated": self.repeated} if part == "all" else self.arms.get(part)


def optimum(runs: Sequence[Run], count: str, noise: float) -> Figures:
    """`a` of N ~ C^a with its 90 % band, and the `optima` it goes through: at each of some budgets,
    losses of the sizes, interpolated along their lengths, and a parabola in log size (Porian 2024,
    section 3). The band is that of runs whose losses differ by the noise.
    """
    plain = _optima(runs, count, np.zeros(len(runs)))
    generator, drawn = np.random.default_rng(0), []
    for _ in range(DRAWS if isoflop.exponents(plain)[0] is not None else 0):
        rows = _optima(runs, count, generator.normal(0, noise, len(runs)))
        if (a := isoflop.exponents(rows)[0]) is not None:
            drawn.append(a)
    found: Figures = {"a": isoflop.exponents(plain)[0], "optima": plain}
    if len(drawn) > 1:
        found["bands"] = {"a": np.quantile(drawn, BAND).tolist()}
    return found


def at_equal_compute(runs: Sequence[Run], count: str, error_N: np.ndarray) -> Columns:
    """Runs of every size at each of some budgets, by interpolation along the size's lengths."""
    size_N, cost_N = counted(runs, count)
    tokens_N, log_N = _array(runs, "tokens"), np.log(_array(runs, "loss")) + error_N
    work_N = cost_N * tokens_N
    rows = []
    for budget in np.geomspace(work_N.min(), work_N.max(), BUDGETS):
        for size in np.unique(size_N):
            mine = np.flatnonzero(size_N == size)
            mine = mine[np.argsort(tokens_N[mine])]
            tokens = budget / cost_N[mine[0]]
            if tokens_N[mine[0]] / ROOM <= tokens <= tokens_N[mine[-1]] * ROOM:
                log = np.interp(np.log(tokens), np.log(tokens_N[mine]), log_N[mine])
                rows.append((size, tokens, np.exp(log), budget))
    names = ("params", "tokens", "loss", "flops")
    return dict(zip(names, np.array(rows).reshape(-1, 4).T, strict=True))


def counted(runs: Sequence[Run], count: str) -> tuple[np.ndarray, np.ndarray]:
    """Sizes [N] and FLOPs a token [N] by one of `COUNTS`."""
    per_token_N = _array(runs, "flops") / _array(runs, "tokens")
    if count == "all":
        return _array(runs, "params"), np.round(per_token_N)
    size_N = (
        _array(runs, "params_non_embedding") if count == "kaplan" else np.round(per_token_N / 6)
    )
    return size_N, 6 * size_N


def columns_of(runs: Sequence[Run], *more: str) -> dict[str, np.ndarray]:
    """Runs as columns to fit."""
    return {name: _array(runs, name) for name in ("params", "tokens", "loss", *more)}


def _optima(runs: Sequence[Run], count: str, error_N: np.ndarray) -> list[dict[str, Any]]:
    columns = at_equal_compute(runs, count, error_N)
    return isoflop.optima(columns) if len(columns["loss"]) else []


def _fitted(columns: Columns, form: str) -> Figures:
    """A fit with its bands; nothing where the runs are too few for it."""
    from cluster.errors import BadInput

    try:
        found = fit_columns(columns, form, bootstrap=DRAWS)
    except BadInput as error:
        return {"warnings": [str(error)]}
    return found | more(form, found)


def _error(target: Mapping[str, Any]) -> Figures:
    first, measured = target["predictions"][0], target["measured"]
    ends = [100 * abs(first[end] / measured - 1) for end in ("low", "high") if end in first]
    found: Figures = {"error": 100 * abs(first["loss"] / measured - 1), "reach": target["reach"]}
    return found | ({"bands": {"error": [0.0, max(ends)]}} if ends else {})


def _array(runs: Sequence[Run], name: str) -> np.ndarray:
    return np.array([run[name] for run in runs], dtype=float)
