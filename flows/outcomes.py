"""What became of a stage: its record, from the state in which Prefect ended it."""

import traceback
from typing import Any

from prefect.states import State

from cluster.errors import BadInput, explain, sentence
from cluster.mlflow_tracking import tracked_as
from cluster.runs import StageRecord
from flows.plan.dag import Dag, Node
from tasks.report.findings import findings

RAY_RETRIES = 2  # a killed worker process: Ray runs the stage again, which resumes from its scratch
NODE_DIED = "the node that it ran on died"
LOST = {  # why Ray gives a stage up, by the class of its error
    "WorkerCrashedError": f"its worker process died {RAY_RETRIES + 1} times, killed by hand or for "
    "want of memory",
    "OutOfMemoryError": "Ray ended its worker process for want of memory",
    "NodeDiedError": NODE_DIED,
    "LocalRayletDiedError": NODE_DIED,
}


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
    error = getattr(error, "cause", None) or error  # of one that Ray passes on
    if said := sentence(error):
        known = explain(error) if isinstance(error, OSError) else None
        at_fault = known[1] == 2 if known else isinstance(error, BadInput)
        return {"error": said, "bad_input": at_fault}
    # Of an error that nobody foresaw, its kind and the notes on where it happened as well.
    what = "".join(traceback.format_exception_only(error)).strip()
    if type(error).__module__ != "ray.exceptions":
        return {"error": what}
    lost = LOST.get(type(error).__name__, "Ray could not carry it out")
    return {"error": f"{lost}; the same command goes on from its last checkpoint\n{what}"}


def _error(state: State[str]) -> BaseException:
    try:
        state.result()
    except Exception as error:
        return error
    return RuntimeError(state.message or state.name)
