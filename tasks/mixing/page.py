"""The page of `headrace mix`: the weights proposed, the runs they come from, and what larger runs
say of them.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from tasks.report.plots import ACCENT, FAINT, WARM, legend, svg
from tasks.report.scaling_plots import SIZE
from tasks.report.template import fill

View = dict[str, Any]
MOST_PLOTS = 12
UNIFORM = "uniform"
COLOURS = (WARM, ACCENT)


def render(proposal: Mapping[str, Any], confirmed: Mapping[str, Any], proposed: str) -> str:
    """The page as HTML, from the facts of `propose` and of `confirm`."""
    sources = list(proposal["weights"])
    losses = by_mixture(confirmed["rows"], sources)
    plots = [_weights(proposal), _gaps(confirmed["rows"], sources)]
    plots += [_runs(proposal, source) for source in sources[:MOST_PLOTS]]
    values = {
        "proposed": proposed,
        "sources": [_source(proposal, name) for name in sources],
        "mixtures": [
            {"name": name, "losses": list(found.values()), "mean": confirmed["mixtures"][name]}
            for name, found in losses.items()
        ],
        "against": confirmed["against"],
        "runs": len(proposal["runs"]),
        "plots": [plot for plot in plots if plot],
    }
    return fill("mixture.html.j2", values)


def by_mixture(
    rows: Sequence[Mapping[str, Any]], sources: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Mean loss over seeds of each mixture on each source."""
    found: dict[str, list[Mapping[str, float]]] = {}
    for row in rows:
        found.setdefault(row["mixture"], []).append(row["losses"])
    return {
        name: {source: sum(one[source] for one in some) / len(some) for source in sources}
        for name, some in found.items()
    }


def _source(proposal: Mapping[str, Any], name: str) -> View:
    told = proposal["prediction"]["by_source"][name]
    return {
        "name": name,
        "weight": proposal["weights"][name],
        "band": proposal["bands"][name],
        "loss": told["loss"],
        "loss_band": (told["low"], told["high"]),
        "explained": proposal["explained"][name],
    }


def _weights(proposal: Mapping[str, Any]) -> View:
    """A row a source; dashed is what the uniform mixture gives to each."""
    rows = list(proposal["weights"].items())

    def draw(axes: Axes) -> None:
        for place, (name, weight) in enumerate(rows):
            axes.plot(proposal["bands"][name], [-place] * 2, color=WARM, linewidth=2.5, alpha=0.5)
            axes.plot([weight], [-place], "o", color=WARM, markersize=4)
        _rows(axes, [name for name, _ in rows])
        axes.axvline(1 / len(rows), color=FAINT, linewidth=0.8, linestyle="--")
        axes.set_xlim(0, None)
        axes.set_xlabel("weight")

    return _plot("Proposed weights", draw, (SIZE[0], 1.0 + 0.3 * len(rows)))


def _runs(proposal: Mapping[str, Any], source: str) -> View:
    """The runs of the swarm, and what is foretold of the proposed weight."""
    told, weight = proposal["prediction"]["by_source"][source], proposal["weights"][source]

    def draw(axes: Axes) -> None:
        across = [run["weights"][source] for run in proposal["runs"]]
        up = [run["losses"][source] for run in proposal["runs"]]
        axes.plot(across, up, "o", color=ACCENT, markersize=3.5, label="measured")
        axes.plot([weight] * 2, [told["low"], told["high"]], "_-", color=WARM, markersize=7)
        axes.plot([weight], [told["loss"]], "s", color=WARM, markersize=4, label="proposed")
        axes.set_xlabel(f"weight of {_plain(source)}")
        axes.set_ylabel("held-out loss, nats per token")
        legend(axes)

    return _plot(f"Loss of {source} in the small runs", draw)


def _gaps(rows: Sequence[Mapping[str, Any]], sources: Sequence[str]) -> View | None:
    """Of each seed, by source, how much less a mixture has than the uniform one."""
    even = {row["seed"]: row["losses"] for row in rows if row["mixture"] == UNIFORM}
    others = [row for row in rows if row["mixture"] != UNIFORM and row["seed"] in even]
    names = dict.fromkeys(row["mixture"] for row in others)
    if not others:
        return None

    def draw(axes: Axes) -> None:
        for name, colour in zip(names, COLOURS, strict=False):
            found = [
                (row["losses"][source] - even[row["seed"]][source], -place)
                for row in others
                if row["mixture"] == name
                for place, source in enumerate(sources)
            ]
            axes.plot(*zip(*found, strict=True), "o", color=colour, markersize=4, label=name)
        _rows(axes, sources)
        axes.axvline(0, color=FAINT, linewidth=0.8, linestyle="--")
        axes.set_xlabel("loss less uniform's, nats per token")
        legend(axes)

    return _plot("Larger runs, by source and seed", draw, (SIZE[0], 1.0 + 0.3 * len(sources)))


def _rows(axes: Axes, names: Sequence[str]) -> None:
    """A row a source, the first at the top."""
    axes.set_yticks([-place for place in range(len(names))], [_plain(name) for name in names])
    axes.set_ylim(0.5 - len(names), 0.5)


def _plain(name: str) -> str:
    """A name that matplotlib takes for no formula."""
    return name.replace("$", r"\$")


def _plot(title: str, draw: Callable[[Axes], None], size: tuple[float, float] = SIZE) -> View:
    return {"title": title, "svg": svg(draw, title, size)}
