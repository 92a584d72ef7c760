"""`headrace plan`: what a run would build, and what that takes, before anything starts.

Seconds come from this store's own history where it has one, else from nominal speeds.
"""

from typing import Any

from flows.plan.at_hand import planned
from flows.plan.dag import Dag, Node
from flows.plan.mixing import planned_sources
from flows.plan.sweep_estimate import nominal_speed, slots_of, sweep_estimate
from flows.recipe import Recipe
from flows.variants import Variant, variants
from model.flops import flops_per_token, parameter_count
from tasks.training.context_parallel import check_context_parallel
from tasks.training.memory import check_memory, device_bytes
from tasks.training.tensor_parallel import check_tensor_parallel

# A stage other than pretraining, on text of the quickstart's size, when it was never run here.
NOMINAL_SECONDS = 5.0


def estimate(recipe: Recipe, rebuild: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Stages with reasons; parameters, tokens, FLOPs, bytes per device, seconds and cost in USD;
    and of a sweep every run. Of a recipe with `over`, the stages are those of its variants.
    """
    goal = "sweep" if recipe.over else "all"
    dag = planned(goal, recipe, rebuild)
    settings, place = recipe.pretrain, recipe.placement
    config = recipe.model.config(recipe.tokenizer.vocab_size, settings.context)
    check_memory(config, settings, place)
    check_context_parallel(config, settings, place.context_parallel)
    check_tensor_parallel(config, settings, place.tensor_parallel)
    sources, doubts = planned_sources(dag, recipe)
    past = _past(dag)
    swept = sweep_estimate(recipe, dag) if recipe.sweep and not recipe.over else None
    known = swept["stage_seconds"] if swept else {}
    stages = [_stage(node, recipe, past, known) for node in dag]
    others = [stage["seconds"] for stage in stages if stage["name"] not in known]
    seconds = max([sum(others) / slots_of(place), *others]) + (swept["seconds"] if swept else 0.0)
    return {
        "stages": stages,
        "params": parameter_count(config),
        "tokens": settings.tokens,
        "flops": flops_per_token(config, settings.context) * settings.tokens,
        "bytes_per_device": device_bytes(config, settings, place).total,
        "seconds": round(seconds, 1),
        "cost": round(seconds / 3600 * place.usd_per_hour * place.workers, 4),
        "basis": "earlier runs here" if past else "nominal speeds",
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


def _past(dag: Dag) -> dict[str, float]:
    """Seconds of each stage's newest artifact of this recipe, and the speed of pretraining."""
    found = {}
    for artifact in dag.store.artifacts():
        about = artifact.manifest
        if about.stage == "pretrain":
            found["flops_per_second"] = about.metrics["flops_per_second"]
        elif about.recipe == dag.recipe:
            found[f"{about.stage}/{about.label}" if about.label else about.stage] = about.seconds
    return found


def _stage(
    node: Node, recipe: Recipe, past: dict[str, float], known: dict[str, float]
) -> dict[str, Any]:
    seconds = past.get(node.name, _training_seconds(node, recipe, past) or NOMINAL_SECONDS)
    seconds = known.get(node.name, seconds)
    return {
        "name": node.name,
        "state": "cached" if node.found else "built",
        "why": node.why,
        "seconds": 0.0 if node.found else round(seconds, 1),
        "artifact": str(node.found.path) if node.found else None,
    }


def _training_seconds(node: Node, recipe: Recipe, past: dict[str, float]) -> float:
    """Of a stage that pretrains; 0 for the others."""
    if node.spec.stage != "pretrain":
        return 0.0
    model, training = node.literals["model"], node.literals["settings"]
    config = model.config(recipe.tokenizer.vocab_size, training.context)
    speed = past.get("flops_per_second") or nominal_speed(recipe.placement, config.width)
    return float(flops_per_token(config, training.context) * training.tokens / speed)
