"""What a model makes, at its places in the DAG: grades before the filters, texts behind the last
stage of clean text, from where they go the way of a source.
"""

from functools import partial
from typing import Any, NamedTuple

from cluster.artifact import Artifact
from flows.own_stages import behind
from flows.plan.dag import Dag, Node
from flows.recipe import Recipe
from tasks.adoption.stage import AdoptSettings, adopt
from tasks.data.decontamination.stage import decontaminate
from tasks.data.deduplication.stage import dedup
from tasks.data.privacy.stage import redact
from tasks.data.reading.remote import HUB
from tasks.synthesis.grading import grade
from tasks.synthesis.stage import concatenate, synthesize
from tasks.tokens.origins import folder_of, known_artifact

LABEL = "made"


class Text(NamedTuple):
    """Clean text to train on, what a model made among it; and all that it made, for `instruct`."""

    clean: Node
    made: Node | None = None


def taken_in(dag: Dag, origin: str, label: str = "", **given: Any) -> Node | Artifact:
    """A model that exists: an artifact of this home, or one that `adopt` takes in."""
    local = not given and not origin.startswith(HUB)
    if local and (own := known_artifact(folder_of(origin))):
        return own
    return dag.add(adopt, label=label, settings=AdoptSettings(model=origin), **given)


def grades(dag: Dag, recipe: Recipe, raw: Node) -> dict[str, Any]:
    """What the filters learn quality from, if a model is to grade."""
    asked = recipe.grade
    if asked is None:
        return {}
    rules = recipe.filters.rules
    given = _model(dag, asked.origin)
    return {
        "graded": dag.add(grade, raw=raw, settings=asked, rules=rules, seed=recipe.seed, **given)
    }


def made_beside(dag: Dag, recipe: Recipe, unique: Node, clean: Node) -> Text:
    """Clean text with what a model makes of it. That is deduplicated beside the text's own stage
    `dedup`, so that what only repeats a document leaves.
    """
    asked = recipe.synthesize
    if asked is None:
        return Text(clean)
    then = partial(behind, dag, recipe.stages)
    given = _model(dag, asked.origin)
    made = dag.add(synthesize, text=clean, settings=asked, seed=recipe.seed, **given)
    rules = recipe.dedup
    made = then(dag.add(dedup, label=LABEL, text=made, settings=rules, beside=unique))
    if recipe.decontaminate:
        searched = recipe.decontaminate
        made = then(dag.add(decontaminate, label=LABEL, text=made, settings=searched))
    made = then(dag.add(redact, label=LABEL, text=made, settings=recipe.redact))
    sources = tuple(asked.sources_of("pretrain"))
    if not sources:
        return Text(clean, made)
    return Text(dag.add(concatenate, text=clean, made=made, sources=sources), made)


def lessons(recipe: Recipe, made: Node | None) -> dict[str, Any]:
    """What `instruct` learns from beside its data: what a model made for it."""
    sources = recipe.synthesize.sources_of("instruct") if recipe.synthesize else {}
    return {"made": made, "sources": tuple(sources)} if made and sources else {}


def _model(dag: Dag, origin: str | None) -> dict[str, Any]:
    """The model that is asked in-process, if it is not one behind an endpoint."""
    return {"model": taken_in(dag, origin, "writer")} if origin else {}
