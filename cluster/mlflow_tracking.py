"""The tracked run of a pipeline, with a nested run for each training stage.

Everything here only writes journals (see `cluster.tracking`), so a run never waits for MLflow
except, for a moment, at its end.
"""

import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from glob import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from cluster.home import subfolder
from cluster.services import TRAINING_VIEW, alive
from cluster.stage import info
from cluster.tracking import JournalTracker, NullTracker, Tracker, append, begun, ended, mend, sent

DRAIN_SECONDS = 20.0
PAGE_SECONDS = 2.0
STATUSES = {"completed": "FINISHED", "failed": "FAILED", "crashed": "KILLED"}
log = logging.getLogger("headrace.tracking")


class PipelineRun:
    """The tracked run of one pipeline run. `run_id` is what its stages are nested under, `tracker`
    what is told of the whole.
    """

    def __init__(self, run_id: str, tracker: JournalTracker):
        self.run_id = run_id
        self.tracker = tracker
        self._behind = False

    @classmethod
    def start(
        cls, experiment: str, run_id: str, params: Mapping[str, Any], tags: Mapping[str, str]
    ) -> "PipelineRun":
        """Begin a run named `run_id` in an experiment (a recipe's name); returns at once."""
        tags = {"headrace.run": run_id, **tags}
        tracker = JournalTracker(run_id, {"name": run_id, "experiment": experiment, "tags": tags})
        tracker.params(params)
        return cls(run_id, tracker)

    def url(self, ui: str | None, part: str = "") -> str | None:
        """The run's page in the MLflow UI at this address, or a part of that, such as
        `/artifacts/report.html`; the UI itself until the run is sent.
        """
        known = sent(self.tracker.path)
        if ui is None or "run_id" not in known:
            return ui
        page = f"#/experiments/{known['experiment_id']}/runs/{known['run_id']}{part}"
        return f"{ui.rstrip('/')}/{page}?{TRAINING_VIEW}"

    def overlaid(self, ui: str | None, runs: Sequence[str]) -> str | None:
        """MLflow's page with the losses of several tracked runs in one drawing; None until the
        pipeline's own run is sent, or where there are not several.
        """
        known = sent(self.tracker.path)
        if ui is None or "run_id" not in known or len(runs) < 2:
            return None
        asked = {
            "runs": runs,
            "metric": "loss",
            "experiments": [known["experiment_id"]],
            "plot_metric_keys": ["loss"],
        }
        query = "&".join(
            f"{k}={quote(json.dumps(v, separators=(',', ':')))}" for k, v in asked.items()
        )
        return f"{ui.rstrip('/')}/#/metric?{query}&x_axis=step&{TRAINING_VIEW}"

    def settle(self) -> None:
        """Let MLflow catch up, so that there are pages to link to: with the stages, if any was
        tracked; else with the run alone, which takes a moment.
        """
        stages = _stages(self.run_id)
        if not alive("mlflow"):
            return
        if stages:
            self._behind = not drain([self.tracker.path, *stages])
        deadline = time.monotonic() + PAGE_SECONDS
        while not sent(self.tracker.path) and time.monotonic() < deadline:
            time.sleep(0.05)

    def finish(self, status: str) -> None:
        """End the run, status `completed`, `failed` or `crashed`, and let MLflow catch up."""
        stages = _stages(self.run_id)
        close(self.run_id, STATUSES[status])
        # A run that trained nothing has nothing worth waiting for.
        if stages and not self._behind and alive("mlflow"):
            drain([self.tracker.path, *stages])


def stage_tracker(
    function: Callable[..., None], name: str, parent: str | None, fingerprint: str | None = None
) -> Tracker:
    """The tracker of one stage: a nested run when it trains or asks for one, nothing otherwise.

    With its fingerprint, a stage that is tried again in a later pipeline run goes on in the tracked
    run of the first attempt.
    """
    stage = info(function)
    if parent is None or not stage.tracked:
        return NullTracker()
    key = journal_key(stage.name, fingerprint) if fingerprint else f"{parent}-{name}"
    tags = {"headrace.stage": stage.name, "headrace.fingerprint": fingerprint or ""}
    return JournalTracker(key, {"name": name, "parent": parent, "tags": tags})


def tracked_as(stage: str, fingerprint: str) -> str | None:
    """The tracked run of a stage, if it has one and MLflow has been told of it."""
    key = journal_key(stage, fingerprint)
    journals = sorted(subfolder("tracking").glob(f"{escape(key)}.*.jsonl"), key=_number)
    return next((sent(path).get("run_id") for path in reversed(journals)), None)


def _number(journal: Path) -> int:
    return int(journal.name.split(".")[-2])


def journal_key(stage: str, fingerprint: str) -> str:
    """What the journals of one stage run are found by."""
    return f"{stage}-{fingerprint[:8]}"


def settle(tracker: Tracker) -> None:
    """Wait for MLflow to have what was tracked, before others may start."""
    if isinstance(tracker, JournalTracker) and alive("mlflow"):
        drain([tracker.path])


def close(run_id: str, status: str) -> None:
    """End the run of a pipeline, and those of its stages that did not end by themselves."""
    for path in [*subfolder("tracking").glob(f"{escape(run_id)}.*.jsonl"), *_stages(run_id)]:
        mend(path)
        if ended(path) is None:
            append(path, {"end": status})


def drain(journals: Sequence[Path]) -> bool:
    """Wait until journals are sent; a warning when it takes too long, as the rest comes later."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while waiting := [p for p in journals if p.stat().st_size > sent(p).get("offset", 0)]:
        if time.monotonic() > deadline:
            log.warning("MLflow is behind on %d runs; it gets the rest later", len(waiting))
            return False
        time.sleep(0.1)
    return True


def _stages(run_id: str) -> list[Path]:
    """The journals of the stages that ran last under a pipeline run."""
    return [p for p in subfolder("tracking").glob("*.jsonl") if begun(p).get("parent") == run_id]
