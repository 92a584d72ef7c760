"""What a person sees while a run works: one line per stage that is under way.

Stages write `progress.json` into their scratch folder; this reads them twice a second. It only
looks, so it works whatever process or machine the stage runs on.
"""

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from cluster.store import Store
from flows.dag import Dag, Node
from flows.end_to_end import plan
from flows.output import console, duration, human
from flows.recipe import Recipe


@contextmanager
def watch(goal: str, recipe: Recipe, rebuild: Iterable[str]) -> Iterator[None]:
    """Show the progress of a run's stages on stderr until the block ends."""
    dag = plan(goal, Dag(recipe.name, Store(), frozenset(rebuild)), recipe)
    todo = [node for node in dag if not node.found]
    if not todo or not console.is_terminal:
        yield
        return
    stop = threading.Event()
    with _bars() as bars:
        thread = threading.Thread(target=_follow, args=(bars, dag.store, todo, stop), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def _bars() -> Progress:
    return Progress(
        TextColumn("{task.description}", table_column=Column(width=24, no_wrap=True)),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}"),
        console=console,
        refresh_per_second=4,
    )


def _follow(bars: Progress, store: Store, nodes: list[Node], stop: threading.Event) -> None:
    shown: dict[str, TaskID] = {}
    total = bars.add_task("all stages", total=len(nodes), figures="")
    while not stop.wait(0.5):
        done = [node for node in nodes if (store.folder(node.spec) / "artifact.json").exists()]
        bars.update(total, completed=len(done), figures=f"{len(done)} of {len(nodes)}")
        for node in nodes:
            _update(bars, store, node, node in done, shown)


def _update(bars: Progress, store: Store, node: Node, done: bool, shown: dict[str, TaskID]) -> None:
    if done:
        if node.name in shown:
            bars.remove_task(shown.pop(node.name))
        return
    if not store.scratch(node.spec).exists():
        return
    if node.name not in shown:
        shown[node.name] = bars.add_task(node.name, total=None, figures="")
    try:
        report = json.loads((store.scratch(node.spec) / "progress.json").read_text())
    except (FileNotFoundError, ValueError):
        return
    bars.update(
        shown[node.name],
        completed=report.pop("done"),
        total=report.pop("total"),
        figures=_figures(report, bars, shown[node.name]),
    )


def _figures(report: dict[str, float | str], bars: Progress, task: TaskID) -> str:
    unit = report.pop("unit")
    parts = [f"{key.replace('_', ' ')} {human(float(value))}" for key, value in report.items()]
    bar = next(t for t in bars.tasks if t.id == task)
    if bar.time_remaining is not None:
        parts.append(f"{duration(bar.time_remaining)} left")
    return ", ".join(parts) or str(unit)
