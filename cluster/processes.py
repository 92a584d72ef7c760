"""Background processes that outlive the command that started them."""

import contextlib
import os
import signal
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import psutil
from pydantic import Field

from cluster.home import OF_OTHERS, home, subfolder
from cluster.locks import whoami
from cluster.settings import Record
from cluster.url_secrets import VARIABLE

STOP_SECONDS = 8.0
ORPHAN_SECONDS = 2.0
TAIL_LINES = 30
LONGEST = 27  # of the path of a folder for sockets


class Process(Record):
    """A background process: enough to find it again and never take another for it."""

    pid: int
    boot: str = Field(description="boot id of the machine it was started on")
    started: int = Field(
        description="start in hundredths of a second after boot; a reused pid differs"
    )
    url: str | None = None
    store: str | None = Field(None, description="the user's tracking store that MLflow sends to")
    log: str = ""

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return self.boot == whoami()["boot"] and start_time(self.pid) == self.started


def spawn(
    name: str,
    command: Sequence[str],
    variables: Mapping[str, str],
    url: str | None = None,
    handle: int | None = None,
) -> Process:
    """Start a command in a session of its own, its output in `$HEADRACE_HOME/logs/NAME.log`.

    `handle` is the socket that listens on its port; the process keeps it, the caller loses it.
    """
    log = subfolder("logs") / f"{name}.log"
    if log.exists():
        # One that died is started again at once: its log says why, and must outlive that.
        log.replace(log.with_suffix(".previous.log"))
    log.touch(mode=0o600)  # whatever the mask of a program that uses this
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            env=dict(os.environ, HEADRACE_HOME=str(home()), **{VARIABLE: "{}"}) | dict(variables),
            cwd=subfolder("logs"),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C in the terminal does not reach it, and its
            # children are a group that `stop` can end.
            start_new_session=True,
            umask=0o077,
            pass_fds=() if handle is None else (handle,),
        )
    if handle is not None:
        os.close(handle)
    return Process(
        pid=child.pid,
        boot=str(whoami()["boot"]),
        # 0: it has ended already, and no process that takes its number is mistaken for it.
        started=start_time(child.pid) or 0,
        url=url,
        log=str(log),
    )


def stop(process: Process) -> str:
    """End a process and its group: SIGTERM, SIGKILL after some seconds; what happened."""
    if not process.alive:
        return "was not running"
    ways = ((signal.SIGTERM, "stopped", STOP_SECONDS), (signal.SIGKILL, "killed", 2.0))
    for number, how, seconds in ways:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            # Of the group, not of its first process: a child
            # that takes longer still holds the port.
            if not group_alive(process.pid):
                return how
            time.sleep(0.05)
    return "does not end"


def start_time(pid: int) -> int | None:
    """Hundredths of a second from boot to the start of a process; None when it is gone or a zombie.

    What psutil tells is of the clock on the wall, which may be set; the difference is not.
    """
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            return round(100 * (process.create_time() - psutil.boot_time()))
    return None


def group_alive(group: int) -> bool:
    """Whether any process of a group runs; zombies do not count."""
    return any(start_time(process.pid) is not None for process in _group(group))


def find(command: Sequence[str]) -> Process | None:
    """The process of this home and user that runs Python with these first arguments, if any does.

    Only those that `spawn` started count; a port that follows makes its `url`.
    """
    for process in psutil.process_iter(["cmdline"]):
        arguments = (process.info["cmdline"] or [])[1:]
        if arguments[: len(command)] == list(command) and _of_this_home(process):
            port = next(iter(arguments[len(command) :]), "")
            return Process(
                pid=process.pid,
                boot=str(whoami()["boot"]),
                started=start_time(process.pid) or 0,
                url=f"http://127.0.0.1:{port}" if port.isdigit() else None,
            )
    return None


def end_orphans(process: Process) -> None:
    """Kill what is left of the group of a process that died: it may hold its port and its files."""
    # The number of a group that is gone may be another's by now, hence the look at its home.
    left = [] if process.alive else [p for p in _group(process.pid) if _of_this_home(p)]
    _kill(left)
    psutil.wait_procs(left, ORPHAN_SECONDS)


def end_all_with(name: str, value: str) -> None:
    """Kill the processes that were started with this environment variable."""
    _kill(p for p in psutil.process_iter() if _variable(p, name) == value)


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def _group(group: int) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if os.getpgid(process.pid) == group:
                yield process


def _of_this_home(process: psutil.Process) -> bool:
    return _variable(process, "HEADRACE_HOME") == str(home())


def _variable(process: psutil.Process, name: str) -> str | None:
    with contextlib.suppress(psutil.Error, OSError):
        return process.environ().get(name)
    return None


def listen(preferred: int, patience: float = 0.0) -> socket.socket:
    """A socket that listens on the loopback, on the preferred port if that becomes free in time.

    The kernel frees the port of a killed process when its last thread has ended.
    """
    deadline = time.monotonic() + patience
    while True:
        with contextlib.suppress(OSError):
            return socket.create_server(("127.0.0.1", preferred))
        if time.monotonic() > deadline:
            return socket.create_server(("127.0.0.1", 0))
        time.sleep(0.02)


def temporary_folder() -> Path:
    """A folder private to the user with a short path, the same for all of their homes."""
    folder = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
    # Ray's folder in it, 13 longer, may have 40 characters: a socket's path has an upper limit.
    if len(str(folder)) > LONGEST:
        folder = Path("/tmp") / folder.name  # noqa: S108
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    about = folder.lstat()
    private = stat.S_ISDIR(about.st_mode) and not about.st_mode & OF_OTHERS
    if private and about.st_uid == os.getuid():
        return folder
    return _another(folder.parent)  # someone else took the name, or may put links there


@cache
def _another(parent: Path) -> Path:
    return Path(tempfile.mkdtemp(prefix="headrace-", dir=parent))


def tail(log: str, lines: int = TAIL_LINES) -> str:
    """The last lines of a log file."""
    try:
        text = Path(log).read_text(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:])
