"""The report's plots as inline SVG, drawn by matplotlib in the page's own type and colours."""

import html
import io
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

ACCENT, INK, FAINT, WARM = "#0b6e8a", "#1d2b33", "#9fb0b8", "#c4661f"
SHADES = ("#8fc1cf", "#5aa3b8", "#2f88a3", "#0b6e8a", "#07536a", "#04384a", "#02222e")
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "headrace",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.grid": True,
    "grid.color": "#e6ecee",
    "grid.linewidth": 0.8,
    "xtick.color": "#5b6b73",
    "ytick.color": "#5b6b73",
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "text.color": INK,
}
MOST_POINTS = 400
LEGEND: dict[str, Any] = {"handlelength": 1.2, "columnspacing": 1.2, "borderaxespad": 0}
LEGEND_INCHES, LEGEND_LETTERS = 0.2, 46  # of a row
CROSS: dict[str, Any] = {"markersize": 7, "markeredgewidth": 1.8}


def loss_curve(rows: Sequence[Mapping[str, Any]], title: str) -> str:
    """Training loss by step, with a running mean; rows are those of `metrics.jsonl`."""
    steps = np.array([row["step"] for row in rows], dtype=float)
    loss = np.array([row["loss"] for row in rows], dtype=float)
    smooth = _running_mean(loss, len(loss) // 60)
    kept = np.unique(np.linspace(0, len(loss) - 1, MOST_POINTS).astype(int))

    def draw(axes: Axes) -> None:
        axes.plot(steps[kept], loss[kept], color=SHADES[0], linewidth=0.9)
        axes.plot(steps[kept], smooth[kept], color=ACCENT)
        axes.set_xlabel("step")
        axes.set_ylabel("loss, nats per target")
        _frame_losses(axes, loss)

    return svg(draw, f"Training loss of {title} by step", (3.7, 2.5))


def score_curve(points: Sequence[Mapping[str, Any]], title: str) -> str:
    """A score by step with its 95 % interval; dashed is what a guess would have. Points are those
    of `tasks.training.exams`.
    """
    steps = [point["step"] for point in points]
    low, high = zip(*(point["interval"] for point in points), strict=True)
    guess = points[-1]["baseline"]

    def draw(axes: Axes) -> None:
        axes.fill_between(steps, low, high, color=SHADES[0], alpha=0.4, linewidth=0)
        axes.plot(steps, [point["value"] for point in points], color=ACCENT, marker=".")
        if guess is not None:
            axes.axhline(guess, color=WARM, linewidth=0.9, linestyle="--")
        axes.set_xlabel("step")
        axes.set_ylabel(title.rpartition(", ")[2])

    return svg(draw, f"Score by step of {title}", (3.7, 2.5))


def loss_curves(curves: Sequence[Sequence[Sequence[float]]], by: str, title: str) -> str:
    """Losses of two trainings laid over each other, each with a running mean; `curves` are pairs of
    step or tokens (`by`) and loss, of the first and the second run. One of them may have none.
    """
    places = [np.array([x for x, _ in curve], dtype=float) for curve in curves]
    losses = [np.array([y for _, y in curve], dtype=float) for curve in curves]

    def draw(axes: Axes) -> None:
        for x, y, label, colour, width in zip(
            places, losses, "ab", (ACCENT, WARM), (2.6, 1.2), strict=True
        ):
            if len(y):  # the first is the broader line: where they are equal both are seen
                axes.plot(x, y, color=colour, linewidth=0.6, alpha=0.35)
                smooth = _running_mean(y, len(y) // 60)
                axes.plot(x, smooth, color=colour, linewidth=width, label=label)
        axes.set_xlabel(by)
        axes.set_ylabel("loss, nats per target")
        legend(axes)
        _frame_losses(axes, np.concatenate(losses))

    return svg(draw, f"Training losses of both runs, {title}, by {by}", (4.8, 2.8))


def legend(axes: Axes) -> None:
    """Say above the drawing, where no data are, what its lines are; it grows by as much."""
    handles, labels = axes.get_legend_handles_labels()
    figure, longest = cast(Figure, axes.figure), max(map(len, labels), default=0)
    columns = max(1, LEGEND_LETTERS // (5 + longest))
    rows = -(-len(labels) // columns)
    figure.set_figheight(figure.get_figheight() + LEGEND_INCHES * rows)
    figure.legend(handles, labels, loc="outside upper left", ncols=columns, **LEGEND)


def _frame_losses(axes: Axes, loss: np.ndarray) -> None:
    """Let a spike at the start run out of the frame rather than flatten the rest."""
    finite = loss[np.isfinite(loss)]
    if len(finite) > 20:
        low, high = np.quantile(finite, (0.0, 0.99))
        axes.set_ylim(low - 0.05 * (high - low), high + 0.08 * (high - low))


def _running_mean(values: np.ndarray, half: int) -> np.ndarray:
    """Mean of up to `half` values on either side."""
    sums, place = np.cumsum(np.insert(values, 0, 0.0)), np.arange(len(values))
    first, last = np.maximum(place - half, 0), np.minimum(place + half + 1, len(values))
    return (sums[last] - sums[first]) / (last - first)


def svg(draw: Callable[[Axes], None], description: str, inches: tuple[float, float]) -> str:
    """An SVG element that scales with its column and says what it shows."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure.add_subplot())
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r' xmlns:xlink="[^"]*"', "", text, count=1).replace("xlink:href", "href")
    text = re.sub(r' width="[^"]*pt"| height="[^"]*pt"', "", text, count=2)
    return text.replace("<svg", f'<svg role="img" aria-label="{html.escape(description)}"', 1)
