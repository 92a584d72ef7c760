"""Requests that got no reply, and how many of them a stage bears."""

from collections.abc import Mapping

from cluster.errors import BadInput
from tasks.evaluation.judging.questions import NO_REPLY
from tasks.synthesis.settings import AskedSettings

BUDGET = "budget"


def is_failure(reason: str) -> bool:
    """Whether no reply came for a reason that may be mended: the budget is as somebody wished."""
    return (reason in NO_REPLY and reason != BUDGET) or reason.startswith("http_")


def check_failed(
    failed: Mapping[str, int], words: Mapping[str, str], total: int, settings: AskedSettings
) -> None:
    """Raise BadInput when more of all requests than allowed got no reply."""
    count = sum(failed.values())
    if count > settings.max_failed * total:
        why = ", ".join(f"{r} {n} ('{words.get(r, '')}')" for r, n in failed.items())
        raise BadInput(
            f"{count} of {total} requests got no reply, more than max_failed "
            f"{settings.max_failed:g} allows: {why}. Mend the cause and run again: what was "
            "answered is kept, and not asked for again"
        )
