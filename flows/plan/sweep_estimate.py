"""What a planned sweep takes: the FLOPs of its runs, and the time of its stages side by side."""

from typing import TYPE_CHECKING, Any

from cluster.errors import BadInput
from cluster.placement import Placement
from flows.plan.at_hand import planned
from flows.plan.dag import Dag, Node
from flows.plan.price import Price, machines, price
from flows.plan.schedule import Host
from flows.plan.work import NOMINAL_WIDTH, Steps, nominal_speed, own_steps
from flows.recipe import Recipe
from tasks.scaling.sweep.advice import warnings
from tasks.scaling.sweep.budget import design, read_budget
from tasks.scaling.sweep.plan import MemberSettings, SweepPlan, flops, parameters, plan_sweep
from tasks.tokens.shards.facts import ShardFacts

if TYPE_CHECKING:
    from collections.abc import Sequence

TRIES, FULL = 8, 0.9
"""Of sweeps to a budget in time: how many are looked at, and what share of it is enough."""


def sweep_estimate(recipe: Recipe, dag: Dag, price: Price) -> dict[str, Any]:
    """`runs` with their exact FLOPs, own and from the first step, and seconds; `flops` of all,
    `saved` (share of FLOPs that trunks save), `seconds` of wall time of these stages alone,
    `stage_seconds`, `slots` that are busy side by side, `cost` and `warnings`.
    """
    assert recipe.sweep is not None
    vocab_size, place = recipe.tokenizer.vocab_size, recipe.placement
    plan = plan_sweep(recipe.sweep, vocab_size)
    nodes = [n for n in dag if isinstance(n.literals.get("settings"), Steps)]
    durations = {n.name: price.stages[n.name].seconds.value for n in nodes}
    timeline = price.scheduled(durations, list(durations))
    spent = sum(_own_flops(n, vocab_size) for n in nodes)
    whole = sum(flops(m, vocab_size) for m in plan.members)
    paid = timeline.seconds / 3600 * place.usd_per_hour * timeline.most
    return {
        "runs": _runs(plan, nodes, durations, vocab_size),
        "flops": spent,
        "saved": round(1 - spent / whole, 4),
        "slots": timeline.most,
        "stage_seconds": durations,
        "seconds": float(f"{timeline.seconds:.4g}"),
        "cost": float(f"{paid:.4g}"),
        "warnings": warnings(plan, vocab_size, _unique_tokens(dag)),
    }


def paid_by(budget: str, recipe: Recipe, hosts: "Sequence[Host]") -> Recipe:
    """The recipe with the largest sweep found that a budget pays for: FLOPs, or the time that its
    stages are foretold to take. Raises BadInput where no sweep is that small.
    """
    if recipe.sweep is None:
        raise BadInput(f"--budget plans a sweep, and recipe '{recipe.name}' has none")
    amount, unit = read_budget(budget)
    speed, side = _total_speed(recipe, hosts)
    nominal = {"flops": 1.0, "device_seconds": speed, "seconds": speed * side}
    best, total = None, amount * nominal[unit]
    for _ in range(TRIES):
        try:
            made = design(total, recipe.sweep, recipe.tokenizer.vocab_size)
        except BadInput as error:
            if best is None:
                raise BadInput(f"--budget {budget}: {error}") from None
            break
        found = recipe.model_copy(update={"sweep": made})
        took = amount if unit == "flops" else _time_of(found, hosts, unit)
        if took <= amount:
            best = found
            if took >= FULL * amount:
                break
        total *= FULL * amount / took
    if best is None:
        raise BadInput(f"--budget {budget}: no sweep was found that takes no longer; give it more")
    return best


def _time_of(recipe: Recipe, hosts: "Sequence[Host]", unit: str) -> float:
    """Seconds that the stages of a sweep take, from its beginning or of all devices together."""
    dag = planned("sweep", recipe)
    found = sweep_estimate(recipe, dag, price(dag, recipe.placement, hosts))
    return float(found["seconds"] if unit == "seconds" else sum(found["stage_seconds"].values()))


def _unique_tokens(dag: Dag) -> int | None:
    """Tokens of the training split, once the shards are made."""
    made = (node.found for node in dag if node.spec.stage == "shards")
    if (found := next(made, None)) is None:
        return None
    return ShardFacts.of(found).train.tokens


def _total_speed(recipe: Recipe, hosts: "Sequence[Host]") -> tuple[float, int]:
    """Nominal FLOP per second of one training, and trainings side by side: to begin with."""
    place = recipe.placement
    width = NOMINAL_WIDTH // 2  # a sweep's are rather narrow
    return nominal_speed(place, width), slots_of(place, hosts or machines())


def slots_of(place: Placement, hosts: "Sequence[Host]") -> int:
    """Trainings that these hosts have the CPUs and GPUs for, side by side."""
    room = [
        int(host.gpus / place.gpus) if place.gpus else host.cpus // place.cpu_threads
        for host in hosts
    ]
    return max(1, sum(room) // place.workers)


def _own_flops(node: Node, vocab_size: int) -> float:
    settings = node.literals["settings"]
    return float(flops(settings, vocab_size) * own_steps(node) / settings.training.steps)


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
            "seconds": durations[by_label[m.label].name],
            "held_out": m in plan.targets,
        }
        for m in plan.members
    ]
