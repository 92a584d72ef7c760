"""What a person sees while a run works: one line per stage that is under way.

Stages write `progress.json` into their scratch folder; this reads them twice a second. It only
looks, so it works whatever process or machine the stage runs on.
"""

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from cluster.artifact import MANIFEST
from cluster.store import Store
from flows.dag import Dag, Node
from flows.end_to_end import plan
from flows.output import console, duration, human, tell
from flows.recipe import Recipe


@contextmanager
def watch(goal: str, recipe: Recipe, rebuild: Iterable[str]) -> Iterator[None]:
    """Show the progress of a run's stages on stderr until the block ends.

    Where stderr is no terminal, there is a line for each stage that is done.
    """
    dag = plan(goal, Dag(recipe.name, Store(), frozenset(rebuild), fetch=False), recipe)
    todo = [node for node in dag if not node.found]
    if not todo:
        yield
    elif console.is_terminal:
        with _bars() as bars, _thread(partial(_follow, bars, dag.store, todo)):
            yield
    else:
        with _thread(partial(_tell, dag.store, todo)):
            yield


@contextmanager
def _thread(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """Let `work(stop)` run beside the block."""
    stop = threading.Event()
    thread = threading.Thread(target=work, args=(stop,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _tell(store: Store, nodes: list[Node], stop: threading.Event) -> None:
    began = time.time()
    left = list(nodes)
    while not stop.wait(0.5):
        for node in [n for n in left if _is_done(store, n, began)]:
            left.remove(node)
            tell(f"{len(nodes) - len(left)} of {len(nodes)}: {node.name}")


def _is_done(store: Store, node: Node, began: float) -> bool:
    """Whether a stage was built since; a forced one has an artifact from before."""
    manifest = store.folder(node.spec) / MANIFEST
    return manifest.exists() and manifest.stat().st_mtime >= began


def _bars() -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(width=24, no_wrap=True)),
        BarColumn(bar_width=24),
        TextColumn("{task.percentage:>3.0f}%", markup=False),
        TimeElapsedColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        console=console,
        refresh_per_second=4,
    )


def _follow(bars: Progress, store: Store, nodes: list[Node], stop: threading.Event) -> None:
    began = time.time()
    shown: dict[str, TaskID] = {}
    total = bars.add_task("all stages", total=len(nodes), figures="")
    while not stop.wait(0.5):
        done = [node for node in nodes if _is_done(store, node, began)]
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
        reached, total = float(report.pop("done")), float(report.pop("total"))
        figures = _figures(report, bars, shown[node.name])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return  # not there yet, or not what this version writes: a run goes on without its bar
    bars.update(shown[node.name], completed=reached, total=total, figures=figures)


def _figures(report: dict[str, float | str], bars: Progress, task: TaskID) -> str:
    unit = report.pop("unit")
    parts = [f"{key.replace('_', ' ')} {human(float(value))}" for key, value in report.items()]
    bar = next(t for t in bars.tasks if t.id == task)
    if bar.time_remaining is not None:
        parts.append(f"{duration(bar.time_remaining)} left")
    return ", ".join(parts) or str(unit)
