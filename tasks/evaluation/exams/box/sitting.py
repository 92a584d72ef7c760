"""The two processes of the box: one has the tests and tells how they ended, one has the answer.

The answer's is started before the tests are read, so that they are nowhere in its memory; what it
prints and reads goes through the streams of the tests'. Started by `sandbox.run_code`; needs the
standard library only.

    parent - launcher - tests (init of the namespaces) - answer
"""

import builtins
import io
import json
import os
import signal
import sys
from typing import Any

from tasks.evaluation.exams.box import walls
from tasks.evaluation.exams.box.wire import OF_ANSWERS, Ended, Wire

EARLY = "the answer ended before its tests did"
MOST_HANDLES = 1 << 16


def main(folder: str, verdict: int) -> None:
    """Fence this process in, and let one below it put the tests on stdin to the code on stdin.

    Its verdict is the last line that it writes to the handle `verdict`: {`passed`}, {`failed`: why}
    or {`refused`: why}.
    """
    sys.set_int_max_str_digits(0)
    try:
        walls.fence(folder)
        if child := os.fork():
            os.waitpid(child, 0)
            return
        walls.keep_to_itself()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        wire = _started(folder)
        if refused := wire.ask("ready"):
            raise OSError(refused)
        walls.shut(folder)
    except (OSError, Ended) as error:
        _tell(verdict, refused=str(error) or EARLY)
        os._exit(1)
    _tell(verdict, failed=EARLY)  # unless it gets to the end
    asked = json.load(sys.stdin)
    _silence()
    _tell(verdict, **_outcome(wire, asked["code"], asked["tests"]))
    os._exit(0)


def _tell(verdict: int, **said: str | bool) -> None:
    os.write(verdict, json.dumps(said).encode() + b"\n")


def _outcome(wire: Wire, code: str, tests: str) -> dict[str, str | bool]:
    """What became of the tests."""
    space: dict[str, Any] = {"__name__": "__main__"}
    try:
        found = wire.ask("run", code)
        # What tests compare with, `abs` or `all`, is Python's.
        space |= {name: found[name] for name in found if not hasattr(builtins, name)}
        exec(compile(tests, "tests", "exec"), space)  # noqa: S102 (the user's own)
    except (Ended, SystemExit):
        return {"failed": EARLY}
    except BaseException as error:
        return {"failed": f"{type(error).__name__}: {error}".removesuffix(": ")}
    return {"passed": True}


def _started(folder: str) -> Wire:
    """The wire to a new process for the answer."""
    (into, answers), (asks, out) = os.pipe(), os.pipe()
    if os.fork() == 0:
        os.close(into)
        os.close(out)
        _answer(folder, asks, answers)
    os.close(answers)
    os.close(asks)
    return Wire(os.fdopen(into, "rb"), os.fdopen(out, "wb"), {"print": _print, "type": _type})


def _print(text: str) -> None:
    sys.stdout.write(text)


def _type(all_: bool) -> str:
    return sys.stdin.read() if all_ else sys.stdin.readline()


def _answer(folder: str, asks: int, answers: int) -> None:
    """The answer's process: nothing of its parent's is open in it but the wire."""
    try:
        low, high = sorted((asks, answers))
        for first, last in ((3, low), (low + 1, high), (high + 1, MOST_HANDLES)):
            os.closerange(first, last)
        _silence()
        Answer(folder, asks, answers).wire.serve()
    finally:
        os._exit(0)


class Answer:
    """What an answer defined, and the wire by which it is asked."""

    def __init__(self, folder: str, asks: int, answers: int):
        self._folder = folder
        services = {"ready": self.ready, "run": self.run, "get": self.get, "set": self.set}
        into, out = os.fdopen(asks, "rb"), os.fdopen(answers, "wb")
        self.wire = Wire(into, out, services, OF_ANSWERS)

    def ready(self) -> str:
        """Shut this process in; why that cannot be done, if so."""
        try:
            walls.shut(self._folder)
        except OSError as error:
            return str(error)
        return ""

    def run(self, code: str) -> dict[str, Any]:
        """Run an answer; what it defined."""
        sys.stdout, sys.stdin = _Printed(self.wire), _Typed(self.wire)
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(code, "answer", "exec"), space)  # noqa: S102 (that is what it is here for)
        return {name: value for name, value in space.items() if not name.startswith("__")}

    def get(self, number: int, name: str) -> Any:
        """An attribute of an object of the answer's."""
        return getattr(self.wire.own[number], name)

    def set(self, number: int, name: str, value: Any) -> None:
        """Set one."""
        setattr(self.wire.own[number], name, value)


class _Printed(io.TextIOBase):
    def __init__(self, wire: Wire):
        self._wire = wire

    def write(self, text: str) -> int:
        self._wire.ask("print", str(text))
        return len(text)


class _Typed(io.TextIOBase):
    def __init__(self, wire: Wire):
        self._wire = wire

    def readline(self, *_: int | None) -> str:
        return str(self._wire.ask("type", False))

    def read(self, *_: int | None) -> str:
        return str(self._wire.ask("type", True))


def _silence() -> None:
    """Let the standard streams lead nowhere."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for handle in range(3):
        os.dup2(nothing, handle)
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
