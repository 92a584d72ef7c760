"""Stages that another run builds at the same time: they wait in the driver, and hold nothing."""

import logging
from collections.abc import Callable
from typing import Any
from uuid import UUID

from cluster.prefect_server import NO_ANSWER, begin_wait, end_wait
from cluster.turns import Turns
from flows.plan.dag import Dag, Node

log = logging.getLogger("headrace.run")


class Queue:
    """Whose turn each stage of a plan is; Prefect shows those that wait as `shown`, its task."""

    def __init__(self, dag: Dag, shown: Callable[[Node], Any]):
        self._dag, self._shown = dag, shown
        self._turns = Turns(dag.store)
        self._waiting: dict[str, UUID | None] = {}

    def turn(self, node: Node) -> Node | None:
        """The stage if it is this run's turn to build it, or found if another run has; else None,
        and it is told once for whom it waits.
        """
        if node.found:
            return node
        if not self._turns.take(node.spec):
            if node.name not in self._waiting:
                self._waiting[node.name] = self._begin(node)
            return None
        if node.name not in self._waiting:
            return node
        self._end(self._waiting.pop(node.name))
        return self._dag.look_again(node)

    @property
    def waiting(self) -> list[str]:
        """The stages that wait."""
        return list(self._waiting)

    def leave(self, node: Node) -> None:
        """Let other runs have the stage, which has ended."""
        self._turns.leave(node.spec)

    def close(self) -> None:
        """Leave all turns, and wait for none."""
        for waiting in self._waiting.values():
            self._end(waiting)
        self._turns.close()

    def _begin(self, node: Node) -> UUID | None:
        why = f"waits for {self._turns.whose(node.spec)}, which builds the same"
        log.warning("%s %s", node.name, why)
        try:
            return begin_wait(self._shown(node), why)
        except NO_ANSWER as error:
            log.warning("Prefect does not show that %s waits: %s", node.name, error)
            return None

    def _end(self, waiting: UUID | None) -> None:
        try:
            if waiting:
                end_wait(waiting)
        except NO_ANSWER as error:
            log.warning("Prefect goes on to show a stage as waiting: %s", error)
