"""From a budget to a sweep, by stated rules.

1. Three budgets half a decade apart, the law's, and two targets half a decade above the largest.
2. Sizes at each: about the optimum, which has 30 tokens a parameter (20 of large models, 45 of
   byte models near 50k parameters), at .3, .55, 1, 1.8 and 3.3 times its parameters.
3. Targets: the optimal size of theirs, and the next larger one.
4. The batch grows as tokens^0.571 (Step Law), from 512 tokens at 3.5M, in whole samples.
5. Learning rate, warm-up and cooldown are those of the recipe (`plan`).

All of it costs about 13 times the largest budget, less what trunks share: so the total sets that
budget.
"""

import math
import re
from typing import Literal

import numpy as np

from cluster.errors import BadInput
from model.flops import parameter_count
from tasks.scaling.sweep.plan import SweepSettings, TargetSettings, flops, plan_sweep
from tasks.training.model_settings import ModelSettings

TOKENS_PER_PARAMETER = 30.0
STEP = math.sqrt(10)
SIZES = (0.3, 0.55, 1.0, 1.8, 3.3)
BATCH_TOKENS, BATCH_AT, BATCH_EXPONENT = 512, 3.5e6, 0.571
NARROWEST, FEWEST_SIZES = 16, 3
Unit = Literal["flops", "seconds", "device_seconds"]
UNITS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def read_budget(text: str) -> tuple[float, Unit]:
    """`1e15` as so many FLOPs, `30min` as wall time and `4device-hours` as that of devices, both in
    seconds. Raises BadInput for another unit.
    """
    found = re.fullmatch(r"\s*([0-9.]+(?:e[+-]?\d+)?)\s*([a-z-]*)\s*", text.lower())
    if not found or (found[2] and found[2] not in (*UNITS, "flop", "flops", "device-hours")):
        raise BadInput(
            f"--budget {text}: write FLOPs (1e15), wall time (30min, 2h) or 4device-hours"
        )
    amount, unit = float(found[1]), found[2]
    if unit in ("", "flop", "flops"):
        return amount, "flops"
    if unit == "device-hours":
        return amount * 3600, "device_seconds"
    return amount * UNITS[unit], "seconds"


def read_time(text: str) -> float:
    """Seconds of `60m`, `1h` or `90s`. Raises BadInput for another form."""
    found = re.fullmatch(r"\s*([0-9.]+)\s*([a-z]+)\s*", text.lower())
    if not found or found[2] not in UNITS or not float(found[1]):
        raise BadInput(f"--time {text}: write a number and a unit, such as 60m, 1h or 90s")
    return float(found[1]) * UNITS[found[2]]


def design(total: float, settings: SweepSettings, vocab_size: int) -> SweepSettings:
    """The sweep that `total` FLOPs pay for; depth, head size, context and optimizer are those of
    `settings`. Raises BadInput when no sweep is that small.
    """
    sizes, top = _sizes(settings, vocab_size, NARROWEST), total / 10
    for _ in range(12):
        planned = _ladder(top, settings, sizes)
        if planned and total_flops(planned, vocab_size) <= total:
            return planned
        top *= 0.85
    raise BadInput(
        f"a budget of {total:.2g} FLOPs is too small for three sizes of "
        f"{settings.depth} layers: take fewer layers or more compute"
    )


def scaled(settings: SweepSettings, by: float, vocab_size: int) -> SweepSettings:
    """The same sweep at `by` times the compute: sizes and lengths at the root of it, tokens a
    parameter as they were, and batches that grow with the tokens as in `design`.

    Widths are the nearest whole numbers of heads, so a small sweep may have fewer sizes. Raises
    BadInput where they are fewer than a law needs.
    """
    if by == 1:
        return settings
    root, sizes = math.sqrt(by), _sizes(settings, vocab_size, settings.head_dim)

    def wider(width: int) -> int:
        shape = settings.shape(width).config(vocab_size, settings.context)
        return _width(parameter_count(shape) * root, sizes)

    def longer(tokens: int) -> int:
        return max(batch, round(tokens * root / batch) * batch)

    widths = sorted({wider(width) for width in settings.widths})
    if len(widths) < min(FEWEST_SIZES, len(settings.widths)):
        raise BadInput(
            f"at {by:.2g} times its compute the sweep has {len(widths)} sizes, of width "
            f"{', '.join(map(str, widths))}; a law needs {FEWEST_SIZES}: give it more"
        )
    samples = settings.batch_tokens / settings.context * root**BATCH_EXPONENT
    fewest = min(2, settings.batch_tokens // settings.context)
    batch = settings.context * max(fewest, round(samples))
    targets = (
        target.model_copy(
            update={
                "width": wider(target.width),
                "flops": target.flops and float(f"{target.flops * by:.3g}"),
                "tokens": target.tokens and longer(target.tokens),
            }
        )
        for target in settings.targets
    )
    return settings.model_copy(
        update={
            "widths": tuple(widths),
            "budgets": tuple(float(f"{budget * by:.3g}") for budget in settings.budgets),
            "tokens": tuple(sorted({longer(tokens) for tokens in settings.tokens})),
            "targets": tuple(targets),
            "batch_tokens": batch,
        }
    )


def total_flops(settings: SweepSettings, vocab_size: int) -> float:
    """What a sweep trains, shared trunks counted once."""
    plan = plan_sweep(settings, vocab_size)
    if not plan.trunks:
        return sum(flops(m, vocab_size) for m in plan.members)
    longest: dict[int | None, float] = {}
    own = 0.0
    for member in plan.members:
        whole = flops(member, vocab_size)
        stem = whole * member.branch_step / member.training.steps
        own += whole - stem
        longest[member.model.width] = max(stem, longest.get(member.model.width, 0.0))
    return own + sum(longest.values())


def _ladder(top: float, settings: SweepSettings, sizes: dict[int, int]) -> SweepSettings | None:
    budgets = [float(f"{top / STEP**k:.1e}") for k in (2, 1, 0)]
    goal = float(f"{top * STEP:.1e}")
    widths = {_width(_optimum(b, sizes) * share, sizes) for b in budgets for share in SIZES}
    smallest = 6 * sizes[min(widths)] ** 2 * TOKENS_PER_PARAMETER / 4
    if len(widths) < 3 or budgets[0] < smallest:
        return None
    target = _width(_optimum(goal, sizes), sizes)
    larger = [width for width in sorted(widths) if width > target][:1]
    tokens = TOKENS_PER_PARAMETER * _optimum(budgets[-1], sizes)
    batch = BATCH_TOKENS * (tokens / BATCH_AT) ** BATCH_EXPONENT / settings.context
    return settings.model_copy(
        update={
            "widths": tuple(sorted(widths)),
            "budgets": tuple(budgets),
            "tokens": (),
            "ratios": (),
            "window": (TOKENS_PER_PARAMETER / 20, TOKENS_PER_PARAMETER * 8),
            "targets": tuple(TargetSettings(width=w, flops=goal) for w in (target, *larger)),
            "batch_tokens": settings.context * max(1, round(batch)),
        }
    )


def _optimum(budget: float, sizes: dict[int, int]) -> float:
    """Parameters that leave 30 tokens each."""
    counts = np.array(list(sizes.values()), dtype=float)
    return float(np.interp(np.log(budget), np.log(6 * TOKENS_PER_PARAMETER * counts**2), counts))


def _width(size: float, sizes: dict[int, int]) -> int:
    """The width whose parameters are nearest, in ratio."""
    return min(sizes, key=lambda width: abs(math.log(sizes[width] / size)))


def _sizes(settings: SweepSettings, vocab_size: int, least: int) -> dict[int, int]:
    """Parameters by width, for widths of whole heads closer together than sizes need to be."""
    heads = sorted({round(1.12**k) for k in range(60)})
    found = {}
    for width in (settings.head_dim * h for h in heads if settings.head_dim * h >= least):
        shape = ModelSettings(depth=settings.depth, width=width, heads=width // settings.head_dim)
        found[width] = parameter_count(shape.config(vocab_size, settings.context))
    return found
