"""What became of one training among several: one that failed by its own doing is a result too."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cluster.store import Draft
from tasks.training.job import Diverged

FINISHED = "finished"


@contextmanager
def outcome(draft: Draft) -> Iterator[None]:
    """Note in the draft's facts how the block ended: `status` finished, diverged or out of memory,
    and `why`. Any other error is the machine's or the user's, and fails the stage.
    """
    draft.facts |= {"status": FINISHED, "why": ""}
    try:
        yield
    except Diverged as error:
        draft.facts |= {"status": "diverged", "why": str(error)}
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        draft.facts |= {"status": "out of memory", "why": str(error).splitlines()[0]}


def finished(facts: dict[str, Any]) -> bool:
    """Whether a training's facts are those of one that ended well."""
    return bool(facts.get("status", FINISHED) == FINISHED)


def out_of_memory(error: BaseException) -> bool:
    """Whether an error is a device's or the host's refusal of memory."""
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or any(w in str(error).lower() for w in words)
