"""The Prefect flow: one run of one recipe.

    headrace run quickstart                       # as a command
    headrace deploy quickstart --cron "0 3 * * *" # on a schedule, by a Prefect worker

Both come here: plan the stages, carry them out, record what became of them.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from prefect import flow, runtime
from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.states import Cancelled, Completed, Failed, State

from cluster.artifact import Artifact
from cluster.mlflow_tracking import PipelineRun
from cluster.prefect_cancel import AskedToCancel
from cluster.ray_session import LazyRayTaskRunner
from cluster.reaper import reap
from cluster.runs import RunRecord, StageRecord
from cluster.services import Services, up
from flows.execution import execute
from flows.plan.accounts import planned, spent, with_plan
from flows.plan.at_hand import plan_of_run
from flows.plan.budget import Cap
from flows.plan.price import price
from flows.recipe import Recipe

# Stages whose figures stand for the run; those of others, and of variants, carry the stage's name.
SCORES = {"evaluate", "classify", "answers", "judge"}
# Files of rows that MLflow shows as evaluation tables.
TABLES = {
    "answers": "answers.jsonl",
    "classify": "predictions.jsonl",
    "exam": "rows.jsonl",
    "judge": "judge.jsonl",
}
Goal = Literal["all", "data", "pretrain", "sweep"]
log = logging.getLogger("headrace.run")


@flow(name="headrace", flow_run_name="{recipe.name}", task_runner=LazyRayTaskRunner())
def pipeline(recipe: Recipe, goal: Goal = "all", rebuild: Sequence[str] = ()) -> State[Any]:
    """Take a recipe to its goal. What became of it is in the run record, failed or not."""
    started = time.monotonic()
    dag = plan_of_run(goal, recipe, rebuild)
    store = dag.store
    reap(store.root)
    services = up()
    record = RunRecord.start(recipe.model_dump(mode="json"), goal)
    priced = price(dag, recipe.placement)
    cap = Cap.of(priced, started)
    record = record.model_copy(
        update={"flow_run_id": str(runtime.flow_run.id), "planned": planned(priced)}
    )
    tracked = PipelineRun.start(recipe.name, record.id, record.recipe, record.flow_run_id)
    record = record.model_copy(
        update={"tracking_run": tracked.run_id, "urls": _urls(tracked, services)}
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
        seconds = round(time.monotonic() - started, 3)
        order = [node.name for node in dag]
        done.sort(key=lambda stage: order.index(stage.name))
        done = [with_plan(stage, priced) for stage in done]
        record = record.model_copy(update={"stages": done, "status": status, "seconds": seconds})
        if status == "completed":
            record = record.model_copy(update={"spent": spent(priced, done, seconds)})
        record = record.model_copy(update=_results(done))
        record.save(store.root)
        for stage in done:
            if stage.artifact and stage.stage in TABLES:
                tracked.table(f"{stage.name}.json", Path(stage.artifact) / TABLES[stage.stage])
        tracked.finish(status, record.metrics)
        urls = _urls(tracked, services)  # MLflow has its page by now
        record = record.model_copy(update={"urls": urls})
        record.save(store.root)
    try:
        _publish(record)
    except Exception as error:  # the run has ended, whether or not Prefect can be told
        log.warning("Prefect does not show the report of %s: %s", record.id, error)
    return cancelled or _state(record)


def _state(record: RunRecord) -> State[Any]:
    failed = [s for s in record.stages if s.state == "failed"]
    if failed:
        return Failed(message=f"{failed[0].name}: {failed[0].error}")
    return Completed(message=f"{record.id}: {len(record.stages)} stages")


def _urls(tracked: PipelineRun, services: Services) -> dict[str, str]:
    flow_url = f"{services.prefect_ui}/runs/flow-run/{runtime.flow_run.id}"
    urls = {"prefect": flow_url, "mlflow": tracked.url(services.mlflow_ui)}
    return {name: url for name, url in urls.items() if url}


def _results(stages: list[StageRecord]) -> dict[str, Any]:
    """The run's figures, gathered from its artifacts, and the path of its report."""
    metrics: dict[str, float] = {}
    report = None
    for stage in stages:
        if stage.artifact is None or stage.stage == "sweep":
            continue
        prefix = "" if stage.name in SCORES else f"{stage.name}."
        found = Artifact.load(Path(stage.artifact)).manifest.metrics
        metrics |= {f"{prefix}{key}": value for key, value in found.items()}
        if stage.stage == "report":
            report = str(Path(stage.artifact) / "report.html")
    return {"metrics": metrics, "report": report}


def _cell(text: str) -> str:
    """Text that stays in its cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").replace("`", "'").split())


def _publish(record: RunRecord) -> None:
    """Show the outcome on the flow run's page in the Prefect UI."""
    if url := record.urls.get("mlflow"):
        create_link_artifact(key="mlflow-run", link=url, description="The run in MLflow")
    lines = [f"| {key} | {value:.5g} |" for key, value in sorted(record.metrics.items())]
    stages = [
        f"| {s.name} | {s.state} | {s.seconds:.1f} | {_cell(s.why)} "
        f"| `{_cell(s.artifact or s.error or '')}` |"
        for s in record.stages
    ]
    text = "\n".join(
        [
            f"Report: `{record.report}`\n",
            "| stage | state | seconds | why | artifact |\n|---|---|---|---|---|",
            *stages,
            "\n| figure | value |\n|---|---|",
            *lines,
        ]
    )
    create_markdown_artifact(key="report", markdown=text, description=f"{record.id}: the report")
