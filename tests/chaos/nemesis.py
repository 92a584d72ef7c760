"""What is done to a run, drawn from a seed: kills, stops, a full disk, a failing judge, cut files.

A fault strikes at a time after the command began, so a seed says what and about when, and not at
which line. One whose victim is not there strikes nothing.
"""

import random
import resource
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.endpoint import Scripted, Server, completion

SERVICES = {"prefect": "cluster.prefect_process", "mlflow": "cluster.mlflow_server"}
VICTIMS = ("command", *SERVICES, "raylet", "gcs_server", "worker")
KINDS = ("kill", "kill", "stop", "stop", "full disk", "judge", "cut")
JUDGE = ("error", "hang", "cut", "nonsense")


@dataclass(frozen=True)
class Fault:
    """One fault: of what kind, on what, when in the course of an undisturbed run (0 to 1), and for
    how many seconds or requests.
    """

    kind: str
    victim: str
    when: float
    length: int

    def __str__(self) -> str:
        return f"{self.kind} {self.victim} at {self.when:.0%} ({self.length})"


def drawn(seed: int) -> list[Fault]:
    """One to three faults."""
    draws = random.Random(seed)
    found = []
    for _ in range(draws.randint(1, 3)):
        kind = draws.choice(KINDS)
        victims = {"full disk": ["all"], "judge": JUDGE, "cut": ["file"]}.get(kind, VICTIMS)
        found.append(
            Fault(kind, draws.choice(victims), draws.uniform(0.05, 0.95), draws.randint(2, 12))
        )
    return sorted(found, key=lambda fault: fault.when)


def processes(home: Path) -> Iterator[psutil.Process]:
    """What runs for a home."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("HEADRACE_HOME") == str(home):
                yield process


def strike(fault: Fault, home: Path, command: int, judge: Server) -> bool:
    """Do it; whether there was anything to do it to."""
    if fault.kind == "judge":
        fail(judge, fault)
        return True
    if fault.kind == "full disk":
        found = [p for p in processes(home) if "python" in p.name() or p.name().startswith("ray::")]
        _fill(found, fault.length)
        return bool(found)
    struck = [p for p in processes(home) if _is(fault.victim, p, command)][:1]
    for process in struck:
        with suppress(psutil.Error):
            process.send_signal(signal.SIGKILL if fault.kind == "kill" else signal.SIGSTOP)
            if fault.kind == "stop":
                _later(fault.length, [process], psutil.Process.resume)
    return bool(struck)


def _is(victim: str, process: psutil.Process, command: int) -> bool:
    with suppress(psutil.Error):
        if victim == "command":
            return process.pid == command
        if victim in SERVICES:
            return SERVICES[victim] in process.cmdline()
        if victim == "worker":
            return process.cmdline()[:1] != [] and process.cmdline()[0].startswith("ray::")
        return process.name() == victim
    return False


def _fill(found: list[psutil.Process], seconds: int) -> None:
    """Let no file grow for some seconds, as on a full disk or at a quota's end."""
    for process in found:
        with suppress(psutil.Error, OSError):
            hard = process.rlimit(resource.RLIMIT_FSIZE)[1]
            process.rlimit(resource.RLIMIT_FSIZE, (1, hard))
    _later(seconds, found, _empty)


def _empty(process: psutil.Process) -> None:
    hard = process.rlimit(resource.RLIMIT_FSIZE)[1]
    process.rlimit(resource.RLIMIT_FSIZE, (hard, hard))


def _later(seconds: int, found: list[psutil.Process], undo: object) -> None:
    def wait() -> None:
        time.sleep(seconds)
        for process in found:
            with suppress(psutil.Error, OSError):
                undo(process)  # type: ignore[operator]

    threading.Thread(target=wait, daemon=True).start()


def fail(judge: Server, fault: Fault) -> None:
    """Let a judge fail at its next requests."""
    first = len(judge.bodies)
    sound = judge.script
    failing = {
        "error": Scripted(503),
        "hang": Scripted(body=b" " * 600, drip_seconds=1.0),
        "cut": Scripted(body=b'{"choices": [', missing=100),
        "nonsense": completion("as I see it, the mill is blue"),
    }[fault.victim]
    judge.script = lambda body, call: failing if call < first + fault.length else sound(body, call)


def cut(home: Path, seed: int) -> str:
    """Cut one file of an artifact in two, and keep the first half; its name."""
    files = sorted(path for path in (home / "artifacts").rglob("*") if path.is_file())
    files = [path for path in files if path.stat().st_size > 1 and "/." not in str(path)]
    if not files:
        return ""
    chosen = random.Random(seed).choice(files)
    with chosen.open("r+b") as file:
        file.truncate(chosen.stat().st_size // 2)
    return str(chosen.relative_to(home))
