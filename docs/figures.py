"""The pictures of the documentation, each drawn by the code that it is about.

python docs/figures.py FOLDER        # writes every picture there, as SVG
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyBboxPatch

from tasks.report.plots import ACCENT, FAINT, INK, SHADES, WARM, svg

Draw = Callable[[Axes], None]
WASH = "#f4f7f8"
COMPACT = (4.4, 2.7)


# Runs and the store -----------------------------------------------------------------------------


def stages(axes: Axes) -> None:
    """The stages of a run and what they take from each other."""
    _graph(axes, _planned(), frozenset())


def rebuilt(axes: Axes) -> None:
    """What a change of the tokenizer's vocabulary builds again."""
    before = {node.name: node.spec.fingerprint for node in _planned()}
    after = {node.name: node.spec.fingerprint for node in _planned(vocab_size=300)}
    _graph(axes, _planned(), frozenset(n for n in before if before[n] != after.get(n)))


def _planned(vocab_size: int = 320) -> list[Any]:
    """The stages of a small recipe on a text of its own, planned in an empty store."""
    from cluster.store import Store
    from flows.end_to_end import plan
    from flows.plan.dag import Dag
    from flows.recipe import validate

    with tempfile.TemporaryDirectory() as place:
        text = Path(place) / "text.jsonl"
        text.write_text('{"text": "water"}\n')
        recipe = {
            "name": "drawn",
            "sources": [str(text)],
            "tokenizer": {"vocab_size": vocab_size},
            "sweep": {"widths": [32], "tokens": [4096]},
            "classify": {"data": str(text)},
            "instruct": {"data": str(text)},
        }
        return plan("all", Dag("drawn", Store(Path(place))), validate(recipe, "a figure")).nodes


def _graph(axes: Axes, nodes: list[Any], marked: frozenset[str]) -> None:
    """Stages from top to bottom, with arrows that no longer way says already; the report, which
    takes from all, without.
    """
    ranks: dict[str, int] = {}
    behind: dict[str, set[str]] = {}
    arrows: list[tuple[str, str]] = []
    for node in nodes:
        above = {one.name for value in node.upstream.values() for one in _list(value)}
        ranks[node.name] = 1 + max((ranks[name] for name in above), default=-1)
        behind[node.name] = above.union(*(behind[name] for name in above))
        nearest = above - set().union(*(behind[name] for name in above))
        arrows += [(name, node.name) for name in nearest if node.name != "report"]
    rows = [
        [name for name in ranks if ranks[name] == rank] for rank in range(max(ranks.values()) + 1)
    ]
    place = {
        name: (column - (len(row) - 1) / 2, -rank)
        for rank, row in enumerate(rows)
        for column, name in enumerate(row)
    }
    for begin, end in arrows:
        _arrow(axes, place[begin], place[end])
    for name, (x, y) in place.items():
        _box(axes, x, y, name.split("/")[0], name in marked)
    axes.set_xlim(-2.2, 2.2)
    axes.set_ylim(min(y for _, y in place.values()) - 0.5, 0.5)
    axes.axis("off")


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _box(axes: Axes, x: float, y: float, words: str, marked: bool) -> None:
    style = "round,pad=0.02,rounding_size=0.08"
    fill, edge = ("#fbeee3", WARM) if marked else (WASH, ACCENT)
    box = FancyBboxPatch((x - 0.4, y - 0.24), 0.8, 0.48, style, fc=fill, ec=edge, lw=1, zorder=3)
    axes.add_patch(box)
    axes.text(x, y, words, ha="center", va="center", zorder=4)


def _arrow(axes: Axes, begin: tuple[float, float], end: tuple[float, float]) -> None:
    axes.annotate(
        "",
        (end[0], end[1] + 0.26),
        (begin[0], begin[1] - 0.26),
        arrowprops={
            "arrowstyle": "-|>,head_width=0.15,head_length=0.3",
            "color": FAINT,
            "lw": 1,
        },
    )


# Text and tokens --------------------------------------------------------------------------------


def duplicates(axes: Axes) -> None:
    """How likely MinHash finds a pair, by how alike its documents are."""
    from tasks.data.deduplication.settings import DedupSettings

    settings = DedupSettings()
    alike = np.linspace(0, 1, 201)
    for bands, rows, color in ((settings.bands, settings.rows, ACCENT), (20, 5, FAINT)):
        found = 1 - (1 - alike**rows) ** bands
        axes.plot(alike, found, color=color, label=f"{bands} bands of {rows}")
    axes.axvline(settings.threshold, color=WARM, lw=1, ls=":")
    axes.text(settings.threshold + 0.02, 0.04, "threshold", color=WARM)
    axes.set_xlabel("Jaccard similarity of two documents' 5-grams")
    axes.set_ylabel("share of such pairs found")
    axes.legend(loc="upper left")


def order(axes: Axes) -> None:
    """Where in the text the samples of two epochs come from."""
    from tasks.tokens.permutation import permute

    number = np.arange(192)
    for epoch, color in ((0, ACCENT), (1, WARM)):
        where = permute(number, len(number), 0, epoch)
        axes.plot(number + epoch * len(number), where, ".", ms=3.5, color=color)
    axes.axvline(len(number) - 0.5, color=FAINT, lw=1)
    axes.set_xlabel("sample number in the training")
    axes.set_ylabel("place in the text")


def mixture(axes: Axes) -> None:
    """The source of every sample of a training in two stages of a mixture."""
    from tasks.tokens.mixture.index import SourceSize, plan_mixture
    from tasks.tokens.mixture.settings import Mixture, MixtureStage
    from tasks.tokens.steps import Steps

    sizes = [SourceSize("web", 900, 900 * 256), SourceSize("books", 60, 60 * 256)]
    asked = (
        MixtureStage(until=0.8, weights={"web": 9, "books": 1}),
        MixtureStage(weights={"books": 1, "web": 1}),
    )
    steps = Steps(100, 8)
    drawn = plan_mixture(Mixture(stages=asked), sizes, steps)
    source = drawn.locate(np.arange(steps.total))[0]
    for index, size in enumerate(drawn.sources):
        tokens = np.cumsum(source == index) * 256
        axes.plot(
            np.arange(steps.total) / steps.samples,
            tokens,
            label=size.name,
            color=(ACCENT, WARM)[index],
        )
    axes.axvline(80, color=FAINT, lw=1)
    axes.set_xlabel("step")
    axes.set_ylabel("tokens trained on")
    axes.legend()


# Training ---------------------------------------------------------------------------------------


def schedules(axes: Axes) -> None:
    """The learning rate over a training, by schedule."""
    from tasks.training.schedule import factor
    from tasks.training.settings import OptimizerSettings

    steps = np.arange(1, 1001)
    colors = {"wsd": ACCENT, "cosine": WARM, "linear": SHADES[1], "inverse_sqrt": INK}
    for name, color in colors.items():
        settings = OptimizerSettings.model_validate({"schedule": name})
        rate = np.array([factor(float(step), 1000.0, settings) for step in steps])
        axes.plot(steps / 10, rate / rate.max(), label=name, color=color)
    axes.set_xlabel("% of the steps")
    axes.set_ylabel("rate over its peak")
    axes.legend(loc="lower left", bbox_to_anchor=(0.08, 0.0))


def memory(axes: Axes) -> None:
    """What each of eight GPUs holds of a network in training, by ZeRO stage."""
    from dataclasses import asdict

    from cluster.placement import Placement
    from model.presets import preset
    from tasks.training.memory import device_bytes
    from tasks.training.settings import PretrainSettings

    config = preset("gpt2-xl")
    training = PretrainSettings(context=1024, batch_tokens=64 * 1024, precision="bf16")
    parts: dict[str, list[float]] = {}
    for stage in range(4):
        placement = Placement(
            workers=8,
            gpus=1,
            zero_stage=stage,
            micro_batch_tokens=4096,
            activation_checkpointing="whole",
        )
        for name, size in asdict(device_bytes(config, training, placement)).items():
            parts.setdefault(name, []).append(size / 1e9)
    below = np.zeros(4)
    for (name, sizes), color in zip(parts.items(), (*SHADES[1::2], WARM, FAINT), strict=False):
        axes.bar(range(4), sizes, 0.6, below, label=name, color=color)
        below += sizes
    axes.set_xticks(range(4), [f"ZeRO {stage}" for stage in range(4)])
    axes.set_ylabel("GB on each GPU")
    axes.set_axisbelow(True)
    axes.grid(axis="x", visible=False)
    axes.legend(fontsize=8)


# Scaling laws -----------------------------------------------------------------------------------


BUDGETS = (1e18, 1e19, 1e20)


def _runs() -> dict[str, np.ndarray]:
    """Runs of a law that is known, Hoffmann's, with the spread of real ones, .6 %."""
    rng = np.random.default_rng(7)
    budgets = np.repeat(BUDGETS, 6)
    center = 1.35 * (budgets / 6) ** 0.452
    params = center * np.tile(np.geomspace(0.25, 4, 6), 3)
    tokens = budgets / (6 * params)
    loss = 1.69 + 406.4 / params**0.34 + 410.7 / tokens**0.28
    return {"params": params, "tokens": tokens, "loss": loss * rng.normal(1, 0.006, len(loss))}


def valleys(axes: Axes) -> None:
    """Runs at three budgets and the sizes at which their parabolas are lowest."""
    from tasks.scaling.law.isoflop import optima

    runs = _runs()
    flops = 6 * runs["params"] * runs["tokens"]
    for budget, color in zip(BUDGETS, SHADES[1::2], strict=False):
        rows = np.isclose(flops, budget)
        size, loss = np.log(runs["params"][rows]), runs["loss"][rows]
        line = np.linspace(size.min(), size.max(), 60)
        axes.plot(np.exp(line), np.polyval(np.polyfit(size, loss, 2), line), color=color, lw=1)
        axes.plot(runs["params"][rows], loss, "o", ms=4, color=color, label=f"{budget:.0e} FLOP")
    for row in optima(runs):
        axes.plot(row["params"], row["loss"], "x", ms=8, mew=2, color=WARM)
    axes.set_xscale("log")
    axes.set_xlabel("parameters")
    axes.set_ylabel("validation loss, nats per token")
    axes.legend()


def forecast(axes: Axes) -> None:
    """A law fitted to small runs, and its band for larger ones."""
    from tasks.scaling.law.fit import fit_law
    from tasks.scaling.law.prediction import frontier

    runs = _runs()
    fitted = fit_law(runs, "chinchilla", replicas=50)
    rows = frontier(fitted, np.geomspace(1e18, 1e22, 30), 6.0)
    flops, loss = [row["flops"] for row in rows], [row["loss"] for row in rows]
    low, high = [row["low"] for row in rows], [row["high"] for row in rows]
    axes.fill_between(flops, low, high, color=SHADES[0], alpha=0.5, lw=0, label="90 % band")
    axes.plot(flops, loss, color=ACCENT, label="frontier of the law")
    axes.plot(6 * runs["params"] * runs["tokens"], runs["loss"], "o", ms=4, color=INK, label="runs")
    axes.set_xscale("log")
    axes.set_xlabel("training compute, FLOP")
    axes.set_ylabel("validation loss, nats per token")
    axes.legend()


# Scores and judges ------------------------------------------------------------------------------


def intervals(axes: Axes) -> None:
    """How wide the 95 % interval of a mean is, by the number of judged rows."""
    from tasks.evaluation.statistics.intervals import mean_interval

    rng = np.random.default_rng(3)
    ratings = rng.choice([1, 2, 3, 4, 5], 400, p=[0.08, 0.12, 0.3, 0.3, 0.2]).astype(float)
    counts = (25, 50, 100, 200, 400)
    for place, count in enumerate(counts):
        shown = ratings[:count]
        found = mean_interval(list(shown))
        assert found is not None
        axes.plot([place, place], list(found), color=ACCENT, lw=2)
        axes.plot(place, shown.mean(), "o", ms=5, color=ACCENT)
    axes.axhline(ratings.mean(), color=FAINT, lw=1)
    axes.set_xticks(range(len(counts)), [str(count) for count in counts])
    axes.set_xlabel("judged rows")
    axes.set_ylabel("mean rating and its interval")
    axes.grid(axis="x", visible=False)


# A cluster --------------------------------------------------------------------------------------


def workers(axes: Axes) -> None:
    """Eight workers, two to a network: who has which part, and whose gradients are summed."""
    from cluster.placement import Placement

    placement = Placement(workers=8, tensor_parallel=2)
    size = placement.tensor_parallel
    for rank in range(placement.workers):
        team, part = divmod(rank, size)
        color = (ACCENT, WARM)[part]
        box = FancyBboxPatch(
            (team - 0.36, 0.58 - part * 0.9),
            0.72,
            0.5,
            "round,pad=0.02,rounding_size=0.08",
            fc=WASH,
            ec=color,
            lw=1.2,
        )
        axes.add_patch(box)
        axes.text(team, 0.83 - part * 0.9, f"rank {rank}", ha="center", va="center", color=color)
    teams = placement.workers // size
    for team in range(teams):
        axes.plot([team, team], [0.22, 0.54], color=INK, lw=1)
        axes.text(team, 1.3, f"samples {team}", ha="center", color=INK, fontsize=8)
    for part, words in enumerate(("first half", "second half")):
        y = 0.83 - part * 0.9
        for team in range(teams - 1):
            axes.plot([team + 0.38, team + 0.62], [y, y], color=(ACCENT, WARM)[part], lw=1)
        axes.text(0.06, y - 0.4, words, color=(ACCENT, WARM)[part], fontsize=8)
    axes.set_xlim(-0.45, teams - 0.55)
    axes.set_ylim(-0.7, 1.45)
    axes.axis("off")


# All of them ------------------------------------------------------------------------------------

FIGURES: dict[str, tuple[Draw, tuple[float, float]]] = {
    "stages": (stages, (4.4, 5.2)),
    "rebuilt": (rebuilt, (4.4, 5.2)),
    "duplicates": (duplicates, COMPACT),
    "order": (order, COMPACT),
    "mixture": (mixture, COMPACT),
    "schedules": (schedules, COMPACT),
    "memory": (memory, COMPACT),
    "valleys": (valleys, COMPACT),
    "forecast": (forecast, COMPACT),
    "intervals": (intervals, COMPACT),
    "workers": (workers, (4.4, 2.0)),
}
"""What draws each picture, and its size in inches: as wide as a phone shows it."""


def drawn(name: str) -> str:
    """A picture as SVG, complete in itself."""
    draw, inches = FIGURES[name]
    words = " ".join((draw.__doc__ or name).split()).rstrip(".")
    return svg(draw, words, inches)


if __name__ == "__main__":
    for figure in FIGURES:
        (Path(sys.argv[1]) / f"{figure}.svg").write_text(drawn(figure))
