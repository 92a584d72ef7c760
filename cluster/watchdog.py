"""Starts the local services again when they die while this process lives.

Clients of a service ride through its death: they try again for a minute, and it comes back at the
same address within seconds.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from cluster.errors import BadInput
from cluster.processes import Process

POLL_SECONDS, UNATTENDED_SECONDS = 0.2, 2.0
"""How often a run looks after the services, and how often these look after each other."""
MOST_RESTARTS = 5
log = logging.getLogger("headrace.services")


def keep(
    read: Callable[[], Mapping[str, Process]],
    restart: Callable[[str, Process], Any],
    every: float = POLL_SECONDS,
) -> threading.Thread:
    """Watch the services that `read` tells of, in a daemon thread that ends with the process; a
    look `every` so many seconds.

    `restart(name, dead)` is called for one that was seen alive and is recorded no more alive. One
    that is recorded no longer was stopped on purpose. A service that keeps dying is given up.
    """
    watch = threading.Thread(
        target=_watch, args=(read, restart, every), name="services", daemon=True
    )
    watch.start()
    return watch


def _watch(
    read: Callable[[], Mapping[str, Process]],
    restart: Callable[[str, Process], Any],
    every: float,
) -> None:
    """Have each process that `read` knows started again when it has died, once for each death."""
    # Those that died just before count too: who starts one of them again may be killed next.
    seen = {name: process for name, process in _told(read).items() if process.pid}
    deaths: dict[str, int] = {}
    pause = threading.Event()
    while not pause.wait(every):
        for name, process in _told(read).items():
            if process.alive:
                seen[name] = process
            elif seen.get(name) == process:
                # One attempt for each death: what does not start is not tried five times a second.
                del seen[name]
                deaths[name] = deaths.get(name, 0) + 1
                _restart(name, process, deaths[name], restart)


def _told(read: Callable[[], Mapping[str, Process]]) -> Mapping[str, Process]:
    try:
        return read()
    except (BadInput, OSError):  # a home out of reach for a moment must not end the watch
        return {}


def _restart(name: str, dead: Process, deaths: int, restart: Callable[[str, Process], Any]) -> None:
    if deaths > MOST_RESTARTS:
        log.error(
            "the %s service died %d times and is not started again; the end of its log is in %s",
            name,
            deaths,
            dead.log,
        )
        return
    try:
        restart(name, dead)
    except Exception as error:  # a thread that ended here would leave the other services alone
        log.error("the %s service died and does not start again: %s", name, error)
