"""The Prefect flow: one run of one recipe.

    headrace run quickstart                       # as a command
    headrace deploy quickstart --cron "0 3 * * *" # on a schedule, by a Prefect worker

Both come here: plan the stages, carry them out, record what became of them.
"""

import logging
import time
from collections.abc import Sequence
from datetime import date as Day
from pathlib import Path
from typing import Any, Literal

from prefect import flow, runtime
from prefect.context import FlowRunContext
from prefect.states import Cancelled, Completed, Failed, State

from cluster.errors import StageFailed, sentence
from cluster.mlflow_tracking import PipelineRun
from cluster.prefect_cancel import AskedToCancel
from cluster.ray_session import LazyRayTaskRunner
from cluster.reaper import reap
from cluster.runs import RunRecord, StageRecord, records
from cluster.services import up
from flows.execution import execute
from flows.overrides import read_override
from flows.plan.accounts import spent, with_plan
from flows.plan.at_hand import plan_of_run
from flows.plan.budget import Cap
from flows.plan.dag import Dag
from flows.plan.price import Price, price
from flows.publishing import artifacts_of, origin, publish, results, tell, urls
from flows.recipe import Recipe, overridden

NAME = 160  # characters of a run's name
Goal = Literal["all", "data", "pretrain", "sweep", "reproduce", "mix"]
log = logging.getLogger("headrace.run")


def run_name() -> str:
    """What Prefect calls this run: recipe, goal, what was set, and the day if it has one."""
    asked = runtime.flow_run.parameters
    said = [asked["recipe"].name, asked["goal"], *asked["overrides"]]
    if asked["recipe"].dated:
        said.append(str(asked["date"] or _scheduled_day()))
    return "-".join(said)[:NAME]


@flow(name="headrace", flow_run_name=run_name, task_runner=LazyRayTaskRunner())
def pipeline(
    recipe: Recipe,
    goal: Goal = "all",
    rebuild: Sequence[str] = (),
    overrides: Sequence[str] = (),
    date: Day | None = None,
) -> State[Any]:
    """Take a recipe to its goal. What became of it is in the run record, failed or not.

    Args:
        recipe: what to make
        goal: how far to go
        rebuild: stages to build again even if they are cached
        overrides: KEY=VALUE, put over the recipe, such as `model.depth=6`; the run's name has them
        date: the day that `{date}` in the sources' paths stands for; by default that for which the
            run is scheduled (UTC)
    """
    logging.getLogger("prefect.flow_runs").addFilter(_in_a_sentence)
    started = time.monotonic()
    recipe = overridden(recipe, dict(map(read_override, overrides)))
    recipe = recipe.on(date or _scheduled_day())
    dag = plan_of_run(goal, recipe, rebuild)
    store = dag.store
    reap(store.root)
    services = up()
    priced = price(dag, recipe.placement)
    cap = Cap.of(priced, started)
    record = _record(store.root, recipe, goal, priced)
    tracked = PipelineRun.start(recipe.name, record.id, record.recipe, origin(record))
    record = record.model_copy(
        update={"tracking_run": tracked.run_id, "urls": urls(tracked, services)}
    )
    record.save(store.root)
    for note in recipe.left_out() if goal == "all" else ():
        log.warning(note)
    done: list[StageRecord] = []
    status, cancelled = "crashed", None
    try:
        execute(dag, recipe.placement, tracked.run_id, done.append, cap)
        status = "failed" if any(s.state == "failed" for s in done) else "completed"
    except AskedToCancel as error:
        cancelled = Cancelled(message=str(error))
    finally:
        stages = _in_order(dag, done, priced)
        seconds = round(time.monotonic() - started, 3)
        found = artifacts_of(stages)
        ended = {"stages": stages, "status": status, "seconds": seconds, **results(found)}
        if status == "completed":
            ended["spent"] = spent(priced, stages, seconds)
        record = record.model_copy(update=ended)
        record.save(store.root)
        record = tell(record, store.root, found, tracked, services)
        record.save(store.root)
    try:
        publish(record)
    except Exception as error:  # the run has ended, whether or not Prefect can be told
        log.warning("Prefect does not show the report of %s: %s", record.id, error)
    return cancelled or _state(store.root, record, cap)


def _in_a_sentence(record: logging.LogRecord) -> bool:
    """Prefect logs what ends a flow with a traceback; of what a user can mend its sentence does."""
    if record.exc_info and (said := sentence(record.exc_info[1])):
        record.msg, record.args, record.exc_info = said, (), None
    return True


def _in_order(dag: Dag, done: list[StageRecord], priced: Price) -> list[StageRecord]:
    """The stages that have ended, in the order of the plan, each beside its planned time."""
    by_name = {stage.name: stage for stage in done}
    return [with_plan(by_name[node.name], priced) for node in dag if node.name in by_name]


def _record(root: Path, recipe: Recipe, goal: Goal, priced: Price) -> RunRecord:
    """The record of a run that begins; one that is tried again keeps its id."""
    mine = str(runtime.flow_run.id)
    new = RunRecord.start(recipe.model_dump(mode="json"), goal)
    new = new.model_copy(update={"flow_run_id": mine, "planned": priced.whole()})
    if runtime.flow_run.run_count > 1:
        earlier = [record for record in records(root) if record.flow_run_id == mine]
        return new.model_copy(update={"id": earlier[-1].id}) if earlier else new
    return new


def _scheduled_day() -> Day:
    return runtime.flow_run.scheduled_start_time.date()


def _state(root: Path, record: RunRecord, cap: Cap) -> State[Any]:
    """How the flow run ends. Raises StageFailed where Prefect is to try again: a flow that returns
    its failure is over for this process.
    """
    failed = [s for s in record.stages if s.state == "failed"]
    if failed:
        message = f"{failed[0].name}: {failed[0].error}"
        if _is_tried_again() and failed[0].error != str(cap):  # which would be passed
            # Else the next attempt would take it for one that Prefect was not told of.
            record.model_copy(update={"status": "running"}).save(root)
            raise StageFailed(message)
        return Failed(message=message)
    return Completed(message=f"{record.id}: {len(record.stages)} stages")


def _is_tried_again() -> bool:
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    return run is not None and run.run_count <= (run.empirical_policy.retries or 0)
