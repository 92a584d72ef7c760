"""What makes a planned sweep a poor basis for a law, said before anything is trained."""

from collections import defaultdict

from tasks.scaling.sweep.plan import MemberSettings, SweepPlan, flops, parameters

# Fewer steps leave a run in its warm-up; such runs bend a law upwards at small budgets.
FEWEST_STEPS = 200
# Tokens per parameter at the optimum of a budget: 20 of large models (Hoffmann 2022) to about 45
# of byte models near 50k parameters.
OPTIMAL_RATIOS = (20.0, 45.0)
SAME_BUDGET = 1.2


def warnings(plan: SweepPlan, vocab_size: int, unique_tokens: int | None) -> list[str]:
    """Short runs, too few sizes or lengths, rates that do not go with the width, optima that will
    lie at an edge, text that is seen again (where `unique_tokens` are known), and targets outside
    the grid's tokens per parameter.
    """
    return [
        *_short(plan.members),
        *_narrow(plan.grid),
        *_one_rate(plan.members),
        *_edges(plan.grid, vocab_size),
        *_repeats(plan.members, unique_tokens),
        *_outside(plan, vocab_size),
    ]


def _short(members: list[MemberSettings]) -> list[str]:
    return [
        f"{m.label} has {m.training.steps} steps; below {FEWEST_STEPS} it is mostly warm-up, "
        "take smaller batches or more tokens"
        for m in members
        if m.training.steps < FEWEST_STEPS
    ]


def _narrow(grid: list[MemberSettings]) -> list[str]:
    found = []
    for what, values in (
        ("widths", {m.model.width for m in grid}),
        ("token counts", {m.training.tokens for m in grid}),
    ):
        if len(values) < 3:
            found.append(f"{len(values)} {what}; a law in both size and data needs at least 3")
    return found


def _one_rate(members: list[MemberSettings]) -> list[str]:
    widths = sorted({m.model.width or 0 for m in members})
    if len(widths) == 1 or all(m.training.optimizer.base_width for m in members):
        return []
    return [
        f"widths {widths[0]} to {widths[-1]} learn at one rate; what suits narrow networks is too "
        "fast for wide ones, which bends the law: give sweep.optimizer.base_width"
    ]


def _edges(grid: list[MemberSettings], vocab_size: int) -> list[str]:
    """Budgets whose best size is expected at or beyond the smallest or largest model."""
    groups: dict[int, list[MemberSettings]] = defaultdict(list)
    for member in grid:
        budget = flops(member, vocab_size)
        near = (k for k, g in groups.items() if budget < flops(g[0], vocab_size) * SAME_BUDGET)
        groups[next(near, len(groups))].append(member)
    return [line for g in groups.values() if len(g) > 2 for line in _edge(g, vocab_size)]


def _edge(group: list[MemberSettings], vocab_size: int) -> list[str]:
    ratios = sorted(m.training.tokens / parameters(m, vocab_size) for m in group)
    budget = flops(group[0], vocab_size)
    low, high = OPTIMAL_RATIOS
    if ratios[0] < low and high < ratios[-1]:
        return []
    side = "larger" if ratios[0] >= low else "smaller"
    return [
        f"the best size at {budget:.2g} FLOPs will lie at an edge: its runs have "
        f"{ratios[0]:.3g} to {ratios[-1]:.3g} tokens a parameter, the optimum is near {low:g} to "
        f"{high:g}; add {side} models"
    ]


def _repeats(members: list[MemberSettings], unique_tokens: int | None) -> list[str]:
    if unique_tokens is None:
        return []
    return [
        f"{m.label} sees its text {m.training.tokens / unique_tokens:.2g} times; repeated text "
        "teaches less (`headrace fit --form repeated`)"
        for m in members
        if m.training.tokens > unique_tokens
    ]


def _outside(plan: SweepPlan, vocab_size: int) -> list[str]:
    ratios = [m.training.tokens / parameters(m, vocab_size) for m in plan.grid]
    found = []
    for target in plan.targets:
        ratio = target.training.tokens / parameters(target, vocab_size)
        if not min(ratios) <= ratio <= max(ratios):
            found.append(
                f"target {target.label} has {ratio:.3g} tokens a parameter, outside the "
                f"{min(ratios):.3g} to {max(ratios):.3g} of the runs the law is fitted to"
            )
    return found
