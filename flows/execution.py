"""A planned run, carried out: each stage a Prefect task, on Ray unless it is cached.

The driver asks the store first. A hit is a driver task that ends in a `Cached` state; a miss is
submitted to Ray, which starts with the first of them, as soon as what it needs is there; what waits
for a stage that failed ends in a `Skipped` state. What stages hand to each other is the path of an
artifact; bytes stay where they are.
"""

import logging
import re
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast
from uuid import UUID

from prefect import task
from prefect.artifacts import create_progress_artifact, update_progress_artifact
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture
from prefect.states import Cancelled, Completed, State
from prefect_ray.context import remote_options

from cluster.artifact import Artifact
from cluster.errors import BadInput, explain
from cluster.mlflow_tracking import settle, stage_tracker
from cluster.placement import Placement
from cluster.prefect_server import mark_crashed
from cluster.runs import StageRecord
from cluster.stage import build, info
from cluster.store import Spec, Store
from flows.dag import Dag, Node

log = logging.getLogger("headrace.run")
Handle = PrefectFuture[str] | State[str]
PROGRESS_SECONDS = 5.0
RAY_RETRIES = 2  # a killed worker process: Ray runs the stage again, which resumes from its scratch


@dataclass(frozen=True)
class Call:
    """What a worker needs to build one stage: all of it small, all of it picklable."""

    name: str
    spec: Spec
    function: Callable[..., None]
    literals: dict[str, Any]
    placement: Placement
    root: Path
    tracking_parent: str | None
    forced: bool


class ProgressArtifact:
    """Shows a stage's progress on its page in the Prefect UI; at most every five seconds."""

    def __init__(self, name: str):
        self.name, self.shown = name, 0.0
        self.id: UUID | None = None

    def __call__(self, report: dict[str, Any]) -> None:
        """Create or update the artifact; an unreachable server never holds up a stage."""
        if time.monotonic() - self.shown < PROGRESS_SECONDS or not report["total"]:
            return
        self.shown = time.monotonic()
        percent = 100 * report["done"] / report["total"]
        try:
            if self.id is None:
                key = re.sub("[^a-z0-9]+", "-", self.name.lower())
                shown = create_progress_artifact(percent, key=key, description=self.name)
                self.id = cast(UUID, shown)  # a coroutine only where an event loop runs
            else:
                update_progress_artifact(self.id, percent)
        except Exception as error:
            log.warning("progress of %s is not shown: %s", self.name, error)


@task(cache_policy=NO_CACHE, persist_result=False)
def build_stage(call: Call, inputs: dict[str, str | list[str]]) -> str:
    """Build one stage in this process; the path of its artifact."""
    tracker = stage_tracker(call.function, call.name, call.tracking_parent, call.spec.fingerprint)
    arguments: dict[str, Any] = {name: _load(value) for name, value in inputs.items()}
    try:
        artifact = build(
            call.function,
            Store(call.root),
            spec=call.spec,
            placement=call.placement,
            tracker=tracker,
            on_progress=ProgressArtifact(call.name),
            force=call.forced,
            **arguments,
            **call.literals,
        )
    except BaseException:
        tracker.close("FAILED")
        raise
    if "model.safetensors" in artifact.manifest.files:
        tracker.model(artifact.path)
    tracker.close()
    if not info(call.function).trains:
        settle(tracker)
    return str(artifact.path)


@task(cache_policy=NO_CACHE, persist_result=False)
def cached_stage(name: str, path: str, inputs: dict[str, Any]) -> State[str]:
    """A stage whose artifact is already in the store."""
    return Completed(name="Cached", message=f"{name}: {path}", data=path)


@task(cache_policy=NO_CACHE, persist_result=False)
def skipped_stage(why: str) -> State[str]:
    """A stage that is not run, as one that it needs failed."""
    return Cancelled(name="Skipped", message=why)


def execute(
    dag: Dag,
    placement: Placement,
    tracking_parent: str | None = None,
    on_stage: Callable[[StageRecord], None] = lambda record: None,
) -> list[StageRecord]:
    """Run every stage of the plan inside the current Prefect flow run; one record per stage.

    `on_stage` is called as each ends. A failed stage skips those that need it; the others go on.
    """
    run = Run(dag, placement, tracking_parent)
    waiting = list(dag)
    while len(run.records) < len(dag.nodes):
        for node in waiting:
            if run.records.keys() >= {need.name for need in _needs(node)}:
                run.handles[node.name] = run.start(node)
        waiting = [node for node in waiting if node.name not in run.handles]
        for node in run.ended():
            run.records[node.name] = _record(node, run.handles[node.name], run.causes(node))
            on_stage(run.records[node.name])
    return [run.records[node.name] for node in dag]


class Run:
    """Which stages of a plan have been started, and what became of those that have ended."""

    def __init__(self, dag: Dag, placement: Placement, tracking_parent: str | None):
        self.dag, self.placement, self.tracking_parent = dag, placement, tracking_parent
        self.handles: dict[str, Handle] = {}
        self.records: dict[str, StageRecord] = {}

    def start(self, node: Node) -> Handle:
        """Start a stage of which all that it needs has ended."""
        names: dict[str, Any] = {"name": node.spec.stage, "task_run_name": node.name}
        causes = self.causes(node)
        if causes and not node.found:
            return _ended_with(skipped_stage.with_options(**names), _not_run(causes))
        upstream = {} if causes else node.upstream
        inputs = {key: _handles(value, self.handles) for key, value in upstream.items()}
        if node.found:
            path = str(node.found.path)
            return _ended_with(cached_stage.with_options(**names), node.name, path, inputs)
        inputs |= {key: _paths(value) for key, value in node.given.items()}
        call = _call(node, self.dag, self.placement, self.tracking_parent)
        with remote_options(max_retries=RAY_RETRIES, **_resources(node, self.placement)):
            submit: Any = build_stage.with_options(**names).submit
            return cast(PrefectFuture[str], submit(call, inputs))

    def causes(self, node: Node) -> list[str]:
        """The failed stages for which this one cannot run."""
        found: dict[str, None] = {}
        for need in _needs(node):
            if self.records[need.name].state == "failed":
                found[need.name] = None
            elif self.records[need.name].state == "skipped":
                found |= dict.fromkeys(self.causes(need))
        return list(found)

    def ended(self) -> list[Node]:
        """The started stages that have ended and have no record yet; waits until there is one."""
        started = [n for n in self.dag if n.name in self.handles and n.name not in self.records]
        done = [node for node in started if isinstance(self.handles[node.name], State)]
        if done:
            return done
        import ray

        running = {cast(Any, self.handles[node.name]).wrapped_future: node for node in started}
        ready, _ = ray.wait(list(running), num_returns=1)
        return [running[reference] for reference in ready]


def _ended_with(stage: Any, *arguments: Any) -> State[str]:
    """The state of a stage for which the driver does what there is to do."""
    return cast(State[str], stage(*arguments, return_state=True))


def _needs(node: Node) -> list[Node]:
    """The stages that have to end before this one starts."""
    values = [v if isinstance(v, list) else [v] for v in node.upstream.values()]
    return [*chain.from_iterable(values), *([node.after] if node.after else [])]


def _not_run(causes: list[str]) -> str:
    return f"not run: {', '.join(causes)} failed"


def _call(node: Node, dag: Dag, placement: Placement, tracking_parent: str | None) -> Call:
    return Call(
        name=node.name,
        spec=node.spec,
        function=node.function,
        literals=node.literals,
        placement=placement,
        root=dag.store.root,
        tracking_parent=tracking_parent,
        forced=node.why == "forced",
    )


def _resources(node: Node, placement: Placement) -> dict[str, int]:
    """What a stage asks of Ray. A stage that launches several workers asks for nothing itself:
    its workers ask, and on a small machine a CPU held here would keep them waiting for ever.
    """
    if not node.about.trains:
        return {"num_cpus": 1}
    if placement.workers > 1:
        return {"num_cpus": 0}
    return {"num_cpus": placement.cpu_threads, "num_gpus": placement.gpus}


def _handles(value: Node | list[Node], handles: dict[str, Handle]) -> Any:
    if isinstance(value, Node):
        return handles[value.name]
    return [handles[node.name] for node in value]


def _paths(value: Artifact | list[Artifact]) -> Any:
    if isinstance(value, Artifact):
        return str(value.path)
    return [str(artifact.path) for artifact in value]


def _load(value: str | list[str]) -> Artifact | list[Artifact]:
    if isinstance(value, str):
        return Artifact.load(Path(value))
    return [Artifact.load(Path(path)) for path in value]


def _record(node: Node, handle: Handle, causes: list[str]) -> StageRecord:
    """What became of a stage that has ended; `causes` are the failed stages it is skipped for."""
    state = _final_state(handle)
    about = {
        "name": node.name,
        "stage": node.spec.stage,
        "fingerprint": node.spec.fingerprint,
        "why": _not_run(causes) if causes and not node.found else node.why,
    }
    if causes and not node.found:
        return StageRecord(**about, state="skipped", error=about["why"])
    if not state.is_completed():
        error = _error(state)
        return StageRecord(**about, state="failed", **_described(error))
    artifact = Artifact.load(Path(state.result()))
    return StageRecord(
        **about,
        state="cached" if node.found else "built",
        seconds=0.0 if node.found else artifact.manifest.seconds,
        resources={} if node.found else artifact.manifest.resources,
        artifact=str(artifact.path),
        ledger=artifact.manifest.ledger,
    )


def _described(error: BaseException) -> dict[str, Any]:
    """An error in words, and whether the user's input is at fault."""
    if isinstance(error, BadInput):
        return {"error": str(error), "bad_input": True}
    if isinstance(error, OSError) and (known := explain(error)):
        return {"error": known[0], "bad_input": known[1] == 2}
    # Of an error that nobody foresaw, its kind and the notes on where it happened as well.
    return {"error": "".join(traceback.format_exception_only(error)).strip()}


def _final_state(handle: Handle) -> State[str]:
    if isinstance(handle, State):
        return handle
    handle.wait()
    if handle.state.is_crashed():  # the dead worker could not tell the server itself
        mark_crashed(task_run_id=str(handle.task_run_id))
    return handle.state


def _error(state: State[str]) -> BaseException:
    try:
        state.result()
    except Exception as error:
        return error
    return RuntimeError(state.message or state.name)
