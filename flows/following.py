"""What stages say of themselves, brought to the command's home where their nodes have others: how
far they are, for the console, and what they track, for MLflow.
"""

import contextlib
import time
from collections.abc import Iterable

from cluster.handover import FOLLOW_SECONDS, obtain
from cluster.home import apart
from cluster.mlflow_tracking import journal_key
from cluster.store import PROGRESS, Store
from cluster.tracking import forget_journals, obtain_journals
from flows.plan.dag import Node


class Follower:
    """Looks after the stages that run, every few seconds, and once more when they have ended."""

    def __init__(self, store: Store):
        self.store, self.due = store, 0.0

    def look(self, running: Iterable[Node]) -> None:
        """Bring what there is of running stages, unless that was done just now."""
        if apart() and time.monotonic() >= self.due:
            for node in running:
                obtain(self.store.scratch(node.spec) / PROGRESS)
                self._journals(node)
            self.due = time.monotonic() + FOLLOW_SECONDS

    def end(self, node: Node, built: bool) -> None:
        """Bring the last of a stage; one that was not built may go on, on another node."""
        if apart() and not node.found:
            self._journals(node)
            if built and node.about.tracked:
                forget_journals(journal_key(node.spec.stage, node.spec.fingerprint))
            scratch = self.store.scratch(node.spec)
            (scratch / PROGRESS).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # it is of this node, and holds more
                scratch.rmdir()

    def _journals(self, node: Node) -> None:
        if node.about.tracked:
            obtain_journals(journal_key(node.spec.stage, node.spec.fingerprint))
