"""What became of a stage: its record, from the state in which Prefect ended it."""

import traceback
from typing import Any

from prefect.states import State

from cluster.errors import BadInput, StageFailed, explain
from cluster.mlflow_tracking import tracked_as
from cluster.runs import StageRecord
from flows.plan.dag import Dag, Node
from tasks.report.findings import findings

RAY_RETRIES = 2  # a killed worker process: Ray runs the stage again, which resumes from its scratch
WORKER_DIED = (
    f"its worker process died {RAY_RETRIES + 1} times, killed by hand or for want of memory; "
    "the same command goes on from its last checkpoint"
)


def not_run(causes: list[str]) -> str:
    """Why a stage was skipped: the stages that failed."""
    return f"not run: {', '.join(causes)} failed"


def record_of(node: Node, state: State[str], causes: list[str], dag: Dag) -> StageRecord:
    """What became of a stage that has ended; `causes` are the failed stages it is skipped for."""
    about = {
        "name": node.name,
        "stage": node.spec.stage,
        "fingerprint": node.spec.fingerprint,
        "why": not_run(causes) if causes and not node.found else node.why,
    }
    if causes and not node.found:
        return StageRecord(**about, state="skipped", error=about["why"])
    if not state.is_completed():
        error = _error(state)
        return StageRecord(**about, state="failed", **_described(error))
    artifact = dag.store.open(node.found.name if node.found else state.result(), shown=True)
    manifest = artifact.manifest
    return StageRecord(
        **about,
        state="cached" if node.found else "built",
        seconds=0.0 if node.found else manifest.seconds,
        resources={} if node.found else manifest.resources,
        artifact=str(artifact.path),
        size=manifest.size,
        built_by=dag.built_by.get(node.spec.fingerprint) if node.found else None,
        tracking_run=manifest.tracking_run or tracked_as(node.spec.stage, node.spec.fingerprint),
        ledger=manifest.ledger,
        found=findings(manifest),
    )


def _described(error: BaseException) -> dict[str, Any]:
    """An error in words, and whether the user's input is at fault."""
    if isinstance(error, BadInput):
        return {"error": str(error), "bad_input": True}
    if isinstance(error, OSError) and (known := explain(error)):
        return {"error": known[0], "bad_input": known[1] == 2}
    if isinstance(error, StageFailed):
        return {"error": str(error)}
    # Of an error that nobody foresaw, its kind and the notes on where it happened as well.
    what = "".join(traceback.format_exception_only(error)).strip()
    killed = type(error).__module__ == "ray.exceptions"
    return {"error": f"{WORKER_DIED}\n{what}" if killed else what}


def _error(state: State[str]) -> BaseException:
    try:
        state.result()
    except Exception as error:
        return error
    return RuntimeError(state.message or state.name)
