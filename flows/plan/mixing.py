"""A recipe's sources as training draws them: shares, caps, and the epochs that follow from them."""

from typing import Any

from cluster.artifact import is_fetched
from cluster.errors import BadInput
from flows.plan.dag import Dag
from flows.recipe import Recipe
from model.objectives.lengths import window
from tasks.data.reading.hashes import SOURCES
from tasks.tokens.mixture.settings import Mixture, MixtureStage, known
from tasks.tokens.packing.settings import PackingSettings


def mixture_of(dag: Dag, recipe: Recipe) -> Mixture | None:
    """The mixture a recipe asks for, with sources by label; None: all text, each as much as it is.

    Raises BadInput for a source that the recipe does not have.
    """
    if not recipe.mixes:
        return None
    labels = _labels(dag, recipe)
    weights = {labels[s.path]: s.weight for s in recipe.sources}
    made = recipe.made_sources
    weights |= {label: made[label].weight for label in made}
    stages = tuple(_resolved(stage, labels) for stage in recipe.training.mixture)
    return Mixture(
        stages=stages or (MixtureStage(weights=weights),), max_epochs=capped(dag, recipe)
    )


def capped(dag: Dag, recipe: Recipe) -> dict[str, float]:
    """How often a source may be seen at most, by label, of those that have a cap."""
    labels, made = _labels(dag, recipe), recipe.made_sources
    caps = {labels[s.path]: s.max_epochs for s in recipe.sources}
    caps |= {label: made[label].max_epochs for label in made}
    return {label: epochs for label, epochs in caps.items() if epochs is not None}


def source_names(dag: Dag, recipe: Recipe) -> list[str]:
    """The labels of all sources, sorted as the shards have them."""
    return sorted(set(_labels(dag, recipe).values()))


def packing_of(recipe: Recipe, mixed: bool = False) -> PackingSettings | None:
    """What the packing's index is to be, of a training that is `mixed` or as the recipe says; None
    where the stream is cut as it lies.
    """
    training = recipe.training
    if training.packing == "concatenate" and not (mixed or recipe.mixes):
        return None
    size = window(training.objective, recipe.model.family, training.context, training.rates)
    return PackingSettings(kind=training.packing, context=size)


def planned_sources(dag: Dag, recipe: Recipe) -> tuple[list[dict[str, Any]], list[str]]:
    """Tokens and epochs per source of a planned pretraining, and warnings about them.

    Only shards that are made and here already say how much text a source has: without them there
    are none.
    """
    from tasks.tokens.mixture.repetition import repetition, repetition_warnings

    mixture, training = mixture_of(dag, recipe), recipe.training
    warnings = []
    if mixture and recipe.sweep:
        warnings.append("the sweep trains on all text in turn: the mixture is pretraining's")
    found = {node.spec.stage: node.found for node in dag if node.found}
    if "shards" not in found or not ("packing" in found or not is_fetched(found["shards"].path)):
        if mixture:
            warnings.append("epochs per source are known once `headrace data` has the shards here")
        return [], warnings
    sources = repetition(
        found["shards"],
        found.get("packing"),
        mixture,
        context=training.context,
        steps=training.batches,
    )
    return sources, warnings + repetition_warnings(sources)


def _labels(dag: Dag, recipe: Recipe) -> dict[str, str]:
    """The labels of the sources by path, and by themselves."""
    found = dag.look_up(SOURCES, recipe.sources)
    paths = [one.source.path for one in found]
    if len(set(paths)) < len(paths):
        raise BadInput("a mixture needs every source once; two of the recipe's have the same path")
    made = {label: label for label in recipe.made_sources}
    own = {one.name: one.name for one in found} | {one.source.path: one.name for one in found}
    if taken := sorted(made.keys() & own.keys()):
        raise BadInput(f"source '{taken[0]}' has the name of what a model makes; rename it")
    return own | made


def _resolved(stage: MixtureStage, labels: dict[str, str]) -> MixtureStage:
    names = [labels[known(name, labels, "the recipe")] for name in stage.weights]
    if len(set(names)) < len(names):
        raise BadInput(f"pretrain.mixture names a source twice: {', '.join(stage.weights)}")
    return MixtureStage(
        until=stage.until, weights=dict(zip(names, stage.weights.values(), strict=True))
    )
