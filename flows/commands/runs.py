"""run, data, pretrain, sweep: carry a recipe to a goal. plan: say what would happen."""

import os
from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from cluster.errors import BadInput, StageFailed
from cluster.home import home
from flows.commands.options import (
    AsJson,
    Day,
    Home,
    Hours,
    Inspect,
    Metric,
    OneAtATime,
    Over,
    Overrides,
    Rebuild,
    RecipeName,
    Seeds,
    Usd,
)
from flows.days import day_of
from flows.views.output import Output, human, output, reason, shorten, tell, waiting
from flows.views.run_outcome import WHY, show_run
from tasks.report.words import duration

if TYPE_CHECKING:
    from flows.plan.schedule import Host
    from flows.recipe import Recipe


def run(
    recipe: RecipeName = "quickstart",
    overrides: Overrides = None,
    rebuild: Rebuild = None,
    metric: Metric = None,
    hours: Hours = None,
    usd: Usd = None,
    day: Day = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """The whole pipeline: raw text to an evaluated model and a report."""
    from flows.recipe import overridden

    caps = {"placement.max_hours": hours, "placement.max_usd": usd}
    given = {key: value for key, value in caps.items() if value is not None}

    def capped(plain: "Recipe") -> "Recipe":
        return overridden(plain, given) if given else plain

    carry_out("all", recipe, overrides, rebuild, as_json, varied=capped, metric=metric, day=day)


def data(
    recipe: RecipeName,
    overrides: Overrides = None,
    rebuild: Rebuild = None,
    inspect: Inspect = False,
    day: Day = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Only sources to token shards."""
    carry_out("data", recipe, overrides, rebuild, as_json, inspect, day=day)


def pretrain(
    recipe: RecipeName,
    overrides: Overrides = None,
    rebuild: Rebuild = None,
    metric: Metric = None,
    day: Day = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """To the pretrained model and its held-out score."""
    carry_out("pretrain", recipe, overrides, rebuild, as_json, metric=metric, day=day)


def sweep(
    recipe: RecipeName,
    overrides: Overrides = None,
    over: Over = None,
    seeds: Seeds = None,
    one_at_a_time: OneAtATime = False,
    rebuild: Rebuild = None,
    day: Day = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """A grid of small runs, the law fitted to them, and its forecast; or variants of a model.

    With --over, every combination of the values is trained with every seed, and a variant is called
    best only when a paired test over the seeds says that it is better than each of the others.
    """
    from flows.variants import varied

    def chosen(plain: "Recipe") -> "Recipe":
        return varied(plain, over or (), seeds, one_at_a_time)

    carry_out("sweep", recipe, overrides, rebuild, as_json, varied=chosen, day=day)


def carry_out(
    goal: str,
    name: str,
    overrides: Sequence[str] | None,
    rebuild: Sequence[str] | None,
    as_json: bool,
    inspected: bool = False,
    varied: Callable[["Recipe"], "Recipe"] = lambda recipe: recipe,
    metric: str | None = None,
    day: datetime | None = None,
) -> None:
    """Run a recipe, `varied` once it is read, to a goal, show it, print its result or one `metric`.

    Raises BadInput (exit 2) when the recipe or a source is at fault, else StageFailed (exit 1).
    """
    from flows.recipe import load
    from flows.views.samples import inspect, show_inspection
    from flows.views.sweep_outcome import show_variants

    with output(as_json or metric is not None) as out:
        recipe = varied(load(name, overrides or ()))
        try:
            record = _run_flow(recipe, goal, rebuild or (), overrides or (), day_of(day))
        except (KeyboardInterrupt, SystemExit) as stop:
            _tell_of_stop(out, goal, stop, metric)
            raise
        samples = inspect(record) if inspected else None
        result = _result(record, goal) | ({} if samples is None else {"inspect": samples})
        out.result(_printed(result, metric))
        show_run(out, record)
        if "variants" in result:
            show_variants(out, result)
        show_inspection(out, samples or [])
        _raise_failure(record)


def _run_flow(
    recipe: "Recipe", goal: str, rebuild: Sequence[str], overrides: Sequence[str], day: date
) -> dict[str, Any]:
    from cluster.runs import records
    from cluster.services import check_ray, up
    from flows.plan.at_hand import at_hand, planned

    check_ray()
    dag = planned(goal, recipe.on(day), rebuild)
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
            # One that crashed between stages has no failed stage to tell of.
            crash = {"status": "failed", "error": _ending(state)}
            found = record.model_dump(mode="json", by_alias=True)
            return found | (crash if record.status == "crashed" else {})
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
    return f"the flow run ended in state {state.name}: {state.message}"


def _result(record: dict[str, Any], goal: str) -> dict[str, Any]:
    """The JSON object of a run."""
    from flows.views.sweep_outcome import sweep_result

    keys = ("id", "status", "seconds", "stages", "metrics", "report", "page", "urls")
    result = {key: record[key] for key in (*keys, "error") if key in record}
    if goal == "sweep" and record["status"] == "completed":
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


def plan(
    recipe: RecipeName = "quickstart",
    overrides: Overrides = None,
    rebuild: Rebuild = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="1e15|30min|4device-hours",
            help="plan the sweep that this pays for, and print it as a recipe's `sweep`",
        ),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(
            metavar="8|8x32|8x32x4",
            help="price it for so many hosts: such as this, or of so many CPUs, and GPUs",
        ),
    ] = None,
    hours: Hours = None,
    usd: Usd = None,
    over: Over = None,
    seeds: Seeds = None,
    one_at_a_time: OneAtATime = False,
    day: Day = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """What would run and why; parameters, tokens, FLOPs, memory, time and cost. Trains nothing."""
    from cluster import ray_session
    from flows.plan.budget import Budget, sized, sizes
    from flows.plan.estimate import estimate
    from flows.plan.price import read_hosts
    from flows.recipe import load
    from flows.variants import varied
    from flows.views.sweep_outcome import show_planned

    with output(as_json) as out:
        asked = load(recipe, overrides or ()).on(day_of(day))
        wanted = varied(asked, over or (), seeds, one_at_a_time)
        if hosts is None and os.environ.get("RAY_ADDRESS"):
            ray_session.start(checked=False)
        at = read_hosts(hosts)
        if budget:
            wanted = _paid_by(budget, wanted, at)
        if hours is not None or usd is not None:
            wanted = sized(wanted, Budget(hours, usd), at)
        plan = estimate(wanted, frozenset(rebuild or ()), at)
        if hours is not None or usd is not None:
            plan["sized"] = sizes(wanted)
        if budget:
            plan["designed"] = wanted.model_dump(mode="json", exclude_unset=True)["sweep"]
        out.result(plan)
        rows = ((s["name"], s["state"], *_spans(s), shorten(s["why"], WHY)) for s in plan["stages"])
        out.table(("stage", "would be", "about", "80 % within", "why"), rows)
        out.say(
            f"\nmodel    {human(plan['params'])} parameters, {human(plan['tokens'])} tokens, "
            f"{human(plan['flops'], 'FLOP')}, {human(plan['bytes_per_device'], 'B')} per device\n"
            f"{_taken(plan)}"
        )
        _show_sweep(out, plan)
        show_planned(out, plan["variants"])
        for warning in plan["warnings"]:
            out.say(f"warning: {warning}")


def _taken(plan: dict[str, Any]) -> str:
    """Time, money and the rest, each with the ends of its band."""
    shown: dict[str, tuple[str, Callable[[float], str]]] = {
        "seconds": ("time", duration),
        "device_hours": ("devices", lambda hours: f"{duration(hours * 3600)} of one"),
        "cost": ("cost", lambda usd: f"{usd:.2f} USD"),
        "bytes_written": ("writes", lambda count: human(count, "B")),
        "judge_tokens": ("judge", lambda count: f"{human(count)} tokens"),
        "joules": ("energy", lambda energy: human(energy, "J")),
    }
    lines = [
        f"{label:8} about {form(plan[key])}, 80 % within {form(plan[f'{key}_low'])} to "
        f"{form(plan[f'{key}_high'])}"
        for key, (label, form) in shown.items()
        if plan[key]
    ]
    return "\n".join([*lines, f"basis    {plan['basis']}"])


def _spans(stage: dict[str, Any]) -> tuple[str, str]:
    """How long a stage takes, and from how long to how long."""
    if stage["state"] == "cached":
        return "", ""
    low, high = (duration(stage[f"seconds{end}"]) for end in ("_low", "_high"))
    return duration(stage["seconds"]), f"{low} to {high}"


def _paid_by(budget: str, recipe: "Recipe", hosts: "Sequence[Host]") -> "Recipe":
    """The recipe with the sweep that a budget pays for."""
    from flows.plan.sweep_estimate import total_speed
    from tasks.scaling.sweep.budget import design, read_budget

    settings = recipe.sweep
    if settings is None:
        raise BadInput(f"--budget plans a sweep, and recipe '{recipe.name}' has none")
    total = read_budget(budget, *total_speed(recipe, hosts))
    return recipe.model_copy(update={"sweep": design(total, settings, recipe.tokenizer.vocab_size)})


def _show_sweep(out: Output, plan: dict[str, Any]) -> None:
    if swept := plan["sweep"]:
        columns = ("name", "params", "tokens", "steps", "flops", "flops_own")
        rows = (
            (
                run["name"],
                *(human(float(run[c])) for c in columns[1:]),
                duration(run["seconds"]),
                "held out" if run["held_out"] else "",
            )
            for run in swept["runs"]
        )
        out.table((*(c.replace("_", " ") for c in columns), "about", ""), rows)
        out.say(
            f"sweep    {human(swept['flops'], 'FLOP')}, {swept['saved']:.0%} saved by trunks, "
            f"about {duration(swept['seconds'])}, {swept['slots']} side by side"
        )
    part = {"sweep": plan["designed"]} if "designed" in plan else {}
    if part := part | plan.get("sized", {}):
        import yaml

        out.say("\n" + yaml.safe_dump(part, sort_keys=False, default_flow_style=None).rstrip())


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (run, plan, data, pretrain, sweep):
        app.command()(command)
