"""`headrace plan`: what a run would build, and what that takes, before anything starts.

Seconds come from this store's own history where a stage has one, else from a nominal speed.
"""

import os
from typing import Any

from cluster.store import Store
from flows.dag import Dag, Node
from flows.end_to_end import plan
from flows.recipe import Recipe
from model.flops import flops_per_token, parameter_count, training_bytes
from tasks.scaling.plan import members, warnings

# Measured on one server core in fp32 at widths near 128; bf16 GPUs: a third of 989 TFLOP/s (H100).
CPU_FLOPS_PER_THREAD = 3.5e10
GPU_FLOPS = 3.3e14
# A stage that does not train, on the quickstart's text, when it was never run here.
NOMINAL_STAGE_SECONDS = 10.0


def estimate(recipe: Recipe, rebuild: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Stages with reasons; parameters, tokens, FLOPs, bytes per device, seconds and cost in USD."""
    dag = plan("all", Dag(recipe.name, Store(), rebuild), recipe)
    config = recipe.model.config(recipe.tokenizer.vocab_size, recipe.pretrain.context)
    tokens = recipe.pretrain.tokens
    flops = flops_per_token(config, recipe.pretrain.context) * tokens
    place = recipe.placement
    history = _history(dag)
    stages = [_stage(node, history, flops / _speed(recipe)) for node in dag]
    work = sum(stage["seconds"] for stage in stages)
    seconds = max(work / _slots(recipe), max((s["seconds"] for s in stages), default=0.0))
    return {
        "stages": stages,
        "params": parameter_count(config),
        "tokens": tokens,
        "flops": flops,
        "bytes_per_device": training_bytes(
            config,
            zero_stage=place.zero_stage,
            workers=place.workers,
            precision=recipe.pretrain.precision,
        ).total,
        "seconds": round(seconds, 1),
        "cost": round(seconds / 3600 * place.usd_per_hour * place.workers, 4),
        "basis": "earlier runs of these stages" if history else "nominal speeds",
        "shape": vars(config),
        "warnings": warnings(members(recipe.sweep)) if recipe.sweep else [],
    }


def _stage(node: Node, history: dict[str, float], pretrain_seconds: float) -> dict[str, Any]:
    seconds = 0.0
    if not node.found:
        nominal = pretrain_seconds if node.spec.stage == "pretrain" else NOMINAL_STAGE_SECONDS
        seconds = history.get(node.name, nominal)
    return {
        "name": node.name,
        "state": "cached" if node.found else "built",
        "why": node.why,
        "seconds": round(seconds, 1),
        "artifact": str(node.found.path) if node.found else None,
    }


def _history(dag: Dag) -> dict[str, float]:
    """Seconds that the newest artifact of each stage took, except pretraining: that one scales."""
    seconds = {}
    for artifact in dag.store.artifacts():
        m = artifact.manifest
        if m.recipe == dag.recipe and m.stage != "pretrain":
            seconds[f"{m.stage}/{m.label}" if m.label else m.stage] = m.seconds
    return seconds


def _speed(recipe: Recipe) -> float:
    """FLOP/s of one training job."""
    place = recipe.placement
    if place.gpus:
        return GPU_FLOPS * place.gpus * place.workers
    return CPU_FLOPS_PER_THREAD * place.cpu_threads * place.workers


def _slots(recipe: Recipe) -> float:
    """Stages that can run side by side on this machine."""
    return max(
        1.0, (os.cpu_count() or 1) / (recipe.placement.cpu_threads * recipe.placement.workers)
    )
