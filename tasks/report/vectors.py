"""The report's section on word vectors: neighbours, where they lie, and agreement with people."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from cluster.artifact import Artifact
from tasks.report.plots import ACCENT, FAINT, INK, WARM, svg

View = dict[str, Any]
HUES = (ACCENT, WARM, "#5b7f2b", "#8a4fa0", "#a3324e", "#3f5fb0", "#8a6d1f", "#4c5a61")


def vectors(made: Sequence[Artifact], scored: Sequence[Artifact]) -> View:
    """What the section shows of the last word vectors and their scores; empty without any."""
    if not made:
        return {}
    manifest = made[-1].manifest
    found, scores = manifest.facts, scored[-1].manifest.facts if scored else {}
    rows = [(row, "spearman") for row in scores.get("similarity", [])]
    rows += [(row, "accuracy") for row in scores.get("analogies", [])]
    return {
        "method": found["method"].replace("_", " "),
        "metrics": manifest.metrics,
        "neighbours": found["neighbours"],
        "projected": found["projected"],
        "plot": projection(found["projection"]),
        "scores": [row | {"figure": figure, "value": row[figure]} for row, figure in rows],
    }


def projection(points: Sequence[Sequence[Any]]) -> str:
    """Words where they lie in a plane, [word, group, x, y]; a group has one hue."""

    def draw(axes: Axes) -> None:
        for word, group, x, y in points:
            hue = HUES[group % len(HUES)]
            axes.plot([x], [y], "o", color=hue, markersize=2.5)
            axes.annotate(
                word,
                (x, y),
                (2, 2),
                textcoords="offset points",
                fontsize=7,
                color=hue,
                parse_math=False,
            )
        axes.axhline(0, color=FAINT, linewidth=0.5)
        axes.axvline(0, color=FAINT, linewidth=0.5)
        axes.set_xlabel("first principal component", color=INK)
        axes.set_ylabel("second")

    return svg(draw, "Words and their neighbours in the plane of most variance", (6.4, 4.4))
