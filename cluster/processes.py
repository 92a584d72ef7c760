"""Background processes that outlive the command that started them."""

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field

from cluster.home import subfolder
from cluster.locks import whoami
from cluster.settings import Record

STOP_SECONDS = 8.0
TAIL_LINES = 15


class Process(Record):
    """A background process: enough to find it again and never take another for it."""

    pid: int
    boot: str = Field(description="boot id of the machine it was started on")
    started: int = Field(description="start time in clock ticks after boot; a reused pid differs")
    url: str | None = None
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
    claim: int | None = None,
) -> Process:
    """Start a command in a session of its own, its output in `$HEADRACE_HOME/logs/NAME.log`.

    `claim` is the open file that claims its port; the process keeps it, the caller loses it.
    """
    log = subfolder("logs") / f"{name}.log"
    if log.exists():
        log.replace(log.with_suffix(".previous.log"))
    with log.open("wb") as output:
        child = subprocess.Popen(
            command,
            env=os.environ | dict(variables),
            cwd=subfolder("logs"),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            umask=0o077,
            pass_fds=() if claim is None else (claim,),
        )
    if claim is not None:
        os.close(claim)
    return Process(
        pid=child.pid,
        boot=str(whoami()["boot"]),
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
            if not group_alive(process.pid):
                return how
            time.sleep(0.05)
    return "does not end"


def start_time(pid: int) -> int | None:
    """Clock ticks from boot to the start of a process; None when it is gone or a zombie."""
    fields = _stat(pid)
    return None if fields is None else int(fields[19])


def group_alive(group: int) -> bool:
    """Whether any process of a group runs; zombies do not count."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    return any(fields[2] == str(group) for pid in pids if (fields := _stat(pid)))


def _stat(pid: int) -> list[str] | None:
    """The fields of `/proc/PID/stat` from the state on; None when it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rsplit(")", 1)[1].split()  # the command name before it may hold anything
    return None if fields[0] == "Z" else fields


def claim_port(preferred: int) -> tuple[int, int]:
    """A free loopback port, the preferred one if possible, and an open file that claims it.

    A server takes seconds to bind its port. Until then the kernel lock on the file, which `spawn`
    hands on to the server, keeps other homes of this user off it.
    """
    for wanted in (preferred, 0):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", wanted))
            port = int(probe.getsockname()[1])
            claim = os.open(temporary_folder() / f"port-{port}", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(claim)
                continue
            return port, claim
    raise OSError("no free port on 127.0.0.1")


def temporary_folder() -> Path:
    """A folder private to the user with a short path, the same for all of their homes."""
    folder = Path(tempfile.gettempdir()) / f"headrace-{os.getuid()}"
    if len(str(folder)) > 36:
        folder = Path("/tmp") / folder.name  # noqa: S108
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if folder.stat().st_uid != os.getuid():  # someone else took the name
        return Path(tempfile.mkdtemp(prefix="headrace-", dir=folder.parent))
    return folder


def tail(log: str) -> str:
    """The last lines of a log file."""
    try:
        text = Path(log).read_text(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-TAIL_LINES:])
