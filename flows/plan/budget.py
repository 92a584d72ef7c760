"""What hours or dollars pay for: the network and the tokens of a recipe, and when a run has to end.

    headrace plan mine --hours 3     # sizes depth and tokens to what fits
    headrace run mine --hours 3      # ends after three hours, with a checkpoint to go on from

The depth is the one whose loss the law says is lowest with all the tokens that fit: the law of the
recipe's own sweep where this store has one that holds, else that of Hoffmann et al. 2022 as
Besiroglu et al. 2024 fitted it again. A network of which more than the depth is given keeps its
shape.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.store import Store
from flows.plan.at_hand import planned
from flows.plan.price import HOUR, Price, price
from flows.plan.schedule import Host
from flows.recipe import Recipe, overridden
from model.flops import parameter_count
from tasks.report.words import duration
from tasks.training.memory import check_memory
from tasks.training.model_settings import DIAL

PUBLISHED = {"E": 1.8172, "A": 482.01, "B": 2085.43, "alpha": 0.3478, "beta": 0.3658}
DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96)
TRIES, LEAP = 8, 1e3  # of token counts, each from the time that the one before takes
CLOSE = 0.02


class Budget(NamedTuple):
    """What there is to spend; None is as much as it takes."""

    hours: float | None = None
    usd: float | None = None

    @classmethod
    def of(cls, place: Placement) -> "Budget":
        """The cap of a placement."""
        return cls(place.max_hours, place.max_usd)

    def seconds(self, found: Price) -> float:
        """The wall time that it pays for, at the rate of a run."""
        paid = math.inf if self.usd is None else self.usd - found.replies
        by_money = paid * HOUR / found.usd_per_hour if found.usd_per_hour else math.inf
        return min(math.inf if self.hours is None else self.hours * HOUR, max(0.0, by_money))

    def __str__(self) -> str:
        """`3 h`, `200 USD`, or both."""
        hours = [] if self.hours is None else [duration(self.hours * HOUR)]
        return " and ".join([*hours, *([] if self.usd is None else [f"{self.usd:g} USD"])])


@dataclass(frozen=True)
class Cap:
    """When a run has to end, on the clock of `time.monotonic`, and by which budget."""

    at: float
    budget: Budget

    @classmethod
    def of(cls, found: Price, started: float) -> "Cap":
        """The cap of a run that started at some time."""
        budget = Budget.of(found.place)
        return cls(started + budget.seconds(found), budget)

    def __str__(self) -> str:
        """Why a run that has reached it is stopped."""
        return (
            f"the run has reached its cap of {self.budget} (placement.max_hours, max_usd) and was "
            "stopped: what is built is kept, and of trainings a checkpoint; the same command goes "
            "on from there, for as much again"
        )


def sized(recipe: Recipe, budget: Budget, hosts: Sequence[Host]) -> Recipe:
    """The recipe with the depth and tokens that a budget pays for, and with the budget as its cap.

    Raises BadInput where it does not pay for any training, or nothing says what anything costs.
    """
    caps = {"placement.max_hours": budget.hours, "placement.max_usd": budget.usd}
    recipe = overridden(recipe, caps)
    dial = recipe.model
    depth = dial.depth or DIAL
    free = not (dial.origin or dial.preset or dial.width or dial.heads)
    depths = sorted({*DEPTHS, depth}) if free else [depth]
    tried = {depth: _filled(recipe, budget, hosts)}
    law, here = _law(recipe), depths.index(depth)
    for step in (1, -1):  # the loss falls with depth, then rises
        place = here + step
        while 0 <= place < len(depths):
            found = _with(recipe, {"model.depth": depths[place]})
            tried[depths[place]] = found and _filled(found, budget, hosts)
            if _loss(tried[depths[place]], law) >= _loss(tried[depths[place - step]], law):
                break
            place += step
    best = min(tried.values(), key=lambda one: _loss(one, law))
    if best is None:
        raise BadInput(
            f"{budget} do not pay for recipe '{recipe.name}' with any training; leave stages out "
            "(`--set sweep=null`), or give it more: `headrace plan` says what each takes"
        )
    return best


def sizes(recipe: Recipe) -> dict[str, dict[str, Any]]:
    """What was sized of a recipe, as its sections."""
    place, dial = recipe.placement, recipe.model
    caps = {"max_hours": place.max_hours, "max_usd": place.max_usd}
    return {
        **({"model": {"depth": dial.depth}} if dial.depth else {}),
        "pretrain": {"tokens": recipe.training.tokens},
        "placement": {key: value for key, value in caps.items() if value is not None},
    }


def _filled(recipe: Recipe, budget: Budget, hosts: Sequence[Host]) -> Recipe | None:
    """The recipe with as many tokens as fit; None where one batch is too many."""
    best, batch = None, recipe.training.batch_tokens
    tokens = float(recipe.training.tokens)
    for _ in range(TRIES):
        tokens = max(1.0, tokens // batch) * batch
        if (tried := _with(recipe, {"pretrain.tokens": int(tokens)})) is None:
            return best
        found = price(planned("all", tried), tried.placement, hosts)
        left = budget.seconds(found) - found.seconds
        if left >= 0:
            best = tried
        # Tokens change the time of the training, and of nothing else.
        training = found.stages["pretrain"].seconds.value
        more = 1 + left / training if training else 1.0
        if 0 <= more - 1 < CLOSE or (tokens == batch and left < 0):
            break
        tokens *= min(LEAP, max(1 / LEAP, more))
    return best


def _with(recipe: Recipe, values: Mapping[str, Any]) -> Recipe | None:
    """The recipe with some values instead; None where it cannot be trained, or held in memory."""
    try:
        made = overridden(recipe, values)
        config = made.model.config(made.tokenizer.vocab_size, made.training.context)
        check_memory(config, made.training, made.placement)
    except BadInput:
        return None
    return made


def _loss(recipe: Recipe | None, law: Mapping[str, float]) -> float:
    """What the law says of a recipe's training, in nats a token."""
    if recipe is None:
        return math.inf
    config = recipe.model.config(recipe.tokenizer.vocab_size, recipe.training.context)
    params, tokens = parameter_count(config), recipe.training.tokens
    return law["E"] + law["A"] / params ** law["alpha"] + law["B"] / tokens ** law["beta"]


def _law(recipe: Recipe) -> Mapping[str, float]:
    """The newest law of this recipe's sweeps that its runs determine, or the published one."""
    for manifest in Store().catalogue().newest("fit", 8):
        found = manifest.facts.get("fit") or {}
        holds = found.get("identifiable") and found.get("form") == "chinchilla"
        if holds and manifest.recipe == recipe.name:
            return {name: float(found[name]) for name in PUBLISHED}
    return PUBLISHED
