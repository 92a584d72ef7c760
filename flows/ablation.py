"""The part of the DAG that trains variants of a recipe, with several seeds, and compares them.

    read -> ... -> shards -> pretrain/depth=2,seed=0 -> evaluate/depth=2,seed=0 -> compare
                          -> pretrain/depth=2,seed=1 -> evaluate/depth=2,seed=1 ->

What all trainings share has no label; every other stage has what those it is for have in common.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from cluster.errors import BadInput
from flows.plan.dag import Dag, Node
from flows.recipe import Recipe
from flows.variants import Variant, joined, variants
from tasks.scaling.variants.stage import compare


class Scores(NamedTuple):
    """What a training is compared by; of one that was tuned also what it says of held-out text."""

    compared: Node
    heldout: Node | None = None


Train = Callable[[Dag, Recipe], Scores]


def ablation(dag: Dag, recipe: Recipe, train: Train) -> Node:
    """Every variant with every seed, and their scores side by side. `train` adds what one recipe
    needs, and gives the stages of its scores. Raises BadInput for variants that train the same.
    """
    found = variants(recipe)
    trainings = [(variant, seeded) for variant in found for seeded in variant.seeded()]
    label(dag, recipe, [seeded for _, seeded in trainings], train)
    scores = [train(dag, seeded.recipe) for _, seeded in trainings]
    runs: list[dict[str, Any]] = [
        {
            "label": variant.label,
            "values": variant.values,
            "seed": seeded.recipe.seed,
            "network": variant.network,
        }
        for variant, seeded in trainings
    ]
    heldout = [score.heldout for score in scores if score.heldout]
    told: dict[str, Any] = {"heldout": heldout} if heldout else {}
    return dag.add(compare, scores=[score.compared for score in scores], runs=runs, **told)


def label(dag: Dag, recipe: Recipe, trainings: Sequence[Variant], train: Train) -> None:
    """Give the stages that these trainings will need their labels. Beside a single one the recipe
    itself tells which are shared.
    """
    sketch = dag.sketch()
    users = list(trainings) if len(trainings) > 1 else [*trainings, Variant((), {}, recipe)]
    scores: dict[str, Variant] = {}
    for training in users:
        sketch.user = training.parts
        score = train(sketch, training.recipe)
        twin = scores.setdefault(score.compared.spec.fingerprint, training)
        if twin is not training and training in trainings:
            same = f"{twin.label} and {training.label}"
            raise BadInput(f"{same} are the same training: what differs is no part of it")
    taken = set()
    for (stage, fingerprint), parts in sketch.users.items():
        if len(parts) == len(users):
            continue
        # Named by the parts that all its users have; where another stage has that name already, by
        # those of its users of the first one's variant; else by all of the first one's.
        first, *others = parts
        kin = [other for other in others if other[0] == first[0]]
        shared = ([p for p in first if all(p in o for o in some)] for some in (others, kin, ()))
        name = next(name for name in map(joined, shared) if (stage, name) not in taken)
        taken.add((stage, name))
        dag.labels[stage, fingerprint] = name
