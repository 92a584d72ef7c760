"""One writer at a time: a kernel lock on a file that says who holds it.

The kernel drops the lock with its process, so a lock left by a killed one never blocks.
"""

import contextlib
import fcntl
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

POLL_SECONDS = 0.2
log = logging.getLogger("headrace.lock")


@contextlib.contextmanager
def lock(path: Path, timeout: float = 3600.0) -> Iterator[None]:
    """Hold `path` exclusively; wait up to `timeout` seconds for another holder.

    Raises TimeoutError naming the holder's pid and host.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not "w", which would wipe out the holder's words before the lock is ours.
    with path.open("a+") as file:
        deadline, told = time.monotonic() + timeout, False
        while not _try(file.fileno()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} is held by {holder(path)} for over {timeout:.0f} s")
            if not told:
                log.info("waiting for %s, which works on the same thing", holder(path))
                told = True
            time.sleep(POLL_SECONDS)
        # The file is never removed: one who waits would else lock a file that has no name any more.
        file.truncate(0)
        file.write(json.dumps(whoami()))
        file.flush()
        yield


def is_held(path: Path) -> bool:
    """Whether a living process holds this lock."""
    if not path.exists():
        return False
    # A free lock is taken for a moment; who wants it just then tries again.
    with path.open("a+") as file:
        return not _try(file.fileno())


def holder(path: Path) -> str:
    """Who holds a lock, or held it last, in words."""
    try:
        told = json.loads(path.read_text())
        return f"process {told['pid']} on {told['host']}"
    except (ValueError, TypeError, KeyError):  # cut, or of another version
        return "another process"


def whoami() -> dict[str, str | int]:
    """This process, in words that stay unique across reboots and hosts."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return {
        "pid": os.getpid(),
        "host": socket.gethostname(),
        "boot": boot.read_text().strip() if boot.exists() else "",
    }


def _try(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
