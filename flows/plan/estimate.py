"""`headrace plan`: what a run would build, and what that takes, before anything starts."""

from collections.abc import Sequence
from typing import Any

from flows.plan.at_hand import planned
from flows.plan.dag import Node
from flows.plan.mixing import planned_sources
from flows.plan.price import Price, price
from flows.plan.schedule import Host
from flows.plan.sweep_estimate import sweep_estimate
from flows.recipe import Recipe
from flows.variants import Variant, variants
from model.flops import flops_per_token, parameter_count
from tasks.training.context_parallel import check_context_parallel
from tasks.training.memory import check_memory, device_bytes
from tasks.training.tensor_parallel import check_tensor_parallel


def estimate(
    recipe: Recipe, rebuild: frozenset[str] = frozenset(), hosts: Sequence[Host] = ()
) -> dict[str, Any]:
    """Stages with reasons; parameters, tokens, FLOPs, bytes per device; what all that takes
    (`flows.plan.price`), on these hosts, or those at hand; and of a sweep every run. Of a recipe
    with `over`, the stages are those of its variants.
    """
    goal = "sweep" if recipe.over else "all"
    dag = planned(goal, recipe, rebuild)
    settings, place = recipe.pretrain, recipe.placement
    config = recipe.model.config(recipe.tokenizer.vocab_size, settings.context)
    check_memory(config, settings, place)
    check_context_parallel(config, settings, place.context_parallel)
    check_tensor_parallel(config, settings, place.tensor_parallel)
    sources, doubts = planned_sources(dag, recipe)
    priced = price(dag, place, hosts)
    swept = sweep_estimate(recipe, dag, priced) if recipe.sweep and not recipe.over else None
    return {
        "stages": [_stage(node, priced) for node in dag],
        "params": parameter_count(config),
        "tokens": settings.tokens,
        "flops": flops_per_token(config, settings.context) * settings.tokens,
        "bytes_per_device": device_bytes(config, settings, place).total,
        **priced.whole(),
        "basis": priced.basis,
        "hosts": [host._asdict() for host in priced.hosts],
        "shape": vars(config),
        "sources": sources,
        "warnings": recipe.left_out() + doubts + (swept["warnings"] if swept else []),
        "sweep": swept,
        "variants": [_variant(one) for one in variants(recipe)] if recipe.over else [],
    }


def _variant(variant: Variant) -> dict[str, Any]:
    """What is varied, with which seeds, and what each of these trainings takes."""
    recipe = variant.recipe
    config = recipe.model.config(recipe.tokenizer.vocab_size, recipe.pretrain.context)
    each = flops_per_token(config, recipe.pretrain.context) * recipe.pretrain.tokens
    return {
        "label": variant.label,
        "values": variant.values,
        "seeds": [seeded.recipe.seed for seeded in variant.seeded()],
        "params": parameter_count(config),
        "tokens": recipe.pretrain.tokens,
        "flops": each,
    }


def _stage(node: Node, priced: Price) -> dict[str, Any]:
    return {
        "name": node.name,
        "state": "cached" if node.found else "built",
        "why": node.why,
        **priced.of(node.name),
        "artifact": str(node.found.path) if node.found else None,
    }
