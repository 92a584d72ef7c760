"""`headrace plan`: what a run would build, and what that takes, before anything starts."""

from collections.abc import Sequence
from typing import Any

from flows.plan.at_hand import planned
from flows.plan.dag import Dag, Node
from flows.plan.mixing import planned_sources
from flows.plan.price import Price, price
from flows.plan.schedule import Host
from flows.plan.sweep_estimate import sweep_estimate
from flows.recipe import Recipe
from flows.variants import Variant, variants
from model.config import ModelConfig
from model.flops import parameter_count
from tasks.training.context_parallel import check_context_parallel
from tasks.training.costs import training_flops
from tasks.training.memory import check_memory, device_bytes
from tasks.training.tensor_parallel import check_tensor_parallel

NO_TRAINING: dict[str, Any] = {
    "tokens": 0,
    "flops": 0,
    "bytes_per_device": 0,
    "sources": [],
    "warnings": [],
}
"""Of a recipe that trains none, or tunes one as it is."""


def estimate(
    recipe: Recipe, rebuild: frozenset[str] = frozenset(), hosts: Sequence[Host] = ()
) -> dict[str, Any]:
    """Stages with reasons; parameters, tokens, FLOPs, bytes per device; what all that takes
    (`flows.plan.price`), on these hosts, or those at hand; and of a sweep every run. Of a recipe
    with `over` or `variants`, the stages are those of its variants.
    """
    goal = "sweep" if recipe.varies else "all"
    dag = planned(goal, recipe, rebuild)
    place, training = recipe.placement, recipe.pretrain
    config = recipe.model.config(recipe.tokenizer.vocab_size, training.context if training else 1)
    priced = price(dag, place, hosts)
    swept = sweep_estimate(recipe, dag, priced) if recipe.sweep and not recipe.varies else None
    trained = _training(dag, recipe, config) if training else NO_TRAINING
    return {
        "stages": [_stage(node, priced) for node in dag],
        "params": parameter_count(config) if recipe.has_model else 0,
        **trained,
        **priced.whole(),
        "basis": priced.basis,
        "hosts": [host._asdict() for host in priced.hosts],
        "shape": vars(config),
        "warnings": recipe.left_out() + trained["warnings"] + (swept["warnings"] if swept else []),
        "sweep": swept,
        "variants": [_variant(one) for one in variants(recipe)] if recipe.varies else [],
    }


def _training(dag: Dag, recipe: Recipe, config: ModelConfig) -> dict[str, Any]:
    """What pretraining takes. Raises BadInput where it does not fit into memory or a group."""
    settings, place = recipe.training, recipe.placement
    check_memory(config, settings, place)
    check_context_parallel(config, settings, place.context_parallel)
    check_tensor_parallel(config, settings, place)
    sources, doubts = planned_sources(dag, recipe)
    return {
        "tokens": settings.tokens,
        "flops": training_flops(config, settings) * settings.tokens,
        "bytes_per_device": device_bytes(config, settings, place).total,
        "sources": sources,
        "warnings": doubts,
    }


def _variant(variant: Variant) -> dict[str, Any]:
    """What is varied, with which seeds, and what each of these trainings takes."""
    return {
        "label": variant.label,
        "values": variant.values,
        "seeds": [seeded.recipe.seed for seeded in variant.seeded()],
        **variant.network,
    }


def _stage(node: Node, priced: Price) -> dict[str, Any]:
    return {
        "name": node.name,
        "state": "cached" if node.found else "built",
        "why": node.why,
        **priced.of(node.name),
        "artifact": str(node.found.path) if node.found else None,
    }
