"""What stages say of themselves, brought to the command's home where their nodes have others: how
far they are, for the console, and what they track, for MLflow. And where the run stands, for
`headrace status`.
"""

import contextlib
import time
from collections.abc import Sequence

from cluster.handover import FOLLOW_SECONDS, obtain
from cluster.home import apart
from cluster.live import Pulse
from cluster.mlflow_tracking import journal_key
from cluster.store import PROGRESS
from cluster.tracking import forget_journals, obtain_journals
from flows.plan.dag import Dag, Node


class Follower:
    """Looks after the stages that run, every few seconds, and once more when they have ended."""

    def __init__(self, dag: Dag, run: str | None):
        self.store, self.due = dag.store, 0.0
        self.pulse = Pulse(dag.store.root, run, len(dag.nodes))

    def look(self, running: Sequence[Node], waiting: Sequence[str], done: int) -> None:
        """Bring what there is of running stages, unless that was done just now."""
        under_way = [(n.name, n.spec.stage, n.spec.fingerprint) for n in running]
        self.pulse.beat(under_way, waiting, done)
        if apart() and time.monotonic() >= self.due:
            for node in running:
                obtain(self.store.scratch(node.spec) / PROGRESS)
                self._journals(node)
            self.due = time.monotonic() + FOLLOW_SECONDS

    def close(self) -> None:
        """The run has ended."""
        self.pulse.close()

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
