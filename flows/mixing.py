"""The part of the DAG that finds a mixture: a swarm, the proposal, and runs that confirm it.

    pretrain/swarm-00 -> domain_losses/swarm-00 ... -> propose -> pretrain/proposed-0 ...
                                                       pretrain/natural-0, uniform-0 ... -> confirm

The swarm's weights are drawn beforehand; those of the confirming runs come from the proposal, which
is an input of theirs. All confirming runs see as many tokens, with the same seeds.
"""

from typing import Any

from cluster.errors import BadInput
from flows.plan.dag import Dag, Node
from flows.plan.mixing import capped, packing_of, source_names
from flows.recipe import Recipe
from tasks.mixing.settings import ProposeSettings
from tasks.mixing.stage import PROPOSED, confirm, domain_losses, propose
from tasks.mixing.swarm import draw
from tasks.tokens.mixture.settings import Mixture, MixtureStage
from tasks.tokens.packing.stage import packing
from tasks.training.stage import pretrain


def mixing(dag: Dag, recipe: Recipe, shards: Node, tokenizer: Any) -> Node:
    """Every run, the proposal and the comparison. Raises BadInput for fewer than two sources."""
    names = source_names(dag, recipe)
    if len(names) < 2:
        raise BadInput(f"recipe '{recipe.name}' has one source; a mixture is of two or more")
    settings, caps = recipe.mix, capped(dag, recipe)
    runs = Runs(dag, recipe, shards, tokenizer)
    drawn = draw(settings.runs, len(names), settings.least_share).tolist()
    stages = tuple(MixtureStage(weights=dict(zip(names, w, strict=True))) for w in drawn)
    swarm = [
        runs.trained(f"swarm-{n:02}", recipe.seed, settings.compute, mixture=_of(stage, caps))
        for n, stage in enumerate(stages)
    ]
    asked = ProposeSettings(mixtures=stages, least_share=settings.least_share, max_epochs=caps)
    proposal = dag.add(propose, swarm=swarm, settings=asked)
    even = MixtureStage(weights=dict.fromkeys(names, 1 / len(names)))
    drawings: dict[str, dict[str, Any]] = {
        PROPOSED: {"proposal": proposal},
        "natural": {},
        "uniform": {"mixture": _of(even, caps)},
    }
    told: list[dict[str, Any]] = []
    scores = []
    for seed in range(recipe.seed, recipe.seed + settings.seeds):
        for name, drawn_by in drawings.items():
            told.append({"mixture": name, "seed": seed})
            scores.append(runs.trained(f"{name}-{seed}", seed, 1.0, **drawn_by))
    return dag.add(confirm, scores=scores, proposal=proposal, runs=told)


class Runs:
    """Trainings of one recipe that differ in their mixture, and their losses by source."""

    def __init__(self, dag: Dag, recipe: Recipe, shards: Node, tokenizer: Any):
        self.dag, self.recipe, self.shards, self.tokenizer = dag, recipe, shards, tokenizer
        self.heldout_tokens = recipe.mix.domain_tokens
        settings = packing_of(recipe, mixed=True)
        self.packing = dag.add(packing, shards=shards, settings=settings)

    def trained(self, label: str, seed: int, less: float, **drawn: Any) -> Node:
        """The losses of a training on `less` times fewer tokens than the recipe's."""
        training = self.recipe.training
        batch = training.batch_tokens
        tokens = max(1, round(training.tokens / less / batch)) * batch
        model = self.dag.add(
            pretrain,
            label=label,
            shards=self.shards,
            tokenizer=self.tokenizer,
            settings=training.model_copy(update={"tokens": tokens, "mixture": (), "exams": None}),
            model=self.recipe.model,
            seed=seed,
            packing=self.packing,
            variant=True,
            **drawn,
        )
        return self.dag.add(
            domain_losses,
            label=label,
            model=model,
            shards=self.shards,
            tokens=self.heldout_tokens,
        )


def _of(stage: MixtureStage, caps: dict[str, float]) -> Mixture:
    return Mixture(stages=(stage,), max_epochs=caps)
