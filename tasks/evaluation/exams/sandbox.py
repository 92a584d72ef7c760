"""Code that a model wrote, run against its tests where it can reach nothing else, or not at all.

The answer is alone in a process (`box`): it reads Python and its libraries, writes a few files in
memory, for ten seconds and 1 GiB; no other file, no socket, no other process, and nothing of it
stays. The tests are in another, and ask it; whether they passed it never sees, nor what they
compare with, unless they ask an object of its own for that: `4 in f(2)` shows f's result the 4. It
takes Linux 6.2 or newer with Landlock, which lets users make namespaces.
"""

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile

from cluster.environment import ROOT
from cluster.errors import BadInput
from tasks.evaluation.exams.box.walls import SECONDS

START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from tasks.evaluation.exams.box import sitting; "
    "del sys.path[0]; sitting.main(sys.argv[2], int(sys.argv[3]))"
)


def parses(code: str) -> str | None:
    """None for Python, else why it is none."""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"does not parse: {error}"
    return None


def check_sandbox() -> None:
    """Raise BadInput where no code may be run, with the reason."""
    run_code("", "")


def run_code(code: str, tests: str) -> str | None:
    """None where `code` parses and `tests`, which have what it defines, run to their end; else what
    went wrong. Raises BadInput where this machine does not let it be isolated.
    """
    if fault := parses(code):
        return fault
    with tempfile.TemporaryDirectory() as folder:
        told = _verdict(folder, json.dumps({"code": code, "tests": tests}))
    if told is None:
        return f"still running after {SECONDS:g} s"
    if "refused" in told:
        raise BadInput(
            f"an exam of kind code runs what a model wrote, and cannot isolate it here: "
            f"{told['refused']}. Put it on Linux 6.2 or newer, where users may make namespaces "
            "(kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns), and "
            "not in a container that forbids it"
        )
    return None if told.get("passed") else str(told["failed"])


def _verdict(folder: str, asked: str) -> dict[str, str | bool] | None:
    """What the box says of an answer, as `sitting.main` writes it; None where the time was over."""
    reading, writing = os.pipe()
    with os.fdopen(reading) as reader:
        process = subprocess.Popen(
            [sys.executable, "-I", "-c", START, ROOT, folder, str(writing)],
            env={},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(writing,),
            start_new_session=True,
        )
        os.close(writing)
        try:
            process.communicate(asked.encode(), SECONDS)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end(process)
        lines = reader.read().splitlines() or ['{"refused": "the box did not start"}']
        return dict(json.loads(lines[-1]))


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of it; all in its namespaces ends with their first process."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
