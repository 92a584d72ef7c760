"""The `headrace` command as from a shell, in the process of the test, which has it imported.

    done = headrace("plan", "smoke", "--json", folder=tmp_path, HEADRACE_HOME=str(tmp_path))

A process of its own takes one to six CPU seconds to import what a command needs; it is for what
only a process shows: what is imported, signals, an exit in the middle.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO
from unittest import mock

from flows import cli


def headrace(
    *arguments: str, folder: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run it in a folder, with further variables; what it printed and its exit status."""
    command = ["headrace", *arguments]
    with contextlib.ExitStack() as stack:
        out, err = (stack.enter_context(tempfile.TemporaryFile("w+")) for _ in "ab")
        stack.enter_context(mock.patch.dict(os.environ, variables))
        stack.enter_context(mock.patch.object(sys, "argv", command))
        stack.enter_context(contextlib.chdir(folder or Path.cwd()))
        stack.enter_context(_as_it_was())
        stack.enter_context(_redirected(1, "stdout", out))
        stack.enter_context(_redirected(2, "stderr", err))
        try:
            cli.main()
        except SystemExit as stop:
            status = int(stop.code or 0)
        for name in ("stdout", "stderr"):
            getattr(sys, name).flush()
        told = [file.seek(0) or file.read() for file in (out, err)]
    return subprocess.CompletedProcess(command, status, *told)


@contextlib.contextmanager
def _as_it_was() -> Iterator[None]:
    """What the command sets for its whole process."""
    logger = logging.getLogger("headrace")
    mask, handler, handlers = os.umask(0o077), signal.getsignal(signal.SIGTERM), logger.handlers[:]
    propagate, raises = logger.propagate, logging.raiseExceptions
    try:
        yield
    finally:
        os.umask(mask)
        signal.signal(signal.SIGTERM, handler)
        logger.handlers[:] = handlers
        logger.propagate, logging.raiseExceptions = propagate, raises


@contextlib.contextmanager
def _redirected(number: int, name: str, file: IO[str]) -> Iterator[None]:
    """The stream and its file number, which a command moves itself."""
    getattr(sys, name).flush()
    before = os.dup(number)
    os.dup2(file.fileno(), number)
    try:
        with (
            os.fdopen(os.dup(number), "w", buffering=1) as stream,
            mock.patch.object(sys, name, stream),
        ):
            yield
    finally:
        os.dup2(before, number)
        os.close(before)
