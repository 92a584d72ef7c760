"""What a planned sweep takes: FLOPs, and the time of its stages side by side on this machine."""

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cluster.machine import cpus
from cluster.placement import Placement
from flows.plan.dag import Dag, Node
from flows.recipe import Recipe
from tasks.scaling.sweep.advice import warnings
from tasks.scaling.sweep.plan import (
    MemberSettings,
    SweepPlan,
    TrunkSettings,
    flops,
    parameters,
    plan_sweep,
)
from tasks.tokens.shards.facts import ShardFacts

if TYPE_CHECKING:
    from tasks.scaling.sweep.speed import Speed

# Seconds until a worker process can train (imports), once for each; and of a stage beside its
# training: its task, its artifact.
WORKER_SECONDS, STAGE_SECONDS = 8.0, 1.0
# FLOPs left to train; below, nominal speeds will do. Wide models are faster, up to a width.
WORTH_MEASURING = 5e12
NOMINAL_SETUP = 1.5
# Measured on one server core in fp32 at this width; a GPU: a third of an H100's dense bf16.
CPU_FLOPS_PER_THREAD, NOMINAL_WIDTH = 3.5e10, 96
GPU_FLOPS = 3.3e14
Steps = MemberSettings | TrunkSettings


def sweep_estimate(recipe: Recipe, dag: Dag) -> dict[str, Any]:
    """`runs` with their exact FLOPs, own and from the first step, and seconds; `flops` of all,
    `saved` (share of FLOPs that trunks save), `seconds` of wall time, `stage_seconds`, `slots` side
    by side, `cost` and `warnings`. Where minutes are at stake speeds are measured, a few seconds
    for each size, and remembered; else they are nominal.
    """
    assert recipe.sweep is not None
    vocab_size, place = recipe.tokenizer.vocab_size, recipe.placement
    plan = plan_sweep(recipe.sweep, vocab_size)
    nodes = [n for n in dag if isinstance(n.literals.get("settings"), Steps)]
    spent = sum(_own_flops(n, vocab_size) for n in nodes)
    left = sum(_own_flops(n, vocab_size) for n in nodes if not n.found)
    speeds = _speeds(plan, recipe, measure=left > WORTH_MEASURING)
    scored = recipe.sweep.heldout_tokens
    durations = {n.name: 0.0 if n.found else _seconds(n, speeds, scored) for n in nodes}
    slots = slots_of(place)
    started = WORKER_SECONDS if any(durations.values()) else 0.0
    seconds = started + wall_time(nodes, durations.__getitem__, slots)
    whole = sum(flops(m, vocab_size) for m in plan.members)
    return {
        "runs": _runs(plan, nodes, durations, vocab_size),
        "flops": spent,
        "saved": round(1 - spent / whole, 4),
        "slots": slots,
        "stage_seconds": durations,
        "seconds": round(seconds, 1),
        "cost": round(seconds / 3600 * place.usd_per_hour * place.workers, 4),
        "warnings": warnings(plan, vocab_size, _unique_tokens(dag)),
    }


def _unique_tokens(dag: Dag) -> int | None:
    """Tokens of the training split, once the shards are made."""
    made = (node.found for node in dag if node.spec.stage == "shards")
    if (found := next(made, None)) is None:
        return None
    return ShardFacts.of(found).train.tokens


def total_speed(recipe: Recipe) -> tuple[float, int]:
    """Nominal FLOP per second of one training, and trainings side by side: for budgets in time."""
    place = recipe.placement
    width = NOMINAL_WIDTH // 2  # a sweep's are rather narrow
    return nominal_speed(place, width), 1 if place.gpus else slots_of(place)


def nominal_speed(place: Placement, width: int | None) -> float:
    """FLOP per second of one training of this width, where none was measured."""
    if place.gpus:
        return GPU_FLOPS * place.gpus * place.workers
    share = min(1.0, ((width or NOMINAL_WIDTH) / NOMINAL_WIDTH) ** 0.8)
    return CPU_FLOPS_PER_THREAD * place.cpu_threads * place.workers * share


def slots_of(place: Placement) -> int:
    """Trainings that this machine has the CPUs for, side by side."""
    return max(1, cpus() // (place.cpu_threads * place.workers))


def _speeds(plan: SweepPlan, recipe: Recipe, measure: bool) -> dict[int | None, "Speed"]:
    """The speed of each width."""
    from tasks.scaling.sweep.speed import Speed, speed_of

    vocab_size, place = recipe.tokenizer.vocab_size, recipe.placement
    found: dict[int | None, Speed] = {}
    for member in plan.members:
        width = member.model.width
        if width in found:
            continue
        if measure:
            found[width] = speed_of(member, vocab_size, place)
            continue
        rate = nominal_speed(place, width)
        step = flops(member, vocab_size) / member.training.steps / rate
        found[width] = Speed(step, NOMINAL_SETUP)
    return found


def wall_time(nodes: list[Node], seconds: Callable[[str], float], slots: int) -> float:
    """When the last of some stages ends, each started in order as soon as its inputs are there and
    one of `slots` is free.
    """
    ends: dict[str, float] = {}
    free = [0.0] * slots
    waiting = list(nodes)
    while waiting:
        names = {n.name for n in waiting}
        able = [n for n in waiting if not names & {w.name for w in _roots(n)}]
        ready = {n.name: max([0.0, *(ends.get(w.name, 0.0) for w in _roots(n))]) for n in able}
        if any(n.after for n in able) and any(not n.after for n in waiting):
            able = [n for n in able if not n.after]  # the fit needs all others first
        node = min(able, key=lambda n: ready[n.name])
        fitted = max(ends.values(), default=0.0) if node.after and not _roots(node) else 0.0
        begin = max(heapq.heappop(free), ready[node.name], fitted)
        ends[node.name] = begin + seconds(node.name)
        heapq.heappush(free, ends[node.name])
        waiting.remove(node)
    return max(ends.values(), default=0.0)


def _roots(node: Node) -> list[Node]:
    found = (node.arguments.get(name) for name in ("trunk", "before"))
    return [root for root in found if isinstance(root, Node)]


def _own_steps(node: Node) -> int:
    settings = node.literals["settings"]
    assert isinstance(settings, Steps)
    shared = sum(root.literals["settings"].training.steps for root in _roots(node))
    return int(settings.training.steps - shared)


def _own_flops(node: Node, vocab_size: int) -> float:
    settings = node.literals["settings"]
    return flops(settings, vocab_size) * _own_steps(node) / settings.training.steps


def _seconds(node: Node, speeds: "dict[int | None, Speed]", heldout_tokens: int) -> float:
    settings = node.literals["settings"]
    speed = speeds[settings.model.width]
    measured = heldout_tokens if isinstance(settings, MemberSettings) else 0
    scoring = measured / settings.training.batch_tokens * speed.step / 3  # forward only
    return float(_own_steps(node) * speed.step + speed.setup + scoring + STAGE_SECONDS)


def _runs(
    plan: SweepPlan, nodes: list[Node], durations: dict[str, float], vocab_size: int
) -> list[dict[str, Any]]:
    by_label = {
        n.spec.label: n for n in nodes if isinstance(n.literals["settings"], MemberSettings)
    }
    return [
        {
            "name": m.label,
            "params": parameters(m, vocab_size),
            "tokens": m.training.tokens,
            "steps": m.training.steps,
            "batch_tokens": m.training.batch_tokens,
            "learning_rate": m.training.optimizer.learning_rate,
            "flops": flops(m, vocab_size),
            "flops_own": _own_flops(by_label[m.label], vocab_size),
            "seconds": round(durations[by_label[m.label].name], 1),
            "held_out": m in plan.targets,
        }
        for m in plan.members
    ]
