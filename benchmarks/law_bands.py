"""Do the 90 % bands of scaling laws hold 90 % of unseen runs, and are bad runs told from good ones?

    uv run python benchmarks/law_bands.py [--sweep FORM:RUNS.csv]... [--synthetic 200]

Each sweep is fitted without its largest runs (a third at most, fifteen at most), which are then
predicted from the rest. Synthetic sweeps follow a Chinchilla law drawn at random, on grids of five
kinds, with noise of .1 to 3 % of four kinds. In each sweep a few runs are then made 5 % worse; in
those given, each run in turn.
Coverage, the median width of a band, good runs suspected, and bad runs found are printed by sweep,
and by kind of synthetic sweep.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from tasks.scaling.law import robust
from tasks.scaling.law.diagnostics import suspects
from tasks.scaling.law.fit import Fitted, problem_of
from tasks.scaling.law.laws import LAWS
from tasks.scaling.law.prediction import predict
from tasks.scaling.law.runs import Columns, read

MOST_LEFT_OUT, BAD = 15, 0.05
NOISES = ("normal", "heavy tails", "small runs noisier", "large runs noisier")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweep", action="append", default=[], metavar="FORM:RUNS.csv")
    parser.add_argument("--synthetic", type=int, default=200)
    options = parser.parse_args()
    print(f"{'':34} covered  width  suspected  found", flush=True)
    for sweep in options.sweep:
        form, _, path = sweep.partition(":")
        runs = read(Path(path), form, {})
        show(f"{Path(path).stem} {form}", [measure(runs, form, largest(runs), each_once(runs))])
    found = defaultdict(list)
    for seed in range(options.synthetic):
        design, noise, runs, left_out = synthetic(seed)
        row = measure(runs, "chinchilla", left_out, each_once(runs, seed)[:1])
        for name in ("all synthetic", design, noise):
            found[name].append(row)
    for name, rows in found.items():
        show(f"{name} ({len(rows)})", rows)


def measure(
    runs: Columns, form: str, left_out: np.ndarray, made_worse: Iterable[np.ndarray]
) -> list[float]:
    """Share of left-out runs inside their bands, median width, suspects among the runs as they are,
    share of those made worse that are suspected.
    """
    law = fitted({name: c[~left_out] for name, c in runs.items()}, form)
    inside, width = [], []
    for i in np.flatnonzero(left_out):
        told = predict(law, {name: c[i : i + 1] for name, c in runs.items() if name != "loss"})
        inside.append(told["low"] <= runs["loss"][i] <= told["high"])
        width.append(np.log(told["high"] / told["low"]) / 2)
    count, found = len(left_out), []
    for worse in made_worse:
        factor = np.where(np.isin(np.arange(count), worse), 1 + BAD, 1)
        named = suspects(fitted({**runs, "loss": runs["loss"] * factor}, form))
        found.append(len(set(named) & set(worse.tolist())) / len(worse))
    alarms = len(suspects(fitted(runs, form))) / count
    return [float(np.mean(inside)), float(np.median(width)), alarms, float(np.mean(found))]


def each_once(runs: Columns, seed: int = 0) -> list[np.ndarray]:
    """Indices of the runs in random order, one of 25 at a time."""
    count = len(runs["loss"])
    order = np.random.default_rng(seed).permutation(count)
    return np.array_split(order, -(-count // max(1, count // 25)))


def fitted(runs: Columns, form: str) -> Fitted:
    """A law without the doubts, which take most of the time."""
    problem = problem_of(runs, form)
    theta_P = robust.best_of_starts(problem)
    return Fitted(form, problem, theta_P, theta_P[None], None, [])


def largest(runs: Columns) -> np.ndarray:
    """Mask of the runs that take the most compute."""
    order = np.argsort(-runs["params"] * runs["tokens"])
    return np.isin(np.arange(len(order)), order[: min(MOST_LEFT_OUT, len(order) // 3)])


def synthetic(seed: int) -> tuple[str, str, Columns, np.ndarray]:
    """Kind of grid, kind of noise, runs, and the mask of the largest budget."""
    rng = np.random.default_rng(seed)
    design = list(DESIGNS)[seed % len(DESIGNS)]
    noise = NOISES[seed // len(DESIGNS) % len(NOISES)]
    params, tokens, left_out = DESIGNS[design]()
    alpha, beta = rng.uniform(0.28, 0.45, 2)
    sizes = rng.uniform(0.15, 0.5, 2) * (1e8**alpha, 5e9**beta)
    theta_P = np.array([*np.log([rng.uniform(1.2, 2.2), *sizes]), alpha, beta])
    runs = {"params": params, "tokens": tokens}
    work = np.log(params * tokens)
    place = (work - work.min()) / np.ptp(work) - 0.5
    spread = np.exp(rng.uniform(np.log(0.001), np.log(0.03)))
    error = spread * rng.normal(size=len(params))
    if noise == "heavy tails":
        error = spread * rng.standard_t(3, size=len(params)) / np.sqrt(3)
    slope = {"small runs noisier": -1.1, "large runs noisier": 1.1}.get(noise, 0.0)
    log_loss = LAWS["chinchilla"].evaluate(theta_P[None], runs)[0][0]
    loss = np.exp(log_loss + error * np.exp(slope * place))
    return design, noise, {**runs, "loss": loss}, left_out


def budgets(flops: np.ndarray, sizes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Params, tokens and the mask of the last budget of an IsoFLOP sweep."""
    about = np.geomspace(0.2, 5, sizes)
    params = (np.sqrt(flops / 120)[:, None] * about).ravel()
    last = np.repeat(np.arange(len(flops)), sizes) == len(flops) - 1
    return params, np.repeat(flops, sizes) / 6 / params, last


def rectangle(side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Params, tokens and the mask of the dearest runs of a grid of sizes by lengths."""
    axes = np.meshgrid(np.geomspace(1e7, 3e9, side), np.geomspace(3e8, 1e11, side))
    params, tokens = (axis.ravel() for axis in axes)
    return params, tokens, params * tokens > (params * tokens).max() / 5


DESIGNS = {
    "5 budgets of 6": lambda: budgets(np.geomspace(1e18, 1e20, 5), 6),
    "9 budgets of 5": lambda: budgets(np.geomspace(1e17, 1e21, 9), 5),
    "3 budgets of 4": lambda: budgets(np.geomspace(3e18, 3e19, 3), 4),
    "6 by 6": lambda: rectangle(6),
    "4 by 4": lambda: rectangle(4),
}


def show(name: str, rows: list[list[float]]) -> None:
    """Print the means of the rows."""
    covered, width, alarms, found = np.mean(rows, axis=0)
    print(f"{name:34} {covered:7.1%} {width:6.2%} {alarms:10.1%} {found:6.0%}", flush=True)


if __name__ == "__main__":
    main()
