"""Tracking of runs: parameters, metrics per step, inputs, the model by reference.

Whoever trains only appends lines to a journal in `$HEADRACE_HOME/tracking`, which takes no time,
needs no MLflow in the process and cannot fail for want of a server. `cluster.mlflow_sender` sends
the lines on. A journal is also the memory of a stage that was killed: the next attempt goes on in
it, so the same tracked run goes on and no step is told twice.
"""

import json
import logging
import math
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from cluster.environment import given_store
from cluster.handover import names_in, obtain, publish, unpublish
from cluster.home import apart, subfolder
from cluster.url_secrets import hidden

LONGEST_VALUE = 500
log = logging.getLogger("headrace.tracking")


class Tracker:
    """What a training stage may tell the tracking store; must never raise into training. Of itself
    it tells nobody.
    """

    @property
    def run_id(self) -> str | None:
        """The id of the tracked run, when it is known already."""
        return None

    def params(self, values: Mapping[str, Any]) -> None:
        """Log parameters once."""

    def metrics(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Log rows of figures; each row has a `step`."""

    def results(self, values: Mapping[str, float]) -> None:
        """Log figures of the whole, behind the last step."""

    def system(self, second: int, load: Mapping[str, float]) -> None:
        """Log the machine's load at a second of the run."""

    def datasets(self, inputs: Mapping[str, Any]) -> None:
        """Log the input artifacts by name."""

    def model(self, artifact: Any, registered: str | None = None) -> None:
        """Log a model's artifact by reference; as a version of a registered model, where named."""

    def file(self, path: Path) -> None:
        """Log a copy of a file."""

    def table(self, name: str, rows: Path) -> None:
        """Log the rows of a JSON-lines file as an evaluation table, named `x.json`."""

    def close(self, status: str = "FINISHED") -> None:
        """End the tracked run: FINISHED, FAILED or KILLED."""


class NullTracker(Tracker):
    """Tracks nothing; for tests and stages that do not train."""


class JournalTracker(Tracker):
    """A tracker that appends to a journal; `key` names what is tracked, now and after a kill.

    Where the user names a tracking store the journal says which: the next command may name another.
    """

    def __init__(self, key: str, about: Mapping[str, Any]):
        key = re.sub(r"[^\w.-]", "_", key)
        obtain_journals(key)
        self.path = _current(subfolder("tracking"), key)
        # First: a line appended to half a one would make both unreadable.
        mend(self.path)
        self._last_step = last_step(self.path)
        store = hidden(given_store() or "")
        append(self.path, {"start": dict(about) | ({"to": store} if store else {})})

    @property
    def run_id(self) -> str | None:
        """The MLflow run's id, as soon as the first lines are sent."""
        return sent(self.path).get("run_id")

    def params(self, values: Mapping[str, Any]) -> None:
        """Log parameters, nested ones by dotted names; long values are cut."""
        append(self.path, {"params": {key: _short(value) for key, value in flatten(values)}})

    def metrics(self, rows: Sequence[Mapping[str, float]]) -> None:
        """Log rows of figures. Rows up to the last step logged are those of an earlier attempt."""
        new = [_numbers(row) for row in rows if row["step"] > self._last_step]
        if new:
            append(self.path, {"rows": new})
            publish(self.path)
            self._last_step = new[-1]["step"]

    def results(self, values: Mapping[str, float]) -> None:
        """Log figures of the whole behind the last step, but for those that each step has."""
        rows = [row for event, _ in events(self.path) for row in event.get("rows", ())]
        told = {key for row in rows for key in row}
        # Named apart: `headrace fit mlflow:NAME` takes what has `params` for a member of a sweep.
        new = {f"result/{key}": value for key, value in values.items() if key not in told}
        if new:
            self.metrics([{"step": max(self._last_step, 0) + 1, **new}])

    def system(self, second: int, load: Mapping[str, float]) -> None:
        """Log the machine's load, under the names by which MLflow knows it."""
        append(self.path, {"system": {f"system/{k}": v for k, v in load.items()}, "at": second})

    def datasets(self, inputs: Mapping[str, Any]) -> None:
        """Log input artifacts: name, fingerprint, path and size of each."""
        flat = ((key, one) for key, value in inputs.items() for one in _as_list(value))
        append(self.path, {"inputs": [{"use": key, **_about(one)} for key, one in flat]})

    def model(self, artifact: Any, registered: str | None = None) -> None:
        """Log a model's artifact by reference; nothing is copied."""
        append(self.path, {"model": _about(artifact), "registered": registered})

    def scores(self, run_id: str, journal: str, metrics: Mapping[str, float]) -> None:
        """Log the evaluation of the model that a tracked run made; its `journal` by its key."""
        append(self.path, {"scores": dict(metrics), "of": run_id, "journal": journal})

    def tags(self, values: Mapping[str, str]) -> None:
        """Set tags."""
        append(self.path, {"tags": dict(values)})

    def file(self, path: Path) -> None:
        """Log a copy of a file, as it is when it is sent."""
        append(self.path, {"file": str(path)})

    def table(self, name: str, rows: Path) -> None:
        """Log a JSON-lines file as an evaluation table; it is read when it is sent."""
        append(self.path, {"table": name, "rows_of": str(rows)})

    def close(self, status: str = "FINISHED") -> None:
        """End the run. One that did not finish goes on when its stage is tried again."""
        append(self.path, {"end": status})
        publish(self.path)


def obtain_journals(key: str) -> None:
    """Have the journals of a key that another node of a run apart has begun."""
    if apart():
        obtain(*_published(key), growing=True)


def forget_journals(key: str) -> None:
    """Remove what nodes have passed on of journals that are here by now."""
    for path in _published(key):
        unpublish(path)


def _published(key: str) -> list[Path]:
    names = [name for name in names_in(subfolder("tracking")) if name.startswith(f"{key}.")]
    return [subfolder("tracking") / name for name in names if name.endswith(".jsonl")]


def append(path: Path, event: Mapping[str, Any]) -> None:
    """Add a line to a journal; a full disk must not end a training that could go on."""
    line = json.dumps({"time": int(time.time() * 1000), **event}, default=str) + "\n"
    try:
        with path.open("a") as file:
            file.write(line)
    except OSError as error:
        log.warning("not tracked, %s: %s", error, line[:LONGEST_VALUE])


def events(path: Path, offset: int = 0) -> Iterator[tuple[dict[str, Any], int]]:
    """The whole lines of a journal from a byte offset on, each with the offset behind it."""
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            # Still being written, or cut by a kill: the next look may find it whole.
            if not line.endswith(b"\n"):
                return
            offset += len(line)
            yield json.loads(line), offset


def last_step(path: Path) -> float:
    """The last step a journal knows of; minus infinity when there is none."""
    if not path.exists():
        return -math.inf
    steps = (row["step"] for event, _ in events(path) for row in event.get("rows", ()))
    return max(steps, default=-math.inf)


def ended(path: Path) -> str | None:
    """The status a journal ends with; None when it goes on."""
    status = None
    for event, _ in events(path):
        status = event.get("end")
    return status


def begun(path: Path) -> dict[str, Any]:
    """What a journal says about its newest attempt: `name`, `parent`, `tags`, ..."""
    about: dict[str, Any] = {}
    for event, _ in events(path):
        about = event.get("start", about)
    return about


def sent(path: Path) -> dict[str, Any]:
    """What the sender remembers of a journal: `offset`, `run_id`, `experiment_id`."""
    try:
        found: Any = json.loads(path.with_suffix(".sent").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def flatten(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Nested mappings as pairs of dotted name and value."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _current(folder: Path, key: str) -> Path:
    """The journal to go on with: the newest of this key, or a new one when that has finished."""
    # Not their count: the older ones are removed when they have been sent.
    ends = (path.name[len(key) + 1 : -len(".jsonl")] for path in folder.glob(f"{key}.*.jsonl"))
    number = max((int(end) for end in ends if end.isdecimal()), default=0)
    newest = folder / f"{key}.{number}.jsonl"
    if number and ended(newest) != "FINISHED":
        return newest
    return folder / f"{key}.{number + 1}.jsonl"


def mend(path: Path) -> None:
    """Cut off the half line that a killed process may have left."""
    if path.exists():
        whole = path.read_bytes().rfind(b"\n") + 1
        os.truncate(path, whole)


def _numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a row as plain floats, whatever library they come from."""
    return {key: float(value) for key, value in row.items() if isinstance(value, Real)}


def _about(artifact: Any) -> dict[str, Any]:
    """What MLflow is told of an artifact."""
    manifest = artifact.manifest
    size = {"rows": manifest.rows, "tokens": manifest.tokens}
    return {
        "name": artifact.name,
        "digest": artifact.fingerprint[:32],
        "source": str(artifact.path),
        "size": {key: value for key, value in size.items() if value is not None},
    }


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
