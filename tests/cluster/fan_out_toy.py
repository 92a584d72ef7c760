"""Work for the workers of `test_fan_out.py`: they import it by name."""

import os
import signal
import time
from pathlib import Path

from cluster.errors import BadInput


def square(number: int) -> int:
    """The earlier the item, the later it is done."""
    time.sleep(0.05 * (5 - number) if number < 5 else 0)
    return number * number


def pid(number: int) -> int:
    """Who works."""
    return os.getpid()


def refuse_three(number: int) -> int:
    """Fail as the user's input would."""
    if number == 3:
        raise BadInput("row 3 is bad: mend it")
    return number


def die_once(folder: Path, number: int) -> int:
    """Kill the worker the first time that item 2 is worked on."""
    marker = folder / "died"
    if number == 2 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def die(number: int) -> int:
    """Kill every worker."""
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def burn(seconds: float) -> float:
    """Keep a CPU busy for so long."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass
    return seconds
