"""The report's section on variants of a recipe: their means, what is known of them, the best."""

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes

from cluster.artifact import Artifact
from tasks.report import words
from tasks.report.plots import ACCENT, INK, SHADES, svg
from tasks.scaling.variants.paired import probability

View = dict[str, Any]
MOST_ROWS = 30


def variants(artifacts: Sequence[Artifact]) -> View:
    """Table, plot and verdict of the last comparison; empty without one."""
    facts = artifacts[-1].manifest.facts if artifacts else {}
    if "variants" not in facts:
        return {}
    found, metric = facts["variants"], words.label(facts["metric"])
    shown = [one for one in found if one["mean"] is not None]
    best = next((one["label"] for one in found if one["values"] == facts["best"]), None)
    kinds = {(one["network"]["family"], one["network"]["objective"]) for one in found}
    return {
        "metric": metric,
        "better": "higher" if facts.get("higher_is_better") else "lower",
        "families": len(kinds) > 1,
        "rows": [
            one | {"p": one["p"] if one["p"] is None else probability(one["p"])} for one in found
        ],
        "best": best,
        "why": facts["why_no_best"],
        "test": facts["test"],
        "warnings": facts["warnings"],
        "plot": _plot(shown, facts, metric) if 1 < len(shown) <= MOST_ROWS else "",
    }


def _plot(found: Sequence[View], facts: View, metric: str) -> str:
    """A line a variant, the first on top: its runs, its mean, the mean's interval."""
    places = range(len(found) - 1, -1, -1)

    def draw(axes: Axes) -> None:
        for place, one in zip(places, found, strict=True):
            runs = [r.get(facts["metric"]) for r in facts["rows"] if r["variant"] == one["label"]]
            losses = [loss for loss in runs if loss is not None]
            axes.plot(losses, [place] * len(losses), "o", color=SHADES[0], markersize=4)
            if one["interval"]:
                axes.plot(one["interval"], [place] * 2, color=INK, linewidth=1.2)
            axes.plot([one["mean"]], [place], "D", color=ACCENT, markersize=5)
        axes.set_yticks(list(places), [one["label"] for one in found])
        axes.set_ylim(-0.6, len(found) - 0.4)
        axes.set_xlabel(metric)

    inches = (5.6, 0.9 + 0.26 * len(found))
    return svg(draw, f"{metric} of each variant, with 95 % intervals over seeds", inches)
