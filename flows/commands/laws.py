"""Laws put to the test: what they foretold against what came, and published ones by own sweeps."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.errors import BadInput
from cluster.home import home as root
from flows.commands.carrying_out import carry_out
from flows.commands.options import AsJson, Home, Overrides, Rebuild, RecipeName
from flows.views.output import output

if TYPE_CHECKING:
    from flows.recipe import Recipe

LAWS = "laws"


def forecasts(home: Home = None, as_json: AsJson = False) -> None:
    """Every forecast that runs of this home made, against what came; do the bands hold?

    A forecast counts when it was written down before the run that it foretells was trained.
    """
    from cluster.runs import records
    from flows.views.laws import show_forecasts
    from tasks.scaling.forecasts import coverage, merged

    with output(as_json) as out:
        found = merged(record.forecasts for record in records(root()))
        result = {"forecasts": found, **coverage(found)}
        out.result(result)
        show_forecasts(out, result)


def reproduce(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="a published law, or a recipe that has one")
    ],
    runs: Annotated[
        Path | None, typer.Option(help="CSV file of the published runs, to be fitted again")
    ] = None,
    time: Annotated[
        str, typer.Option(metavar="60m", help="how long the sweeps may take: they are sized to it")
    ] = "60m",
    overrides: Overrides = None,
    rebuild: Rebuild = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """A published law put to the test: what the paper says, what its runs say, what holds here.

    Laws are chinchilla, porian, gadre, datablations and kaplan. Each claim stands beside the
    published runs fitted again, and sweeps of your own text, with bands; the page has the plots.
    """
    from flows.plan.fitting import fitting
    from flows.recipe import load
    from flows.views.laws import show_claims
    from tasks.scaling.sweep.budget import read_time

    def made() -> "Recipe":
        given = [f"reproduce.seconds={read_time(time)}"]
        given += [] if runs is None else [f"reproduce.runs={_there(runs)}"]
        return fitting(load(recipe_of(name), [*(overrides or ()), *given]))

    carry_out(
        "reproduce", made, overrides, rebuild, as_json, result_of=claims_of, shown=show_claims
    )


def mix(
    recipe: RecipeName,
    overrides: Overrides = None,
    rebuild: Rebuild = None,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """The mixture of the sources that a swarm of small runs proposes, and larger ones confirm.

    The swarm varies the weights; a regression of the held-out loss on each source says which are
    best on average. The runs that confirm it train the proposed, the natural and the uniform
    mixture on as many tokens, with the same seeds.
    """
    from flows.recipe import load
    from flows.views.laws import show_mixture

    made = partial(load, recipe, overrides or ())
    carry_out("mix", made, overrides, rebuild, as_json, result_of=mixture_of, shown=show_mixture)


def mixture_of(record: dict[str, Any]) -> dict[str, Any]:
    """What a run proposes, and whether it was confirmed: of stages that came to their end."""
    from cluster.artifact import Artifact
    from tasks.mixing.stage import PAGE

    made = {s["stage"]: s["artifact"] for s in record["stages"] if s["artifact"]}
    found: dict[str, Any] = {"weights": None, "prediction": None, "runs": []}
    if "propose" in made:
        found |= Artifact.load(Path(made["propose"])).manifest.facts
    if "confirm" in made:
        confirmed = Artifact.load(Path(made["confirm"]))
        facts = confirmed.manifest.facts
        found |= {"confirmed": {key: facts[key] for key in ("mixtures", "against", "rows")}}
        found["report"] = str(confirmed.file(PAGE))
    return found


def recipe_of(name: str) -> str:
    """The recipe of a law by its name; a path stays as it is. Raises BadInput for one unknown."""
    from cluster.settings import nearest
    from flows.recipe import SHIPPED

    if Path(name).suffix in (".yaml", ".yml") or Path(name).is_file():
        return name
    laws = [path.stem for path in (SHIPPED / LAWS).glob("*.yaml")]
    if name not in laws:
        raise BadInput(f"no law '{name}': {nearest(name, laws)}, or give the path of a recipe")
    return f"{LAWS}/{name}"


def claims_of(record: dict[str, Any]) -> dict[str, Any]:
    """What a finished run says of the claims, and where its page is."""
    from cluster.artifact import Artifact
    from tasks.reproduction.stage import PAGE

    made = [s["artifact"] for s in record["stages"] if s["stage"] == "reproduce" and s["artifact"]]
    if not made:
        return {"claims": []}
    found = Artifact.load(Path(made[0]))
    scale = record["recipe"]["reproduce"]["scale"]
    return {
        "claims": found.manifest.facts["claims"],
        "report": str(found.file(PAGE)),
        "scale": scale,
    }


def _there(path: Path) -> Path:
    if not path.is_file():
        raise BadInput(f"--runs {path}: no such file; give the CSV of the published runs")
    return path.resolve()
