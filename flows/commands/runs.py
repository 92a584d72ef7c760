"""run, data, pretrain, sweep: carry a recipe to a goal. plan: say what would happen."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands.carrying_out import carry_out
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
from flows.views.output import Output, human, output, shorten
from flows.views.run_outcome import WHY
from tasks.report.words import duration

if TYPE_CHECKING:
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
    from flows.recipe import load, overridden

    caps = {"placement.max_hours": hours, "placement.max_usd": usd}
    given = {key: value for key, value in caps.items() if value is not None}

    def capped() -> "Recipe":
        plain = load(recipe, overrides or ())
        return overridden(plain, given) if given else plain

    carry_out("all", capped, overrides, rebuild, as_json, metric=metric, day=day)


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
    from flows.recipe import load

    made = partial(load, recipe, overrides or ())
    carry_out("data", made, overrides, rebuild, as_json, inspect, day=day)


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
    from flows.recipe import load

    made = partial(load, recipe, overrides or ())
    carry_out("pretrain", made, overrides, rebuild, as_json, metric=metric, day=day)


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
    from flows.recipe import load
    from flows.variants import varied

    def chosen() -> "Recipe":
        return varied(load(recipe, overrides or ()), over or (), seeds, one_at_a_time)

    carry_out("sweep", chosen, overrides, rebuild, as_json, day=day)


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
    from flows.plan.sweep_estimate import paid_by
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
            wanted = paid_by(budget, wanted, at)
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
