"""Plots of a reproduced law, each of the kind that its paper has.

parabolas   loss by size at equal compute, and each parabola's lowest point
runs        the published losses by size, and the law through them
optima      compute-optimal size by compute, published and own, with lines through them
ladder      loss by compute, a line a number of tokens per parameter
worth       what a token is worth by how often its text is seen
claims      every figure of the optima with its band
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from tasks.report import words
from tasks.report.plots import ACCENT, FAINT, SHADES, WARM, legend, svg
from tasks.report.scaling_plots import LOSS, SIZE, logarithmic, shade_of

if TYPE_CHECKING:
    from tasks.reproduction.ours import Ours

Fits = Mapping[str, Any]
Drawn = list[dict[str, str]]
MOST_LINES = 7
"""More sizes or budgets than these are thinned out."""
EPOCHS = np.geomspace(1, 60, 80)


def parabolas(fits: Fits, ours: "Ours") -> Drawn:
    """Of every arm with interior optima, by the count of all parameters."""
    from tasks.reproduction.ours import at_equal_compute

    found = []
    for name, arm in ours.arms.items():
        if len(arm.runs) < 3:
            continue
        columns = at_equal_compute(arm.runs, "all", np.zeros(len(arm.runs)))
        if not any(_valley(columns, budget) is not None for budget in np.unique(columns["flops"])):
            continue
        optima = arm.optimum["all"]["optima"]
        title = f"Loss by size at equal compute, {name}"
        found.append(_plot(title, _valleys, columns, optima))
    return found


def runs(fits: Fits, ours: "Ours") -> Drawn:
    """Of the first fit that has points and a law of params and tokens."""
    from tasks.reproduction.published import as_fitted
    from tasks.scaling.law.prediction import curve

    named = [(n, f) for n, f in fits.items() if "params" in f.get("points", ()) and "E" in f]
    if not named:
        return []
    name, fit = named[0]
    n, d, loss = (np.array(fit["points"][key]) for key in ("params", "tokens", "loss"))
    law, lengths = as_fitted(fit["form"], fit), np.quantile(d, np.linspace(0.05, 0.95, MOST_LINES))
    sizes = np.geomspace(n.min(), n.max(), 60)

    def draw(axes: Axes) -> None:
        order = np.searchsorted(lengths, d).clip(0, MOST_LINES - 1)
        for place, tokens in enumerate(lengths):
            at = {"params": sizes, "tokens": np.full(60, tokens)}
            shade = SHADES[place * (len(SHADES) - 1) // (MOST_LINES - 1)]
            axes.plot(n[order == place], loss[order == place], "o", color=shade, markersize=2.5)
            axes.plot(sizes, [row["loss"] for row in curve(law, at)], color=shade, linewidth=0.9,
                      label=f"{words.number(float(tokens), 2)} tokens")  # fmt: skip
        legend(axes)
        logarithmic(axes, "parameters", "loss, nats per token")

    return [_plot(f"The published runs and the law through them, {name}", draw)]


def optima(fits: Fits, ours: "Ours") -> Drawn:
    """The published pairs in one plot; own optima of every arm by each count in another."""
    pairs = {name: fit for name, fit in fits.items() if "x" in fit.get("points", ())}
    found = []
    if pairs:
        points = {n: (f["points"]["x"], f["points"]["y"]) for n, f in pairs.items()}
        found.append(_plot("Optimal size by compute, published", _lines, points))
    for count, counted in COUNTS.items():
        points = {}
        for name, arm in ours.arms.items():
            inside = [row for row in arm.optimum[count]["optima"] if row["interior"]]
            if inside:
                points[name] = [row["flops"] for row in inside], [row["params"] for row in inside]
        if points:
            found.append(_plot(f"Optimal size by compute, ours, {counted}", _lines, points))
    return found


def ladder(fits: Fits, ours: "Ours") -> Drawn:
    """Published runs and own, a line a ratio of tokens to parameters; squares were foretold."""
    found = []
    for fit in fits.values():
        if "params" in fit.get("points", ()):
            rows = [dict(zip(fit["points"], row, strict=True))
                    for row in zip(*fit["points"].values(), strict=True)]  # fmt: skip
            found.append(_plot("Loss by compute, published runs of the fit", _rungs, rows, []))
            break
    for name, arm in ours.arms.items():
        told = (arm.facts.get("forecast") or {}).get("targets", [])
        found.append(_plot(f"Loss by compute, {name}", _rungs, arm.runs, told))
    return found


def worth(fits: Fits, ours: "Ours") -> Drawn:
    """As the paper states it, as its runs and own ones say."""
    from tasks.reproduction.published import worth as value

    named = {name: fit for name, fit in fits.items() if "R_D" in fit}
    if "R_D" in ours.repeated:
        named["ours"] = ours.repeated

    def draw(axes: Axes) -> None:
        for place, (name, fit) in enumerate(named.items()):
            colour = WARM if name == "ours" else shade_of(place + 1, len(named) + 1)
            axes.plot(EPOCHS, [value(fit["R_D"], e) for e in EPOCHS], color=colour, label=name)
            if band := (fit.get("bands") or {}).get("R_D"):
                low, high = ([value(end, e) for e in EPOCHS] for end in band)
                axes.fill_between(EPOCHS, low, high, color=colour, alpha=0.15, linewidth=0)
        legend(axes)
        axes.set_ylim(0, 1.05)
        logarithmic(axes, "epochs", "worth of a token, in new ones")

    return [_plot("What a token is worth when its text is repeated", draw)] if named else []


def exponents(fits: Fits, ours: "Ours") -> Drawn:
    """Exponents a of optimal size, by fit, and by arm and count, each with its band."""
    rows = [(name, fit["a"], (fit.get("bands") or {}).get("a"), FAINT)
            for name, fit in fits.items() if fit.get("a") is not None]  # fmt: skip
    for name, arm in ours.arms.items():
        for count, counted in COUNTS.items():
            found = arm.optimum[count]
            if found["a"] is not None:
                bands = found.get("bands") or {}
                rows.append((f"ours, {name}, {counted}", found["a"], bands.get("a"), WARM))

    def draw(axes: Axes) -> None:
        for place, (_, a, band, colour) in enumerate(rows):
            if band:
                axes.plot(band, [-place, -place], color=colour, linewidth=2.5, alpha=0.5)
            axes.plot([a], [-place], "o", color=ACCENT if colour == FAINT else WARM, markersize=4)
        axes.set_yticks([-i for i in range(len(rows))], [row[0] for row in rows], fontsize=8)
        axes.axvline(0.5, color=FAINT, linewidth=0.8, linestyle="--")
        axes.set_xlabel("a of N ~ C^a")

    return (
        [_plot("Exponents of optimal size", draw, size=(4.6, 0.8 + 0.26 * len(rows)))]
        if rows
        else []
    )


COUNTS = {
    "kaplan": "no head, no embeddings",
    "head": "with the head",
    "all": "all parameters",
}
PLOTS: dict[str, Callable[[Fits, "Ours"], Drawn]] = {
    "parabolas": parabolas,
    "runs": runs,
    "optima": optima,
    "ladder": ladder,
    "worth": worth,
    "exponents": exponents,
}


def _plot(
    title: str, draw: Callable[..., None], *shown: Any, size: tuple[float, float] = SIZE
) -> dict[str, str]:
    """A plot that `draw` makes of what is `shown`."""
    return {"title": title, "svg": svg(partial(draw, *shown), title, size)}


def _valleys(columns: Mapping[str, Any], optima: Sequence[Mapping[str, Any]], axes: Axes) -> None:
    budgets = np.unique(columns["flops"])
    for place, budget in enumerate(budgets):
        if (valley := _valley(columns, budget)) is None:
            continue
        n, loss = valley
        shade = shade_of(place, len(budgets))
        axes.plot(n, loss, "o", color=shade, markersize=3.5)
        line = np.geomspace(n.min(), n.max(), 40)
        bend = np.polyfit(np.log(n), loss, 2)
        axes.plot(line, np.polyval(bend, np.log(line)), color=shade, linewidth=0.9,
                  label=f"{words.scientific(budget, 1)} FLOP")  # fmt: skip
    inside = [row for row in optima if row["interior"]]
    axes.plot([r["params"] for r in inside], [r["loss"] for r in inside], "x-", color=WARM)
    legend(axes)
    logarithmic(axes, "parameters", LOSS)


def _valley(columns: Mapping[str, Any], budget: float) -> tuple[np.ndarray, np.ndarray] | None:
    """Sizes and losses at a budget; None where there are fewer than a parabola needs."""
    here = np.isclose(columns["flops"], budget)
    return (columns["params"][here], columns["loss"][here]) if here.sum() >= 3 else None


def _lines(points: Mapping[str, tuple[Sequence[float], Sequence[float]]], axes: Axes) -> None:
    for place, (name, (x, y)) in enumerate(points.items()):
        shade, label = shade_of(place + 1, len(points) + 1), name
        if len(x) > 1:
            slope, level = np.polyfit(np.log(x), np.log(y), 1)
            ends = np.array([min(x), max(x)])
            axes.plot(ends, np.exp(level) * ends**slope, color=shade, linewidth=1)
            label = f"{name}: {slope:.3f}"
        axes.plot(x, y, "o", color=shade, markersize=3.5, label=label)
    axes.set_yscale("log")
    legend(axes)
    logarithmic(axes, "training compute, FLOP", "optimal parameters")


def _rungs(
    rows: Sequence[Mapping[str, Any]], told: Sequence[Mapping[str, Any]], axes: Axes
) -> None:
    def work(row: Mapping[str, Any]) -> float:
        return float(row.get("flops") or 6 * row["params"] * row["tokens"])

    groups = _by_ratio(rows)
    for place, (label, some) in enumerate(groups.items()):
        mine = sorted(some, key=work)
        shade, style = shade_of(place, len(groups)), "o" if " to " in label else "o-"
        axes.plot([work(r) for r in mine], [r["loss"] for r in mine], style, color=shade,
                  markersize=3.5, linewidth=0.9, label=f"{label} tokens each")  # fmt: skip
    for target in told:
        guess = target["predictions"][0]
        low, high = guess.get("low", guess["loss"]), guess.get("high", guess["loss"])
        axes.plot([target["flops"]] * 2, [low, high], "_-", color=WARM, markersize=7)
        axes.plot([target["flops"]], [guess["loss"]], "s", color=WARM, markersize=4)
    axes.set_yscale("log")
    legend(axes)
    logarithmic(axes, "training compute, FLOP", "loss, nats per token")


def _by_ratio(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Runs by their tokens a parameter; of more than a few ratios, by stretches of these."""
    ratio_N = np.array([float(f"{row['tokens'] / row['params']:.2g}") for row in rows])
    some = np.unique(ratio_N)
    groups = np.array_split(some, min(len(some), MOST_LINES)) if rows else []
    found = {}
    for group in groups:
        ends = dict.fromkeys(f"{ratio:g}" for ratio in group[[0, -1]])
        inside = (group[0] <= ratio_N) & (ratio_N <= group[-1])
        found[" to ".join(ends)] = [rows[place] for place in np.flatnonzero(inside).tolist()]
    return found
