"""As large as a time pays for: the sweeps that put a published law to the test.

The sizes are found by what `headrace plan` says that each would take; see `flows.plan.price`.
"""

import math
from typing import Any

from cluster.errors import BadInput
from cluster.home import home
from cluster.runs import records
from flows.plan.at_hand import planned
from flows.plan.price import price
from flows.recipe import Recipe, overridden
from flows.reproducing import law_of
from tasks.report.words import duration

SMALLEST, LARGEST, TRIES = 1e-4, 1e4, 10
STEEPEST = 4.0  # of the logarithm of the scale from one try to the next
CLOSE = 0.1
"""The share of the time that may be left over."""


def fitting(recipe: Recipe) -> Recipe:
    """The recipe with sweeps as large as end within its time in nine of ten cases; or as large as
    they were when the same was asked for before, so that what is built of it is gone on with.

    Raises BadInput where even the smallest take longer.
    """
    law = law_of(recipe)
    if law.seconds is None:
        return recipe
    if (scale := _before(recipe)) is None:
        scale = _largest(recipe, law.seconds)
    return overridden(recipe, {"reproduce.scale": scale})


def _largest(recipe: Recipe, seconds: float) -> float:
    """The largest scale that fits, by search: time goes as a power of compute between a half and
    one, since small runs take what it takes to begin.
    """
    low, high, here = math.log(SMALLEST), math.log(LARGEST), 0.0
    best, least = None, math.inf
    for _ in range(TRIES):
        scale = float(f"{math.exp(here):.3g}")
        try:
            taken = _longest(overridden(recipe, {"reproduce.scale": scale}))
        except BadInput:
            if scale == 1:  # the recipe's own sweeps are at fault, not their size
                raise
            low, here = here, (here + high) / 2  # too small for any run of the sweep
            continue
        if taken <= seconds:
            best, low = scale, here
        else:
            least, high = min(least, taken), here
        if taken <= seconds <= taken * (1 + CLOSE):
            break
        step = math.log(seconds / taken) * (2 if taken > seconds else 1)
        there = here + min(max(step, -STEEPEST), STEEPEST)
        here = there if low < there < high else (low + high) / 2
    if best is None:
        raise BadInput(
            f"--time {duration(seconds)} is too short for recipe '{recipe.name}': its smallest "
            f"sweeps take up to {duration(least)}; give it more"
        )
    return best


def _before(recipe: Recipe) -> float | None:
    """The scale of the newest run of this home that was asked for the same, whatever its seed."""
    wanted = _asked(recipe.model_dump(mode="json"))
    for record in reversed(records(home())):
        if record.goal == "reproduce" and _asked(record.recipe) == wanted:
            return float(record.recipe["reproduce"]["scale"])
    return None


def _asked(recipe: dict[str, Any]) -> dict[str, Any]:
    """A recipe without its seed, and without what was found for it; nor where it runs."""
    law = {key: value for key, value in recipe["reproduce"].items() if key not in ("scale", "runs")}
    return {**recipe, "seed": None, "placement": None, "reproduce": law}


def _longest(recipe: Recipe) -> float:
    """Seconds within which nine of ten runs of a recipe end."""
    return float(price(planned("reproduce", recipe), recipe.placement).whole()["seconds_high"] or 0)
