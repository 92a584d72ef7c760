"""What run, data, pretrain, sweep and adapt do alike: carry a recipe to a goal, and tell of it."""

import os
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, cast

from cluster.errors import BadInput, StageFailed, sentence
from cluster.home import home
from flows.days import day_of
from flows.views.output import Output, output, reason, tell, waiting
from flows.views.run_outcome import show_run

if TYPE_CHECKING:
    from flows.plan.dag import Dag
    from flows.recipe import Recipe


def carry_out(
    goal: str,
    made: "Callable[[], Recipe]",
    overrides: Sequence[str] | None,
    rebuild: Sequence[str] | None,
    as_json: bool,
    inspected: bool = False,
    metric: str | None = None,
    day: datetime | None = None,
    result_of: Callable[[dict[str, Any]], dict[str, Any]] = lambda record: {},
    shown: Callable[[Output, dict[str, Any]], None] = lambda out, result: None,
) -> None:
    """Run the recipe that `made` reads to a goal, show it, print its result, with what `result_of`
    the record adds, or one `metric`; `shown` is how what was added is shown.

    Raises BadInput (exit 2) when the recipe or a source is at fault, else StageFailed (exit 1).
    """
    from flows.views.samples import inspect, show_inspection
    from flows.views.sweep_outcome import show_variants

    with output(as_json or metric is not None) as out:
        recipe = made()
        try:
            record = _run_flow(recipe, goal, rebuild or (), overrides or (), day_of(day))
        except (KeyboardInterrupt, SystemExit) as stop:
            _tell_of_stop(out, goal, stop, metric)
            raise
        samples = inspect(record) if inspected else None
        result = _result(record, goal) | ({} if samples is None else {"inspect": samples})
        result |= result_of(record)
        out.result(_printed(result, metric))
        show_run(out, record)
        if "variants" in result:
            show_variants(out, result)
        shown(out, result)
        show_inspection(out, samples or [])
        _raise_failure(record)


def _run_flow(
    recipe: "Recipe", goal: str, rebuild: Sequence[str], overrides: Sequence[str], day: date
) -> dict[str, Any]:
    from flows.plan.at_hand import planned

    dag = planned(goal, recipe.on(day), rebuild)
    return run_planned(dag, recipe, goal, rebuild, overrides, day)


def run_planned(
    dag: "Dag",
    recipe: "Recipe",
    goal: str,
    rebuild: Sequence[str],
    overrides: Sequence[str],
    day: date,
) -> dict[str, Any]:
    """Carry out a plan of a recipe; the record of the run. Raises StageFailed where it has none."""
    from cluster.named_servers import check_ray
    from cluster.runs import records
    from cluster.services import up
    from flows.plan.at_hand import at_hand

    check_ray()
    with waiting("starting the local services"):
        up()
    import httpx

    from flows.pipeline import pipeline
    from flows.views.progress import watch

    with watch(dag), at_hand(dag):
        try:
            state = cast(Any, pipeline)(  # its type does not tell of `return_state`
                recipe, goal, list(rebuild), list(overrides), day, return_state=True
            )
        except httpx.HTTPError as error:  # the stages are done; Prefect could not be told
            return _untold(error)
    for record in reversed(records(home())):
        if record.flow_run_id == str(state.state_details.flow_run_id):
            # One that crashed between stages has no failed stage to tell of; on a full disk its
            # record may say yet that it runs.
            crash = {"status": "failed", "error": _ending(state)}
            found = record.model_dump(mode="json", by_alias=True)
            return found | (crash if record.status in ("crashed", "running") else {})
    state.result()  # a run that ended before it had a record raises its own error
    raise StageFailed(_ending(state))


def _untold(error: Exception) -> dict[str, Any]:
    """The record of this process's run, whose end the Prefect server was too dead to hear of."""
    from cluster.runs import records

    gone = (
        f"the Prefect server at {os.environ['PREFECT_API_URL']} went away during the run ({error})"
    )
    own = [r for r in records(home()) if r.own and r.status != "running"]
    if not own:
        raise StageFailed(f"{gone}: start it and give the same command again") from error
    tell(f"{gone}; the next run there tells it how this one ended", "warning:", "yellow")
    return own[-1].model_dump(mode="json", by_alias=True)


def _tell_of_stop(out: Output, goal: str, stop: BaseException, metric: str | None) -> None:
    """What there is to say of a run that was ended from outside."""
    from cluster.runs import records

    for record in reversed(records(home())):
        if record.own:
            found = record.model_dump(mode="json", by_alias=True)
            stopped = found | {"status": "failed", "error": reason(stop)}
            out.result(_printed(_result(stopped, goal), metric))
            tell("what is finished is kept; the same command goes on from here")
            return


def _ending(state: Any) -> str:
    ended = state.result(raise_on_failure=False) if state.is_failed() else None
    if said := sentence(ended):
        return f"the run ended between its stages: {said}"
    return f"the flow run ended in state {state.name}: {state.message}"


def _result(record: dict[str, Any], goal: str) -> dict[str, Any]:
    """The JSON object of a run."""
    from flows.views.sweep_outcome import sweep_result

    keys = ("id", "status", "seconds", "stages", "metrics", "report", "page", "urls")
    result = {key: record[key] for key in (*keys, "error") if key in record}
    compared = any(stage["stage"] == "compare" for stage in record["stages"])
    if (goal == "sweep" or compared) and record["status"] == "completed":
        result |= sweep_result(record["stages"])
    return result


def _printed(result: dict[str, Any], metric: str | None) -> dict[str, Any]:
    """What goes to stdout: all of it, or the line of an experiment, which is about one metric.

    Its value is None where the run ended before it had one. Raises BadInput for a metric that a
    completed run does not have; what it built is kept.
    """
    from cluster.settings import nearest

    if metric is None:
        return result
    found, run = result["metrics"], result["id"]
    if metric not in found and result["status"] == "completed":
        raise BadInput(f"run {run} has no metric '{metric}': {nearest(metric, found)}")
    about = ("id", "status", "seconds", "error")
    line = {"metric": metric, "value": found.get(metric)}
    return line | {key: result[key] for key in about if key in result}


def _raise_failure(record: dict[str, Any]) -> None:
    failed = [s for s in record["stages"] if s["state"] == "failed"]
    if failed:
        error = BadInput if failed[0]["bad_input"] else StageFailed
        raise error(f"{failed[0]['name']}: {failed[0]['error']}")
    if "error" in record:
        raise StageFailed(record["error"])
