"""What a training tells: one JSON row per step in a file, and from there to whoever watches.

The file is cut back to the checkpoint's step on resume, so that in the end it equals that of an
undisturbed run, timing aside. Rows reach the tracker when a checkpoint has made them final.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cluster.files import write_atomically
from cluster.handover import obtain, publish
from cluster.home import apart
from cluster.tracking import Tracker
from tasks.training.exams import SECONDS, bounds, figures, leading
from tasks.training.job import METRICS, Progress

REPORTED = "reported.json"
TIMING = (
    "seconds",
    "data_seconds",
    "update_seconds",
    "tokens_per_second",
    "flops_per_second",
    "mfu",
    "memory_bytes",
    SECONDS,
)
"""Figures of a row in which two runs of the same training may differ."""
Row = dict[str, Any]


class MetricsFile:
    """`metrics.jsonl`, appended to by one process."""

    def __init__(self, folder: Path, after: int) -> None:
        """Open the file with the rows up to step `after` kept and all others dropped."""
        path = folder / METRICS
        kept = [row for row in read_rows(path) if row["step"] <= after]
        assert [r["step"] for r in kept] == list(range(1, after + 1)), f"{path} lacks steps"
        write_atomically(path, "".join(map(_line, kept)))
        self._path, self._file = path, path.open("a")

    def append(self, row: Row) -> None:
        """Add a row; readers see it at once."""
        self._file.write(_line(row))
        self._file.flush()

    def sync(self) -> None:
        """Make the rows survive a power cut, and their node."""
        os.fsync(self._file.fileno())
        publish(self._path)

    def close(self) -> None:
        """Sync and close the file."""
        self.sync()
        self._file.close()


class Reporter:
    """Passes rows on: progress as it comes, finished rows to the tracker once each."""

    def __init__(
        self, folder: Path, steps: int, tracker: Tracker | None, on_progress: Progress | None
    ) -> None:
        self._folder, self._steps = folder, steps
        self._tracker, self._on_progress = tracker, on_progress
        self._scores: dict[str, float] = {}

    def progress(self, *rows: Row) -> None:
        """Show the newest of some rows in order, and the newest scores of exams."""
        if not self._on_progress:
            return
        for row in rows:
            self._scores |= leading(row)
        shown = {key: rows[-1][key] for key in ("loss", "tokens_per_second")} | self._scores
        self._on_progress(rows[-1]["step"], self._steps, "steps", **shown)

    def final(self, step: int) -> None:
        """Rows up to `step` will not be trained again: send those not sent yet to the tracker.

        What was sent is noted after sending. A kill in between, a matter of milliseconds, sends
        rows twice rather than never.
        """
        if self._tracker is None:
            return
        noted = self._folder / REPORTED
        sent = json.loads(noted.read_text())["step"] if noted.exists() else 0
        rows = [r for r in rows_after(self._folder / METRICS, sent) if r["step"] <= step]
        if rows:
            self._tracker.metrics([row | figures(row) | bounds(row) for row in rows])
            write_atomically(noted, json.dumps({"step": rows[-1]["step"]}))


class Follower:
    """Reports from outside on a training that runs in other processes, by reading its folder."""

    def __init__(self, folder: Path, reporter: Reporter, final_step: Callable[[], int]) -> None:
        self._path, self._reporter, self._final_step = folder / METRICS, reporter, final_step
        self._done = threading.Event()
        self._pause = 10.0 if apart() else 0.5  # between looks at a shared store, or the disk
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> "Follower":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._done.set()
        self._thread.join()

    def _follow(self) -> None:
        told, ended = 0, False
        while not ended:  # once more at the end: the last rows come just before it
            ended = self._done.wait(self._pause)
            obtain(self._path, growing=True)
            if (row := last_row(self._path)) and row["step"] != told:
                # Fewer than were told: a step is made again.
                self._reporter.progress(*rows_after(self._path, min(told, row["step"] - 1)))
                told = row["step"]
            self._reporter.final(self._final_step())


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a metrics file; a last line cut off by a kill is left out."""
    if not path.exists():
        return
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            yield json.loads(line)


def rows_after(path: Path, step: int, window: int = 1 << 16) -> list[Row]:
    """The rows behind a step, without reading the whole file where they are few."""
    rows, whole = _tail(path, window)
    if not whole and (not rows or rows[0]["step"] > step + 1):
        return rows_after(path, step, 4 * window)
    return [row for row in rows if row["step"] > step]


def last_row(path: Path) -> Row | None:
    """The newest row, without reading the whole file."""
    rows, _ = _tail(path, 4096)
    return rows[-1] if rows else None


def thin(rows: list[Row], keys: tuple[str, ...]) -> list[Row]:
    """At most 200 rows, evenly spread, first and last included, with some of their figures."""
    count = min(200, len(rows))
    chosen = [rows[round(i * (len(rows) - 1) / max(1, count - 1))] for i in range(count)]
    return [{key: row[key] for key in keys} for row in chosen]


def _tail(path: Path, window: int) -> tuple[list[Row], bool]:
    """The whole rows in the last bytes of a file, and whether these bytes are all of it."""
    if not path.exists():
        return [], True
    with path.open("rb") as file:
        begin = max(0, file.seek(0, os.SEEK_END) - window)
        file.seek(begin)
        lines = file.read().splitlines(keepends=True)[1 if begin else 0 :]
    return [json.loads(line) for line in lines if line.endswith(b"\n")], begin == 0


def _line(row: Row) -> str:
    return json.dumps(row) + "\n"


def speed(
    tokens: float, seconds: float, flops_per_token: float, peak_flops: float
) -> dict[str, float]:
    """How fast a step was; `peak_flops` a second of all devices together, 0 where it is unknown."""
    figures = {"seconds": round(seconds, 6), "tokens_per_second": round(tokens / seconds, 1)}
    if peak_flops:
        achieved = tokens / seconds * flops_per_token
        figures |= {
            "flops_per_second": round(achieved, 1),
            "mfu": round(achieved / peak_flops, 4),
        }
    return figures
