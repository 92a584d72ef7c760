"""Code that a model wrote, run against its tests in a process of its own with limits.

The process has a time limit, no more than 1 GiB of memory, small files in a folder of its own, no
environment, no children (but root's may have them until it ends), and no network where the kernel
lets it be taken away. It runs as the same user and can read what that user can: for code of unknown
people, run the whole in a container.
"""

import ast
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SECONDS, MEMORY, FILE = 10, 1 << 30, 1 << 20
NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET of sched.h
PRELUDE = (
    "import ctypes, resource as r; "
    f"getattr(ctypes.CDLL(None), 'unshare', int)({NEW_USER | NEW_NETWORK}); "
    f"r.setrlimit(r.RLIMIT_AS, ({MEMORY}, {MEMORY})); "
    f"r.setrlimit(r.RLIMIT_CPU, ({SECONDS}, {SECONDS})); "
    f"r.setrlimit(r.RLIMIT_FSIZE, ({FILE}, {FILE})); "
    "r.setrlimit(r.RLIMIT_NPROC, (0, 0)); del r, ctypes"
)


def parses(code: str) -> str | None:
    """None for Python, else why it is none."""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"does not parse: {error}"
    return None


def run_code(code: str, tests: str) -> str | None:
    """None where `code` parses and `tests` behind it run to their end, else what went wrong.

    That they did is told by a word drawn for this run and written behind them: code that ends the
    process has not passed.
    """
    if fault := parses(code):
        return fault
    word = secrets.token_hex(16)
    run = f"exec(compile({code + chr(10) + tests!r}, 'answer', 'exec'), {{'__name__': '__main__'}})"
    with tempfile.TemporaryDirectory() as folder:
        script, out, errors = (Path(folder, name) for name in ("script", "out", "errors"))
        script.write_text(f"{PRELUDE}\n{run}\nprint('\\n' + {word!r}, flush=True)\n")
        with script.open("rb") as into, out.open("wb") as to, errors.open("wb") as complaints:
            process = subprocess.Popen(
                [sys.executable, "-I", "-"],
                cwd=folder,
                env={},
                stdin=into,
                stdout=to,
                stderr=complaints,
                start_new_session=True,
            )
            try:
                status = process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                return f"still running after {SECONDS:g} s"
            finally:
                _end(process)
        if status == 0 and out.read_text(errors="replace").endswith(f"\n{word}\n"):
            return None
        last = errors.read_text(errors="replace").strip().rsplit("\n", 1)[-1]
        return last or f"ended with status {status} before its tests did"


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Kill what is left of it, its children included."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
