"""Plots of a sweep: the law through the runs, valleys, frontier, residuals, collapse."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import MaxNLocator, NullLocator

from tasks.report import words
from tasks.report.plots import ACCENT, FAINT, SHADES, WARM, legend, svg

Row = Mapping[str, Any]
SIZE = (3.7, 2.8)
TICKS = ((2, (1,)), (1, (1,)), (1, (1, 3)), (1, (1, 2, 5)), (1, (1, 2, 3, 4, 6)), (1, range(1, 10)))
"""Decades from one tick to the next and those within them, the fewest first."""
LOSS = "held-out loss, nats per token"


def drawn(facts: Mapping[str, Any], curves: Mapping[str, Sequence[Row]]) -> list[dict[str, str]]:
    """Every plot that the facts of a fit allow: `title` and `svg`."""
    runs = [run for run in facts["runs"] if run["status"] == "finished"]
    if len(runs) < 2:
        return []
    lines = facts.get("curves") or {}
    plots = [
        ("Loss by compute, with the law's frontier", partial(_by_compute, runs, lines, facts)),
        ("Loss by training tokens, a line per size", partial(_by_data, runs, lines)),
        ("Loss by size at equal compute", partial(_valleys, runs, lines)),
    ]
    if lines.get("flops"):
        plots.append(("Compute-optimal size and tokens", partial(_frontier, runs, lines)))
    if "residuals" in facts:
        plots.append(("Measured over fitted loss", partial(_residuals, facts["residuals"])))
        collapsed = _collapsed(facts, curves)
        if len(collapsed) > 3:
            plots.append(
                ("Training curves, collapsed", partial(_collapse, collapsed, facts["suspects"]))
            )
    return [{"title": title, "svg": svg(draw, title, SIZE)} for title, draw in plots]


def _by_compute(
    runs: Sequence[Row], lines: Mapping[str, Any], facts: Mapping[str, Any], axes: Axes
) -> None:
    _band(axes, lines.get("flops", ()), "flops", ACCENT)
    _points(axes, runs, "flops", "width")
    for target in facts.get("predictions", ()):
        for guess in target["predictions"][:1]:
            _target(axes, target["flops"], guess)
    logarithmic(axes, "training compute, FLOP", LOSS)


def _by_data(runs: Sequence[Row], lines: Mapping[str, Any], axes: Axes) -> None:
    for _, rows in _grouped(lines.get("tokens", ()), "params"):
        _band(axes, rows, "tokens", FAINT)
    _points(axes, runs, "tokens", "width")
    _frame(axes, runs)
    logarithmic(axes, "training tokens", LOSS)


def _valleys(runs: Sequence[Row], lines: Mapping[str, Any], axes: Axes) -> None:
    marked = [run | {"budget": float(f"{run['flops']:.1g}")} for run in map(dict, runs)]
    for _, rows in _grouped(lines.get("params", ()), "flops"):
        _band(axes, rows, "params", FAINT)
    _points(axes, marked, "params", "budget", joined=True)
    _frame(axes, runs)
    logarithmic(axes, "parameters", LOSS)


def _frontier(runs: Sequence[Row], lines: Mapping[str, Any], axes: Axes) -> None:
    x = [row["flops"] for row in lines["flops"]]
    for name, colour in (("params", ACCENT), ("tokens", WARM)):
        label = f"optimal {'parameters' if name == 'params' else name}"
        axes.plot(x, [row[name] for row in lines["flops"]], color=colour, label=label)
        sizes = [run[name] for run in runs]
        axes.plot([r["flops"] for r in runs], sizes, ".", color=colour, alpha=0.4, markersize=4)
    axes.set_yscale("log")
    legend(axes)
    logarithmic(axes, "training compute, FLOP", "count")


def _residuals(rows: Sequence[Row], axes: Axes) -> None:
    axes.axhline(0, color=FAINT, linewidth=1)
    for suspected, colour in ((False, ACCENT), (True, WARM)):
        kept = [row for row in rows if row["suspected"] == suspected]
        x, y = [r["flops"] for r in kept], [100 * r["residual"] for r in kept]
        label = "suspected of bad training" if suspected and kept else None
        axes.plot(x, y, "o", color=colour, markersize=4, label=label)
        if label:
            legend(axes)
    logarithmic(axes, "training compute, FLOP", "above the law, %")


def _collapsed(facts: Mapping[str, Any], curves: Mapping[str, Sequence[Row]]) -> dict[str, Any]:
    from tasks.scaling.law.diagnostics import collapse

    residuals = {row["name"]: row["residual"] for row in facts["residuals"]}
    ends = {
        run["name"]: (run["loss"], run["loss"] * math.exp(-residuals[run["name"]]))
        for run in facts["runs"]
        if run["name"] in residuals
    }
    rows = {name: list(map(dict, curve)) for name, curve in curves.items()}
    return collapse(rows, ends, facts["fit"].get("E") or 0.0)


def _collapse(found: Mapping[str, Any], suspects: Sequence[str], axes: Axes) -> None:
    names = [name for name in found if name != "share"]
    for index, name in enumerate(names):
        bad = name in suspects
        colour, label = (WARM, name) if bad else (shade_of(index, len(names)), None)
        axes.plot(found["share"], found[name], color=colour, linewidth=0.9, label=label)
    axes.axhline(1, color=FAINT, linewidth=1)
    if suspects:
        legend(axes)
    axes.set_xlabel("share of the steps")
    axes.set_ylabel("loss above E, over the law's")


def _points(axes: Axes, runs: Sequence[Row], x: str, group: str, joined: bool = False) -> None:
    groups = _grouped(runs, group)
    for index, (value, rows) in enumerate(groups):
        rows = sorted(rows, key=lambda row: row[x])
        name = f"width {value}" if group == "width" else f"{words.scientific(value, 0)} FLOP"
        style = "o-" if joined else "o"
        across, up = [row[x] for row in rows], [row["loss"] for row in rows]
        shade = shade_of(index, len(groups))
        axes.plot(across, up, style, color=shade, markersize=3.5, linewidth=0.8, label=name)
    legend(axes)


def _frame(axes: Axes, runs: Sequence[Row]) -> None:
    """Show the losses of the runs; what the law says far from them may leave the frame."""
    low, high = min(run["loss"] for run in runs), max(run["loss"] for run in runs)
    axes.set_ylim(low - 0.08 * (high - low), high + 0.15 * (high - low))


def _band(axes: Axes, rows: Sequence[Row], x: str, colour: str) -> None:
    if rows:
        across = [row[x] for row in rows]
        low, high = [row["low"] for row in rows], [row["high"] for row in rows]
        axes.fill_between(across, low, high, color=colour, alpha=0.15, linewidth=0)
        axes.plot(across, [row["loss"] for row in rows], color=colour, linewidth=1)


def _target(axes: Axes, flops: float, guess: Row) -> None:
    low, high = guess.get("low", guess["loss"]), guess.get("high", guess["loss"])
    axes.plot([flops, flops], [low, high], "_-", color=WARM, markersize=7, linewidth=1.2)
    axes.plot([flops], [guess["loss"]], "s", color=WARM, markersize=4)


def logarithmic(axes: Axes, x: str, y: str) -> None:
    """A logarithmic axis of round numbers, the other one too where it is so, and names of both."""
    axes.set_xscale("log")
    _round(axes.xaxis, axes.get_xlim())
    if axes.get_yscale() == "log":
        _round(axes.yaxis, axes.get_ylim())
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _round(axis: Axis, limits: tuple[float, float]) -> None:
    """Few ticks, as numbers within a decade and by powers of ten across some."""
    axis.set_minor_locator(NullLocator())
    low, high = limits
    ticks, small = _ticks(low, high), high < 1000 and high < 5 * low
    if small or len(ticks) < 2:
        axis.set_major_locator(MaxNLocator(4))
    else:
        axis.set_ticks(ticks)
    digits = int(len(ticks) < 2)
    axis.set_major_formatter(
        lambda value, _: f"{value:g}" if small else words.scientific(value, digits)
    )


def _ticks(low: float, high: float) -> list[float]:
    """Three or more round numbers within a range, as few as there may be."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1
    for step, factors in TICKS:
        found = [f * 10.0**k for k in range(first, last, step) for f in factors]
        if len(found := [tick for tick in found if low <= tick <= high]) >= 3:
            break
    return found


def _grouped(rows: Sequence[Row], key: str) -> list[tuple[Any, list[Row]]]:
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(row)
    return sorted(found.items(), key=lambda item: item[0] or 0)


def shade_of(index: int, count: int) -> str:
    """The colour of one of several lines."""
    return SHADES[index * (len(SHADES) - 1) // max(1, count - 1)]
