"""A run is planned once: by the command, which shows its progress by it, or by the flow itself.

What a flow is called with is recorded by Prefect, so a plan goes from one to the other beside that.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from cluster.store import Store
from flows.end_to_end import plan
from flows.plan.dag import Dag
from flows.recipe import Recipe

_AT_HAND: ContextVar[Dag | None] = ContextVar("plan", default=None)


def planned(goal: str, recipe: Recipe, rebuild: Iterable[str] = ()) -> Dag:
    """The plan of a recipe against the store of this home.

    Raises BadInput when something that the recipe names is not there, or what was built before
    exceeds a tolerance.
    """
    return plan(goal, Dag(recipe.name, Store(), frozenset(rebuild)), recipe)


@contextmanager
def at_hand(dag: Dag) -> Iterator[None]:
    """Let a flow that is called in the block carry out this plan."""
    token = _AT_HAND.set(dag)
    try:
        yield
    finally:
        _AT_HAND.reset(token)


def plan_of_run(goal: str, recipe: Recipe, rebuild: Iterable[str]) -> Dag:
    """The plan that is at hand; a deployed run has none and makes its own."""
    return _AT_HAND.get() or planned(goal, recipe, rebuild)
