"""The cancelling of a run in Prefect's UI, noticed by the run itself.

Prefect's workers end the runs that they started. A run that somebody started by hand, or whose
worker is gone, would go on for ever in the state Cancelling: its driver looks now and then.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from uuid import UUID

from cluster.errors import StageFailed
from cluster.prefect_server import NO_ANSWER, client

LOOK_SECONDS = 3.0
WORKER_SECONDS = 90.0
"""How long a worker may take to end a run that it started: it kills after half a minute."""
BY_WORKER = "PREFECT__ENABLE_CANCELLATION_AND_CRASHED_HOOKS"
"""What Prefect sets to `false` for a run that one of its workers looks after."""


class AskedToCancel(StageFailed):
    """Somebody cancelled the run in Prefect."""


class Asked:
    """Whether the run is to be cancelled."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def check(self) -> None:
        """Raise AskedToCancel where it is."""
        if self._asked.is_set():
            raise AskedToCancel("cancelled in Prefect; the same command goes on from here")

    def look(self, flow_run_id: UUID, patience: float, over: threading.Event) -> None:
        """Look until the run is `over`; the server may be away meanwhile."""
        since = None
        with client() as server:
            while not over.wait(LOOK_SECONDS):
                try:
                    state = server.read_flow_run(flow_run_id).state
                except NO_ANSWER:
                    continue
                if state is None or not (state.is_cancelling() or state.is_cancelled()):
                    since = None
                elif time.monotonic() - (since := since or time.monotonic()) >= patience:
                    self._asked.set()
                    return


@contextmanager
def cancelling(flow_run_id: str) -> Iterator[Asked]:
    """Watch for the cancelling of a flow run, in a thread, until the block ends."""
    asked, over = Asked(), threading.Event()
    patience = WORKER_SECONDS if os.environ.get(BY_WORKER) == "false" else 0.0
    arguments = (asked.look, UUID(flow_run_id), patience, over)
    watch = threading.Thread(target=copy_context().run, args=arguments, daemon=True)
    watch.start()
    try:
        yield asked
    finally:
        over.set()
