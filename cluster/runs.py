"""Records of runs: one small JSON file each in `$HEADRACE_HOME/runs`, rewritten as the run goes on.

They say which artifacts a run used (what `gc` keeps), who runs it (so that a killed run is noticed)
and what it ended with.
"""

import os
import secrets
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from cluster.artifact import Ledger
from cluster.files import write_atomically
from cluster.locks import whoami
from cluster.settings import Settings

State = Literal["planned", "built", "cached", "failed", "skipped"]


class StageRecord(Settings):
    """One stage of one run."""

    name: str
    stage: str
    fingerprint: str
    state: State
    why: str
    seconds: float = 0.0
    artifact: str | None = None
    ledger: Ledger | None = None
    error: str | None = None
    bad_input: bool = False


class RunRecord(Settings):
    """One run: its recipe, its stages, its links."""

    id: str
    recipe: dict[str, Any]
    goal: str
    status: Literal["running", "completed", "failed", "crashed"] = "running"
    started: str
    seconds: float = 0.0
    stages: list[StageRecord] = []
    metrics: dict[str, float] = {}
    report: str | None = None
    urls: dict[str, str] = {}
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
            process=whoami(),
        )

    def save(self, root: Path) -> None:
        """Write or replace the record under `root/runs`."""
        folder = root / "runs"
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{self.id}.json", self.model_dump_json(indent=1, by_alias=True))

    @property
    def alive(self) -> bool:
        """Whether the process of a running record still exists; true when on another host."""
        me = whoami()
        if self.process.get("host") != me["host"]:
            return True
        if self.process.get("boot") != me["boot"]:
            return False
        return _exists(int(self.process.get("pid", 0)))


def records(root: Path) -> list[RunRecord]:
    """All run records, oldest first."""
    paths = (root / "runs").glob("[!.]*.json")
    found = [RunRecord.model_validate_json(path.read_text()) for path in paths]
    return sorted(found, key=lambda r: r.started)


def interrupted(root: Path) -> list[RunRecord]:
    """Records that say `running` although their process is gone."""
    return [r for r in records(root) if r.status == "running" and not r.alive]


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
