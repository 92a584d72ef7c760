"""A planned run, carried out: each stage a Prefect task, on Ray unless it is cached.

The driver asks the store first. A hit is a driver task that ends in a `Cached` state; a miss is
submitted to Ray, which starts with the first of them, as soon as what it needs is there; what waits
for a stage that failed ends in a `Skipped` state. What stages hand to each other is the name of an
artifact, by which a node finds it in its home or in the shared store; bytes stay where they are.
"""

import logging
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import Any, cast

from prefect import runtime
from prefect.futures import PrefectFuture
from prefect.states import Failed, State
from prefect_ray.context import remote_options
from prefect_ray.task_runners import PrefectRayFuture

from cluster import ray_session
from cluster.artifact import Artifact
from cluster.capacity import check_fits
from cluster.errors import BadInput, StageFailed
from cluster.placement import Placement
from cluster.prefect_cancel import Asked, cancelling
from cluster.prefect_server import NO_ANSWER, mark_crashed
from cluster.ray_tasks import end_tasks
from cluster.runs import StageRecord
from cluster.url_secrets import known
from flows.following import Follower
from flows.outcomes import RAY_RETRIES, not_run, record_of
from flows.plan.budget import Cap
from flows.plan.dag import Dag, Node
from flows.plan.work import Work, work_of
from flows.queueing import Queue
from flows.stage_tasks import Call, build_stage, cached_stage, skipped_stage
from tasks.report.findings import findings

log = logging.getLogger("headrace.run")
Handle = PrefectFuture[str] | State[str]
RAY_RESTARTS = 2
DEATH_POLL_SECONDS = 1.0
TURN_POLL_SECONDS = 0.2


def execute(
    dag: Dag,
    placement: Placement,
    tracking_parent: str | None = None,
    on_stage: Callable[[StageRecord], None] = lambda record: None,
    cap: Cap | None = None,
) -> list[StageRecord]:
    """Run every stage of the plan inside the current Prefect flow run; one record per stage.

    `on_stage` is called as each ends; at its `cap` what runs is ended. A failed stage skips those
    that need it; the others go on.
    Raises AskedToCancel when the flow run is cancelled in Prefect.
    """
    logging.getLogger("prefect.task_runs").addFilter(_no_error_of_skipped)
    with cancelling(runtime.flow_run.id) as asked, closing(Queue(dag, _shown)) as queue:
        run = Run(dag, placement, tracking_parent, queue, cap)
        try:
            run.carry_out(on_stage, asked)
        except BaseException:
            run.end()
            raise
        finally:
            run.follower.close()
    return [run.records[node.name] for node in dag]


class Run:
    """Which stages of a plan have been started, and what became of those that have ended."""

    def __init__(
        self,
        dag: Dag,
        placement: Placement,
        tracking_parent: str | None,
        queue: Queue,
        cap: Cap | None,
    ):
        self.dag, self.placement, self.tracking_parent = dag, placement, tracking_parent
        self.queue, self.cap = queue, cap
        self.handles: dict[str, Handle] = {}
        self.records: dict[str, StageRecord] = {}
        self.restarts = 0
        self.fits = False
        self.refused: State[str] | None = None
        self.follower = Follower(dag, tracking_parent)

    def carry_out(self, on_stage: Callable[[StageRecord], None], asked: Asked) -> None:
        """Start every stage when what it needs has ended and it is this run's turn to build it, and
        record what becomes of it.
        """
        waiting = list(self.dag)
        while len(self.records) < len(self.dag.nodes):
            asked.check()
            self.check_cap()
            for node in waiting:
                if ready := self.ready(node):
                    self.handles[node.name] = self.start(ready)
            waiting = [node for node in waiting if node.name not in self.handles]
            for node in self.ended():
                state = _final_state(node, self.handles[node.name])
                found = record_of(node, state, self.causes(node), self.dag)
                self.records[node.name] = found
                self.queue.leave(node)
                self.follower.end(node, found.state == "built")
                on_stage(found)

    def check_cap(self) -> None:
        """At its cap, end what runs, and let nothing more begin."""
        if self.cap is None or time.monotonic() < self.cap.at:
            return
        self.refused = Failed(message=str(self.cap), data=StageFailed(str(self.cap)))
        self.cap = None
        ended = self.end()
        self.handles |= dict.fromkeys((node.name for node in ended), self.refused)

    def ready(self, node: Node) -> Node | None:
        """The stage if it can start: all that it needs has ended, and no other run builds it."""
        if not self.records.keys() >= {need.name for need in node.needs}:
            return None
        return node if self.refused or self.causes(node) else self.queue.turn(node)

    def start(self, node: Node) -> Handle:
        """Start a stage of which all that it needs has ended."""
        causes = self.causes(node)
        if causes and not node.found:
            return _ended_with(_named(skipped_stage, node), not_run(causes))
        if node.found:
            # What it needs is shown, and not handed over: of a thousand stages that takes seconds.
            needs = [] if causes else [self.handles[need.name] for need in node.needs]
            said = findings(node.found.manifest)
            return _ended_with(_named(cached_stage, node), node.found.name, said, wait_for=needs)
        inputs = {key: _handles(value, self.handles) for key, value in node.upstream.items()}
        with remote_options(max_retries=RAY_RETRIES, **_resources(node, self.placement)):
            return self._submitted(partial(self._submit, node, inputs))

    def _submit(self, node: Node, inputs: dict[str, Any]) -> PrefectFuture[str]:
        """Submit a stage; first what it takes is put where all nodes find it."""
        self._start_ray()
        offer = self.dag.store.offer
        for need in node.needs:
            if need.found:
                offer(need.found)
        inputs |= {
            key: [offer(one) for one in value] if isinstance(value, list) else offer(value)
            for key, value in node.given.items()
        }
        work = work_of(node, self.placement, self.size)
        call = _call(node, self.dag, self.placement, self.tracking_parent, work)
        submit: Any = _shown(node).submit
        return submit(call, inputs)

    def size(self, one: Node | Artifact) -> float:
        """Bytes of the files of an input, which is there."""
        return self.records[one.name].size if isinstance(one, Node) else one.manifest.size

    def _submitted(self, submit: Callable[[], PrefectFuture[str]]) -> Handle:
        """What submits a stage, called; where there is no Ray, or the run is at its cap, every
        stage fails for that.
        """
        try:
            return self.refused or submit()
        except (BadInput, StageFailed) as error:
            self.refused = Failed(message=str(error), data=error)
            return self.refused

    def _start_ray(self) -> None:
        """Start or join Ray. Raises BadInput where it has no room for what there is to build."""
        ray_session.start()
        if not self.fits:
            trains = any(node.about.trains for node in self.dag if not node.found)
            check_fits(self.placement, trains)
            self.fits = True

    def causes(self, node: Node) -> list[str]:
        """The failed stages for which this one cannot run."""
        found: dict[str, None] = {}
        for need in node.needs:
            if self.records[need.name].state == "failed":
                found[need.name] = None
            elif self.records[need.name].state == "skipped":
                found |= dict.fromkeys(self.causes(need))
        return list(found)

    def ended(self) -> list[Node]:
        """The started stages that have ended and have no record yet; waits for a second at most
        until there is one.
        """
        started = [n for n in self.dag if n.name in self.handles and n.name not in self.records]
        if not any(isinstance(self.handles[node.name], State) for node in started):
            if ray_session.died():
                self._start_again(started)
            else:
                self._wait(started)
        return [node for node in started if isinstance(self.handles[node.name], State)]

    def _wait(self, started: list[Node]) -> None:
        """Let a second pass, or less if a stage ends; those that have are replaced by their states.

        What a session returned that died since is not believed.
        """
        import ray

        self.follower.look(started, self.queue.waiting, len(self.records))
        if not (running := self._references(started)):
            time.sleep(TURN_POLL_SECONDS)  # for the turns of other runs
            return
        try:
            ready, _ = ray.wait(list(running), num_returns=1, timeout=DEATH_POLL_SECONDS)
        except SystemError as error:  # how Ray passes on what a signal handler raises
            raise error.__cause__ or error from None
        ended = [running[ref] for ref in ready]
        # The states, then the question: a session that dies in between
        # would else pass for stages that failed.
        states = {node.name: _final_state(node, self.handles[node.name]) for node in ended}
        if not ray_session.died():
            self.handles |= states

    def _start_again(self, lost: list[Node]) -> None:
        """Start another Ray session and in it the stages that the one before took with it."""
        self.restarts += 1
        for node in lost:
            _tell_crashed(node, self.handles[node.name])
        self._submitted(self._restarted_ray)
        for node in lost:
            self.handles[node.name] = self.start(node)

    def _restarted_ray(self) -> Any:
        if self.restarts > RAY_RESTARTS:
            raise StageFailed(
                f"Ray's daemon died {self.restarts} times in this run, most likely for want of "
                "memory; the same command goes on from the stages that are built"
            )
        ray_session.restart()

    def end(self) -> list[Node]:
        """End what was started and goes on, and tell what; trainings leave a checkpoint."""
        going_on = [n for n in self.dag if n.name in self.handles and n.name not in self.records]
        running = self._references(going_on)
        end_tasks(list(running))
        return list(running.values())

    def _references(self, nodes: Sequence[Node]) -> dict[Any, Node]:
        """Stages that Ray has been given, by Ray's reference."""
        handles = ((self.handles[node.name], node) for node in nodes)
        return {h.wrapped_future: node for h, node in handles if isinstance(h, PrefectRayFuture)}


def _no_error_of_skipped(record: logging.LogRecord) -> bool:
    """Prefect logs whatever does not complete as an error; the failed stage is the one there is."""
    return "Finished in state Skipped" not in record.getMessage()


def _named(stage: Any, node: Node) -> Any:
    return stage.with_options(name=node.spec.stage, task_run_name=node.name)


def _shown(node: Node) -> Any:
    """The task that stands for a stage in Prefect."""
    return _named(build_stage, node)


def _ended_with(stage: Any, *arguments: Any, wait_for: Sequence[Handle] = ()) -> State[str]:
    """The state of a stage for which the driver does what there is to do."""
    return cast(State[str], stage(*arguments, return_state=True, wait_for=wait_for))


def _call(
    node: Node, dag: Dag, placement: Placement, tracking_parent: str | None, work: Work
) -> Call:
    return Call(
        name=node.name,
        spec=node.spec,
        function=node.function,
        literals=node.literals,
        placement=placement,
        root=dag.store.root,
        tracking_parent=tracking_parent,
        forced=node.why == "forced",
        work=work,
        url_secrets=known(),
    )


def _resources(node: Node, placement: Placement) -> dict[str, float]:
    """What a stage asks of Ray. A stage that launches several workers asks for nothing itself:
    its workers ask, and on a small machine a CPU held here would keep them waiting for ever.
    """
    if node.about.scores:
        return {"num_cpus": 1, "num_gpus": min(1, placement.gpus)}
    if not node.about.trains:
        return {"num_cpus": 1}
    if placement.workers > 1:
        return {"num_cpus": 0}
    return {"num_cpus": placement.cpu_threads, "num_gpus": placement.gpus}


def _handles(value: Node | list[Node], handles: dict[str, Handle]) -> Any:
    if isinstance(value, Node):
        return handles[value.name]
    return [handles[node.name] for node in value]


def _final_state(node: Node, handle: Handle) -> State[str]:
    if isinstance(handle, State):
        return handle
    handle.wait()
    if handle.state.is_crashed():
        _tell_crashed(node, handle)
    return handle.state


def _tell_crashed(node: Node, handle: Handle) -> None:
    """Tell Prefect of a task run whose process died; it could not do that itself."""
    try:
        mark_crashed(cast(PrefectFuture[str], handle).task_run_id, _shown(node))
    except NO_ANSWER as error:
        log.warning("Prefect is not told of a crashed stage: %s", error)
