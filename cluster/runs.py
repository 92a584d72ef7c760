"""Records of runs: one small JSON file each in `$HEADRACE_HOME/runs`, rewritten as the run goes on.

They say which artifacts a run used (what `gc` keeps), who runs it (so that a killed run is noticed)
and what it ended with.
"""

import logging
import os
import secrets
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

import psutil
from pydantic import ValidationError

from cluster.files import write_atomically
from cluster.locks import whoami
from cluster.manifest import Ledger
from cluster.processes import start_time
from cluster.provenance import provenance
from cluster.settings import Record
from cluster.store import library_versions

log = logging.getLogger("headrace.run")
State = Literal["planned", "built", "cached", "failed", "skipped"]


class StageRecord(Record):
    """One stage of one run.

    `name` is `stage`, or `stage/label` of one of several; `why` says why it was built, or was not.
    `seconds` and `resources` are what it took, `planned` what it was to take; `size` is in bytes.
    `built_by` is the id of the run that built what this one found cached, `found` a line on the
    result. `bad_input` says whether `error` is the user's to mend.
    """

    name: str
    stage: str
    fingerprint: str
    state: State
    why: str
    seconds: float = 0.0
    resources: dict[str, float] = {}
    planned: dict[str, float | None] = {}
    size: int = 0
    artifact: str | None = None
    built_by: str | None = None
    tracking_run: str | None = None
    ledger: Ledger | None = None
    found: str = ""
    error: str | None = None
    bad_input: bool = False


class RunRecord(Record):
    """One run: its recipe, its stages, its links.

    `planned` is what it was to take as a whole, `spent` what it took. `report` and `page` are paths
    of HTML files, `source` says who ran which code (`cluster.provenance`), `process` in which
    process. `flow_run_id` is Prefect's, `tracking_run` the run in MLflow.
    """

    id: str
    recipe: dict[str, Any]
    goal: str
    status: Literal["running", "completed", "failed", "crashed"] = "running"
    started: str
    seconds: float = 0.0
    stages: list[StageRecord] = []
    metrics: dict[str, float] = {}
    forecasts: list[dict[str, Any]] = []
    report: str | None = None
    urls: dict[str, str] = {}
    planned: dict[str, float | None] = {}
    spent: dict[str, float] = {}
    page: str | None = None
    source: dict[str, str] = {}
    libraries: dict[str, str] = {}
    process: dict[str, str | int] = {}
    flow_run_id: str | None = None
    tracking_run: str | None = None

    @classmethod
    def start(cls, recipe: dict[str, Any], goal: str) -> "RunRecord":
        """A record of a run that begins now, in this process."""
        stamp = time.strftime("%Y%m%d-%H%M%S")
        return cls(
            id=f"{recipe['name']}-{stamp}-{secrets.token_hex(2)}",
            recipe=recipe,
            goal=goal,
            started=datetime.now(UTC).isoformat(timespec="seconds"),
            source=provenance(),
            libraries=library_versions(),
            process=_this_process(),
        )

    def save(self, root: Path) -> None:
        """Write or replace the record under `root/runs`."""
        folder = root / "runs"
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{self.id}.json", self.model_dump_json(indent=1, by_alias=True))

    @property
    def own(self) -> bool:
        """Whether it is a run of this very process."""
        return self.process == _this_process()

    @property
    def alive(self) -> bool:
        """Whether the process of a running record still exists; true when on another host.

        Where the record says when it started, a later process of the same pid is another one.
        """
        me = whoami()
        if self.process.get("host") != me["host"]:
            return True
        if self.process.get("boot") != me["boot"]:
            return False
        pid = int(self.process.get("pid", 0))
        if "started" in self.process:
            return start_time(pid) == self.process["started"]
        return psutil.pid_exists(pid)


def _this_process() -> dict[str, str | int]:
    started = start_time(os.getpid())
    return whoami() | ({} if started is None else {"started": started})


def records(root: Path) -> list[RunRecord]:
    """All run records, oldest first; those that cannot be read are named and left out."""
    found, unreadable = survey(root)
    for path, why in unreadable.items():
        _warn_once(path, why)
    return found


def survey(root: Path) -> tuple[list[RunRecord], dict[Path, str]]:
    """All run records, oldest first, and why each of the others cannot be read."""
    found, unreadable = [], {}
    for path in sorted((root / "runs").glob("[!.]*.json")):
        try:
            found.append(RunRecord.model_validate_json(path.read_bytes()))
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            unreadable[path] = f"it is no record of a run ({_short(error)})"
    return sorted(found, key=lambda r: r.started), unreadable


def interrupted(root: Path) -> list[RunRecord]:
    """Records that say `running` although their process is gone."""
    return [r for r in records(root) if r.status == "running" and not r.alive]


@cache
def _warn_once(path: Path, why: str) -> None:
    """Tell of a record that cannot be read: once, as a command reads the records several times."""
    log.warning("%s is left out: %s; remove the file, or put back a copy of it", path, why)


def _short(error: Exception) -> str:
    """One line of what pydantic says in many."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        return f"{'.'.join(map(str, first['loc']))}: {first['msg']}".removeprefix(": ")
    return str(error)
