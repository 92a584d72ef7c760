"""The process that a custom filter runs in: texts come in on a pipe, reasons go out.

Started by `custom.Runner` as `python -P sandbox.py PIPE`; needs the standard library only.
"""

import ctypes
import signal
import sys
from multiprocessing.connection import Connection
from typing import Any

READY = "ready"
OURS = ("flows", "tasks", "model", "cluster")
SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)


def main() -> None:
    """Import the filter's source, say so, and answer until the pipe is closed."""
    # Ray kills a worker when memory runs out: what the filter holds has to go with it.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    pipe = Connection(int(sys.argv[1]))
    path, name, source = pipe.recv()
    sys.stdout = sys.stderr
    try:
        names: dict[str, Any] = {"__name__": "custom_filter", "__file__": path}
        exec(compile(source, path, "exec"), names)  # noqa: S102 (what the recipe asks for)
    except BaseException as error:
        pipe.send(f"{type(error).__name__}: {error}{_ours(error)}")
        return
    pipe.send(READY)
    while True:
        try:
            text = pipe.recv()
        except EOFError:
            return
        pipe.send(_reason(names[name], name, text))


def _ours(error: BaseException) -> str:
    """Where Headrace's package was found instead of the user's, so much said."""
    missing = getattr(error, "name", None) if isinstance(error, ImportError) else None
    if isinstance(error, AttributeError):
        missing = getattr(error.obj, "__name__", None)
    name = str(missing).split(".")[0]
    if name not in OURS:
        return ""
    return f"; '{name}' is Headrace's own package here: rename yours"


def _reason(function: Any, name: str, text: str) -> str | None:
    try:
        answer = function(text)
        if isinstance(answer, str) and answer:
            return f"{name}:{answer}"
        return None if answer is None or answer else name
    except Exception as error:
        return f"error:{type(error).__name__}"


if __name__ == "__main__":
    main()
