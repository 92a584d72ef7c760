"""The part of the DAG that puts a published law to the test: its runs refitted, and a sweep an arm.

    refit                                          ------\\
    sweep/short-d32-t256k ... -> forecast/short ----------> reproduce
    sweep/long-d32-t256k  ... -> forecast/long  ---------/

An arm is the recipe with some fields otherwise; what arms share is made once.
"""

from collections.abc import Callable, Iterator

from cluster.errors import BadInput
from flows.plan.dag import Dag, Node
from flows.recipe import Recipe, overridden
from flows.sweeping import sweep
from tasks.reproduction.settings import ReproduceSettings
from tasks.reproduction.stage import refit, reproduce
from tasks.scaling.sweep.budget import scaled
from tasks.scaling.sweep.plan import SweepSettings


def reproduction(dag: Dag, recipe: Recipe, data: Callable[[Dag, Recipe], Node]) -> Node:
    """The published runs fitted, every arm's sweep, and the claims held against both. `data` gives
    the shards of an arm.
    """
    law = law_of(recipe)
    _label(dag, recipe, data)
    published = dag.add(refit, settings=law.refit())
    texts, sweeps = [], []
    for name, arm, settings in arms(recipe):
        texts.append(data(dag, arm))
        sweeps.append(sweep(dag, arm, settings, texts[-1], name))
    return dag.add(reproduce, sweeps=sweeps, shards=texts, refit=published, settings=law)


def arms(recipe: Recipe) -> Iterator[tuple[str, Recipe, SweepSettings]]:
    """The name of each arm, its recipe, and its sweep at the scale that is asked for."""
    law = law_of(recipe)
    for name, changes in law.arms.items():
        arm = overridden(recipe, changes)
        if arm.sweep is None:
            raise BadInput(f"recipe '{recipe.name}': an arm needs a `sweep`, '{name}' has none")
        yield name, arm, scaled(arm.sweep, law.scale, arm.tokenizer.vocab_size)


def _label(dag: Dag, recipe: Recipe, data: Callable[[Dag, Recipe], Node]) -> None:
    """Name the stages of the text that not all arms share after the first arm that needs them."""
    sketch = dag.sketch()
    for name, arm, _ in arms(recipe):
        sketch.user = (name,)
        data(sketch, arm)
    for key, users in sketch.users.items():
        if len(users) < len(law_of(recipe).arms):
            dag.labels[key] = next(iter(users))[0]


def law_of(recipe: Recipe) -> ReproduceSettings:
    """The law that a recipe puts to the test. Raises BadInput where it has none."""
    if recipe.reproduce is None:
        raise BadInput(
            f"recipe '{recipe.name}' has no `reproduce` section: name a law, `headrace reproduce "
            "chinchilla`, or a recipe that has one"
        )
    return recipe.reproduce
