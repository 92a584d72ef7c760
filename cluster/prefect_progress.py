"""The progress of a task as a bar on its page in the Prefect UI."""

import logging
import math
import re
import threading
import time
from contextvars import copy_context
from functools import partial
from typing import Any, cast
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact

PROGRESS_SECONDS = 5.0
FINISH_SECONDS = 5.0
log = logging.getLogger("headrace.run")


def artifact_key(recipe: str, name: str) -> str:
    """What Prefect finds the artifacts by that show the same, run by run."""
    return re.sub("[^a-z0-9]+", "-", f"{recipe}-{name}".lower()).strip("-")


class ProgressArtifact:
    """Shows a stage's progress on its page in the Prefect UI; at most every five seconds.

    A thread tells the server, so that one that is slow or gone never holds up a stage.
    """

    def __init__(self, recipe: str, name: str):
        self.name = f"{recipe}: {name}"
        self.key = artifact_key(recipe, name)
        self.shown = -math.inf
        self.id: UUID | None = None
        self._telling: threading.Thread | None = None

    def __call__(self, report: dict[str, Any]) -> None:
        """Create or update the artifact, unless the server is still being told."""
        busy = self._telling is not None and self._telling.is_alive()
        if busy or time.monotonic() - self.shown < PROGRESS_SECONDS or not report["total"]:
            return
        self.shown = time.monotonic()
        self._begin_to_tell(100 * report["done"] / report["total"])

    def finish(self) -> None:
        """Show that the stage is built, if any progress was shown."""
        if self._telling and self.shown < math.inf:
            # What is still being told would come behind the 100 and stay.
            self._telling.join(FINISH_SECONDS)
            self._begin_to_tell(100.0)
            self._telling.join(FINISH_SECONDS)

    def _begin_to_tell(self, percent: float) -> None:
        run = partial(copy_context().run, self._tell, percent)  # Prefect's knowledge of the run
        # A daemon: a server that hangs must not keep the process from ending.
        self._telling = threading.Thread(target=run, daemon=True)
        self._telling.start()

    def _tell(self, percent: float) -> None:
        try:
            if self.id is None:
                shown = create_progress_artifact(percent, key=self.key, description=self.name)
                self.id = cast(UUID, shown)  # a coroutine only where an event loop runs
            else:
                update_progress_artifact(self.id, percent)
        except Exception as error:
            self.shown = math.inf  # one warning is enough
            log.warning("progress of %s is not shown: %s", self.name, error)
