"""run, data, pretrain, sweep: carry a recipe to a goal. plan: say what would happen."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.errors import BadInput, StageFailed
from flows.commands.options import AsJson, Home, Inspect, Overrides, Rebuild, RecipeName
from flows.output import Output, duration, human, output, waiting

if TYPE_CHECKING:
    from flows.recipe import Recipe


def run(
    recipe: RecipeName = "quickstart",
    overrides: Overrides = None,
    rebuild: Rebuild = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """The whole pipeline: raw text to an evaluated model and a report."""
    carry_out("all", recipe, overrides, rebuild, as_json)


def data(
    recipe: RecipeName,
    overrides: Overrides = None,
    rebuild: Rebuild = None,
    inspect: Inspect = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """Only sources to token shards."""
    carry_out("data", recipe, overrides, rebuild, as_json, inspect)


def pretrain(
    recipe: RecipeName,
    overrides: Overrides = None,
    rebuild: Rebuild = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """To the pretrained model and its held-out score."""
    carry_out("pretrain", recipe, overrides, rebuild, as_json)


def sweep(
    recipe: RecipeName,
    overrides: Overrides = None,
    over: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=V,V", help="train a model for each value of any field instead"),
    ] = None,
    rebuild: Rebuild = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """A grid of small runs, the law fitted to them, and its forecast; or variants of a model."""
    carry_out("sweep", recipe, overrides, rebuild, as_json, over=over or ())


def carry_out(
    goal: str,
    name: str,
    overrides: Sequence[str] | None,
    rebuild: Sequence[str] | None,
    as_json: bool,
    inspected: bool = False,
    over: Sequence[str] = (),
) -> None:
    """Run a recipe to a goal, show it, print its result.

    Raises BadInput (exit 2) when the recipe or a source is at fault, else StageFailed (exit 1).
    """
    from flows.recipe import load
    from flows.samples import inspect, show_inspection
    from flows.variants import read_over

    with output(as_json) as out:
        recipe = load(name, overrides or ())
        if over:
            recipe = recipe.model_copy(update={"over": dict(map(read_over, over))})
        record = _run_flow(recipe, goal, rebuild or ())
        samples = inspect(record) if inspected else None
        out.result(_result(record, goal) | ({} if samples is None else {"inspect": samples}))
        _show(out, record)
        show_inspection(out, samples or [])
        _raise_failure(record)


def _run_flow(recipe: Any, goal: str, rebuild: Sequence[str]) -> dict[str, Any]:
    from cluster.home import home
    from cluster.runs import records
    from cluster.services import up

    with waiting("starting the local services"):
        up()
    from flows.pipeline import pipeline
    from flows.progress import watch

    with watch(goal, recipe, rebuild):
        state = pipeline(recipe, goal, list(rebuild), return_state=True)
    for record in reversed(records(home())):
        if record.flow_run_id == str(state.state_details.flow_run_id):
            # One that crashed between stages has no failed stage to tell of.
            crash = {"status": "failed", "error": _ending(state)}
            found = record.model_dump(mode="json", by_alias=True)
            return found | (crash if record.status == "crashed" else {})
    state.result()  # a run that ended before it had a record raises its own error
    raise StageFailed(_ending(state))


def _ending(state: Any) -> str:
    return f"the flow run ended in state {state.name}: {state.message}"


def _result(record: dict[str, Any], goal: str) -> dict[str, Any]:
    """The JSON object of a run."""
    keys = ("id", "status", "seconds", "stages", "metrics", "report", "urls")
    result = {key: record[key] for key in (*keys, "error") if key in record}
    if goal == "sweep" and record["status"] == "completed":
        result |= _sweep_result(record)
    return result


def _sweep_result(record: dict[str, Any]) -> dict[str, Any]:
    """The runs, the fit and the forecast of a sweep, from the artifact of its last stage."""
    from pathlib import Path

    from cluster.artifact import Artifact

    laws = [s for s in record["stages"] if s["stage"] in ("fit", "forecast", "compare")]
    last = laws[-1]  # a grid of one or two runs has a fit and nothing to forecast
    facts = Artifact.load(Path(last["artifact"])).manifest.facts
    if last["stage"] == "compare":
        return {"runs": facts["rows"], "best": facts["best"], "fit": None, "forecast": None}
    return {key: facts.get(key) for key in ("runs", "fit", "forecast")}


def _show(out: Output, record: dict[str, Any]) -> None:
    rows = (
        (s["name"], s["state"], duration(s["seconds"]), s["why"], s["artifact"] or s["error"])
        for s in record["stages"]
    )
    out.table(("stage", "state", "time", "why", "artifact"), rows)
    out.say(f"\n{record['status']} in {duration(record['seconds'])}")
    for name, url in record["urls"].items():
        out.say(f"{name:8} {url}")
    if record["report"]:
        out.say(f"report   {record['report']}")


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
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """What would run and why; parameters, tokens, FLOPs, memory, time and cost. Trains nothing."""
    from flows.estimate import estimate
    from flows.recipe import load

    with output(as_json) as out:
        wanted = load(recipe, overrides or ())
        if budget:
            wanted = _paid_by(budget, wanted)
        plan = estimate(wanted, frozenset(rebuild or ()))
        if budget:
            plan["designed"] = wanted.model_dump(mode="json", exclude_defaults=True)["sweep"]
        out.result(plan)
        rows = ((s["name"], s["state"], duration(s["seconds"]), s["why"]) for s in plan["stages"])
        out.table(("stage", "would be", "about", "why"), rows)
        out.say(
            f"\nmodel    {human(plan['params'])} parameters, {human(plan['tokens'])} tokens, "
            f"{human(plan['flops'], 'FLOP')}, {human(plan['bytes_per_device'], 'B')} per device\n"
            f"time     about {duration(plan['seconds'])} ({plan['basis']})\n"
            f"cost     {plan['cost']:.2f} USD"
        )
        _show_sweep(out, plan)
        for warning in plan["warnings"]:
            out.say(f"warning: {warning}")


def _paid_by(budget: str, recipe: "Recipe") -> "Recipe":
    """The recipe with the sweep that a budget pays for."""
    from flows.sweep_estimate import total_speed
    from tasks.scaling.budget import design, read_budget

    settings = recipe.sweep
    if settings is None:
        raise BadInput(f"--budget plans a sweep, and recipe '{recipe.name}' has none")
    total = read_budget(budget, *total_speed(recipe))
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
    if "designed" in plan:
        out.say("sweep: " + json.dumps(plan["designed"]))


def register(app: typer.Typer) -> None:
    """Add these commands to the application."""
    for command in (run, plan, data, pretrain, sweep):
        app.command()(command)
