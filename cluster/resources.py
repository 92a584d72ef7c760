"""What work takes: CPU seconds and peak memory of a process, its children and its Ray tasks.

with measured() as usage:
    ...                      # fan_out adds what its tasks took on other processes
usage.cpu_seconds, usage.peak_bytes
"""

import contextlib
import resource
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PEAK = Path("/proc/self/clear_refs")
STATUS = Path("/proc/self/status")
UNIT = 1 if sys.platform == "darwin" else 1024  # of ru_maxrss, in bytes


def _now() -> tuple[float, int]:
    """CPU seconds of this process and of its children that have ended; the children's peak."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found), found[1].ru_maxrss * UNIT


@dataclass(eq=False)
class Usage:
    """CPU seconds, of user and system, and the most memory that one process held, in bytes."""

    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    _own: tuple[float, int] = field(default_factory=_now, repr=False)

    def add(self, other: "Usage") -> None:
        """Take in what another process took for this work."""
        self.cpu_seconds += other.cpu_seconds
        self.peak_bytes = max(self.peak_bytes, other.peak_bytes)

    def _finish(self) -> None:
        seconds, children = _now()
        self.cpu_seconds += seconds - self._own[0]
        # The peak of children is that of all so far: one lower than an earlier one's is not known.
        grown = children if children > self._own[1] else 0
        self.peak_bytes = max(self.peak_bytes, _own_peak(), grown)


_open: list[Usage] = []


@contextlib.contextmanager
def measured() -> Iterator[Usage]:
    """What a block takes, whole once it has ended, with an error or without."""
    with contextlib.suppress(OSError):
        PEAK.write_text("5")  # Linux forgets the peak so far
    usage = Usage()
    _open.append(usage)
    try:
        yield usage
    finally:
        _open.remove(usage)
        usage._finish()


def charge(usage: Usage) -> None:
    """Add what other processes took to all work that is being measured here, if any is."""
    for outer in _open:
        outer.add(usage)


def _own_peak() -> int:
    try:
        line = next(x for x in STATUS.read_text().splitlines() if x.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT
    return int(line.split()[1]) * 1024
