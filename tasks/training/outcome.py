"""What became of one training among several: one that failed by its own doing is a result too."""

from collections.abc import Iterator
from contextlib import contextmanager

from cluster.store import Draft
from tasks.training.facts import Ending
from tasks.training.job import Diverged


@contextmanager
def outcome(draft: Draft) -> Iterator[None]:
    """Note in the draft's facts how the block ended: `status` finished, diverged or out of memory,
    and `why`. Any other error is the machine's or the user's, and fails the stage.
    """
    draft.facts |= Ending().noted()
    try:
        yield
    except Diverged as error:
        draft.facts |= Ending(status="diverged", why=str(error)).noted()
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        why = str(error).splitlines()[0]
        draft.facts |= Ending(status="out of memory", why=why).noted()


def out_of_memory(error: BaseException) -> bool:
    """Whether an error is a device's or the host's refusal of memory."""
    words = ("out of memory", "can't allocate memory", "not enough memory")
    return isinstance(error, MemoryError) or any(w in str(error).lower() for w in words)
