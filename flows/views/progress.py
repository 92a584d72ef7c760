"""What a person sees while a run works: one line per stage that is under way.

Stages write `progress.json` into their scratch folder; this reads them twice a second. It only
looks, so it works whatever process or machine the stage runs on.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Column

from cluster.artifact import Artifact
from cluster.manifest import MANIFEST
from cluster.store import PROGRESS, Store
from flows.plan.dag import Dag, Node
from flows.views.output import console, human, tell
from tasks.report.words import duration

EVERY_SECONDS = 15.0
REPORTED = ("done", "total", "unit", "began", "from")
Report = dict[str, float | str]


@contextmanager
def watch(dag: Dag) -> Iterator[None]:
    """Show the progress of a planned run's stages on stderr until the block ends.

    Where stderr is no terminal, there are lines: how far and how fast a stage is and how long it
    will take, every fifteen seconds, and one for each that is done.
    """
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
def follow(name: str) -> Iterator[Callable[[Report], None]]:
    """What to tell the progress of the one stage of a command to, until the block ends; shown as
    `watch` shows a run's.
    """
    if console.is_terminal:
        with _bars() as bars:
            yield partial(_show, bars, bars.add_task(name, total=None, figures=""))
    else:
        yield partial(_say, name, Pace(time.time()), [time.time()])


def _say(name: str, pace: "Pace", told: list[float], report: Report) -> None:
    now = time.time()
    pace.take(report, now)
    if now - told[0] >= EVERY_SECONDS:
        told[0] = now
        tell(f"{name}: {pace.words(now)}")


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


class Teller:
    """Lines for logs: where each stage stands, now and then, and that it has ended."""

    def __init__(self, store: Store, nodes: Sequence[Node]):
        self.store, self.nodes, self.left = store, nodes, list(nodes)
        self.began = time.time()
        self.paces: dict[str, Pace] = {}
        self.told: dict[str, float] = {}

    def lines(self, now: float) -> Iterator[str]:
        """What there is to say at a time, in seconds since the epoch."""
        for node in list(self.left):
            self._look(node, now)
            if _is_done(self.store, node, self.began):
                self.left.remove(node)
                yield self._ending(node)
            elif now - self.told.get(node.name, now) >= EVERY_SECONDS:
                self.told[node.name] = now
                yield f"{node.name}: {self.paces[node.name].words(now)}"

    def _look(self, node: Node, now: float) -> None:
        if self.store.scratch(node.spec).exists():
            self.told.setdefault(node.name, now)
            pace = self.paces.setdefault(node.name, Pace(now))
            pace.take(_report(self.store, node, self.began), now)

    def _ending(self, node: Node) -> str:
        manifest = Artifact.load(self.store.folder(node.spec)).manifest
        said = [f"{len(self.nodes) - len(self.left)} of {len(self.nodes)}: {node.name}"]
        said += [f"{duration(manifest.seconds)}"]
        said += [f"{manifest.rows:,} rows"] if manifest.rows is not None else []
        pace = self.paces.get(node.name)
        return ", ".join(said + (pace.figures() if pace else []))


class Pace:
    """How far a stage is, how fast it goes, and when it will be done at that speed."""

    def __init__(self, now: float):
        self.began = now
        self.first: tuple[float, float] | None = None
        self.report: Report = {}

    def take(self, report: Report, now: float) -> None:
        """Note the newest report, empty where there is none."""
        if report:
            done, last = float(report["done"]), self.report
            new_phase = any(report[key] != last.get(key) for key in ("unit", "total"))
            if self.first is None or new_phase or done < self.first[0]:
                self.first = (done, now)
            self.report = report

    def words(self, now: float) -> str:
        """`1,200 of 1,367 steps, 14.2k tokens/s, loss 2.31, about 40 s left`."""
        if not self.report:
            return f"under way for {duration(now - self.began)}"
        done, total = float(self.report["done"]), float(self.report["total"])
        unit = str(self.report["unit"])
        if unit == "bytes":
            said = [f"{human(done, 'B')} of {human(total, 'B')}"]
        else:
            said = [f"{done:,.0f} of {total:,.0f} {unit}"]
        per_second, figures = self.rate(now), self.figures()
        if per_second and not any("/s" in figure for figure in figures):
            short = "B" if unit == "bytes" else f" {unit.split(',')[0]}"
            said.append(f"{human(per_second)}{short}/s")
        left = [f"about {duration((total - done) / per_second)} left"] if per_second else []
        return ", ".join([*said, *figures, *left])

    def figures(self) -> list[str]:
        """What the stage reports beside its progress: `14.2k tokens/s`, `loss 2.31`."""
        return figures(self.report)

    def rate(self, now: float) -> float | None:
        """Units a second since they were first seen; None where nothing has moved."""
        if self.first is None or now <= self.first[1]:
            return None
        return (float(self.report["done"]) - self.first[0]) / (now - self.first[1]) or None


def figures(report: Report) -> list[str]:
    """What a report says beside its progress, in words."""
    found = {k: human(float(v)) for k, v in report.items() if k not in REPORTED}
    return [
        f"{value} {key.removesuffix('_per_second')}/s"
        if key.endswith("_per_second")
        else f"{key.replace('_', ' ')} {value}"
        for key, value in sorted(found.items(), key=lambda item: not item[0].endswith("_second"))
    ]


def _report(store: Store, node: Node, since: float) -> Report:
    """What a stage said last of its progress; empty where it said nothing since, or nothing that
    this version reads: a run goes on without its bar.
    """
    path = store.scratch(node.spec) / PROGRESS
    try:
        found = json.loads(path.read_text()) if path.stat().st_mtime >= since else {}
        whole = found.keys() >= {"done", "total", "unit"}
        pairs = found.items() if whole else ()
        return {key: str(value) if key == "unit" else float(value) for key, value in pairs}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _tell(store: Store, nodes: list[Node], stop: threading.Event) -> None:
    teller, last = Teller(store, nodes), False
    while not last:
        last = stop.wait(0.5)  # one more look after the end
        for line in teller.lines(time.time()):
            tell(line)


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
            _update(bars, store, node, node in done, shown, began)


def _update(
    bars: Progress,
    store: Store,
    node: Node,
    done: bool,
    shown: dict[str, TaskID],
    began: float,
) -> None:
    """Bring a stage's bar up to date: it has one while it is being built."""
    if done:
        if node.name in shown:
            bars.remove_task(shown.pop(node.name))
        return
    if not store.scratch(node.spec).exists():
        return
    if node.name not in shown:
        shown[node.name] = bars.add_task(node.name, total=None, figures="")
    if report := _report(store, node, began):
        _show(bars, shown[node.name], report)


def _show(bars: Progress, task: TaskID, report: Report) -> None:
    bar = next(t for t in bars.tasks if t.id == task)
    said = figures(report)
    if bar.time_remaining is not None:
        said.append(f"{duration(bar.time_remaining)} left")
    bars.update(
        task,
        completed=float(report["done"]),
        total=float(report["total"]),
        figures=", ".join(said) or str(report["unit"]),
    )
