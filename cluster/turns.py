"""Whose turn it is to build an artifact, settled between runs before a stage takes a CPU.

A stage that waited for another run's inside its Ray task would hold the CPU that the other may
need. So a run submits what it has the turn for; for the rest it looks again, and finds it built.
"""

import fcntl

from cluster.locks import holder, is_held
from cluster.store import Spec, Store


class Turns:
    """The artifacts that this process alone builds, of all the runs in a home.

    A turn is a lock on one byte of one file, so that thousands take no more than that file. The
    kernel drops them with the process; closing the file, which a process opens once, drops all.
    """

    def __init__(self, store: Store):
        self._store = store
        path = store.root / "locks" / "turns"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")

    def take(self, spec: Spec) -> bool:
        """Whether this process has the turn now; it never waits for it."""
        try:
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(spec))
        except (BlockingIOError, PermissionError):  # how the one or the other system says it
            return False
        return True

    def leave(self, spec: Spec) -> None:
        """Let others have the turn."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, _byte(spec))

    def close(self) -> None:
        """Leave all turns."""
        self._file.close()

    def whose(self, spec: Spec) -> str:
        """Who has the turn, in words: the process that builds, once it does."""
        path = self._store.lock_file(spec)
        return f"another run ({holder(path)})" if is_held(path) else "another run"


def _byte(spec: Spec) -> int:
    """Where the lock of an artifact is: sixty bits of its fingerprint, as offsets have 63."""
    return int(spec.fingerprint[:15], 16)
