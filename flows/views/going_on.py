"""The runs of a home as `headrace status` lists them: those that go on with their stages, how fast
these are and when they will be done, and those that ended last. Nothing heavy is imported.
"""

import json
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from cluster.live import Live, UnderWay, read
from cluster.runs import RunRecord, records
from cluster.store import PROGRESS
from flows.views.output import human
from flows.views.progress import figures
from tasks.report.words import duration

ENDED = 5
STALE_SECONDS = 30.0
Entry = dict[str, Any]


def runs(root: Path) -> list[Entry]:
    """The runs that go on, then the last few that have ended, newest first."""
    known = records(root)[::-1]
    going = [_going_on(root, run) for run in known if run.status == "running" and run.alive]
    ended = [run for run in known if not (run.status == "running" and run.alive)]
    return going + [_ended(run) for run in ended[:ENDED]]


def _about(run: RunRecord, status: str) -> Entry:
    return {"id": run.id, "goal": run.goal, "status": status, "started": run.started}


def _ended(run: RunRecord) -> Entry:
    status = "killed" if run.status == "running" else run.status
    return _about(run, status) | {"seconds": run.seconds, "page": run.page}


def _going_on(root: Path, run: RunRecord) -> Entry:
    now = time.time()
    seconds = now - datetime.fromisoformat(run.started).timestamp()
    expected = run.planned.get("seconds")
    left = expected - seconds if expected and expected > seconds else None  # None: it takes longer
    entry = _about(run, "running") | {"seconds": round(seconds, 1), "seconds_left": left}
    live = read(root, run.id)
    return entry | (_of_live(root, live, now) if live else {"stages": []})


def _of_live(root: Path, live: Live, now: float) -> Entry:
    found: Entry = {
        "done": live.done,
        "total": live.total,
        "stages": [_stage(root, stage, now) for stage in live.under_way],
        "waiting": live.waiting,
        "silent": round(now - live.at, 1) if now - live.at > STALE_SECONDS else None,
    }
    for name, used in (("cpus", live.cpus), ("gpus", live.gpus)):
        found[name] = None if used is None else {"used": used[0], "total": used[1]}
    return found


def _stage(root: Path, stage: UnderWay, now: float) -> Entry:
    """How far a stage is, how many of its units it does in a second, and what that leaves."""
    entry: Entry = {"name": stage.name, "seconds": round(now - stage.since, 1)}
    path = root / "work" / f"{stage.stage}-{stage.fingerprint[:8]}" / PROGRESS
    try:
        told = json.loads(path.read_text())
        at = path.stat().st_mtime
        done, total = float(told["done"]), float(told["total"])
        pace = (done - told["from"]) / (at - told["began"]) if at > told["began"] else 0.0
    except (OSError, ValueError, KeyError, TypeError):  # it says nothing, or not yet
        return entry
    if at < stage.since:  # an earlier attempt's
        return entry
    entry |= {key: told[key] for key in ("done", "total", "unit")}
    entry["figures"] = figures(told)
    if pace > 0:
        entry |= {"per_second": pace, "seconds_left": (total - done) / pace}
    return entry


def words(stage: Entry) -> str:
    """`1,200 of 1,367 steps, 12.1 steps/s, loss 2.31, about 40 s left`."""
    if "done" not in stage:
        return f"under way for {duration(stage['seconds'])}"
    unit = "B" if stage["unit"] == "bytes" else f" {stage['unit']}"
    said = [f"{human(stage['done'])} of {human(stage['total'])}{unit}"]
    if pace := stage.get("per_second"):
        said.append(f"{human(pace)}{unit.split(',')[0]}/s")
    left = stage.get("seconds_left")
    return ", ".join(
        [*said, *stage["figures"], *([] if left is None else [f"about {duration(left)} left"])]
    )


def used(run: Entry) -> str:
    """`; in use: 2 of 4 CPUs, 1 of 1 GPUs` of its Ray cluster, by this run and others."""
    found = [(key, run.get(key)) for key in ("cpus", "gpus")]
    said = [
        f"{u['used']:g} of {u['total']:g} {key[:-1].upper()}s" for key, u in found if u is not None
    ]
    return f"; in use: {', '.join(said)}" if said else ""
