"""Filters of one's own: a function in a Python file, named in the recipe as `file.py:function`.

The function takes a document's text. True or None keep the document; False rejects it with the
function's name as the reason, a string rejects it as `name:string`. The file's source is the
filter's identity and all that workers get of it: it imports installed packages only.

It runs in a process of its own, so that a document on which it hangs, or crashes, costs that
document and nothing else.
"""

import hashlib
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, NamedTuple

from cluster.errors import BadInput
from cluster.own import read_function
from tasks.data.filtering import sandbox

if TYPE_CHECKING:
    import pyarrow as pa

ERROR, TIMEOUT = "error:", "timeout"
START_SECONDS = 60.0


class CustomFilter(NamedTuple):
    """A function and the source of the file it is in."""

    path: str
    name: str
    source: str

    @property
    def identity(self) -> str:
        """What the filter does: the function and a hash of the source, wherever the file lies."""
        return f"{self.name}:{hashlib.sha256(self.source.encode()).hexdigest()}"


def find(entry: str) -> CustomFilter:
    """The filter that a recipe names.

    Raises BadInput for a file that cannot be read or parsed, and a function it does not have.
    """
    try:
        return CustomFilter(*read_function(entry, "my_filters.py:my_function"))
    except BadInput as error:
        raise BadInput(f"filters.custom: {error}") from error


def identity(entry: str) -> str:
    """The identity of the filter that a recipe names; errors as of `find`."""
    return find(entry).identity


class Runner:
    """Calls a custom filter in its own process; `seconds` is the time a document may take.

    with Runner(find("my_filters.py:no_poems"), seconds=10) as run:
        reasons = run(texts)
    """

    def __init__(self, custom: CustomFilter, seconds: float):
        self.custom, self.seconds = custom, seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> "Runner":
        """Raises BadInput when the file raises as it is imported."""
        self._start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()

    def __call__(self, texts: "pa.Array") -> list[str | None]:
        """The reason to reject each text, or None."""
        return [self._reason(text.as_py()) for text in texts]

    def _reason(self, text: str) -> str | None:
        pipe = self._pipe or self._start()
        try:
            pipe.send(text)
            if pipe.poll(self.seconds):
                reason: str | None = pipe.recv()
                return reason
            reason = TIMEOUT
        except (EOFError, OSError):
            reason = f"{ERROR}ProcessDied"
        self._stop()
        return reason

    def _start(self) -> Connection:
        self._pipe, theirs = Pipe()
        with theirs:
            number = theirs.fileno()
            command = [sys.executable, "-P", str(sandbox.__file__), str(number)]
            self._process = subprocess.Popen(command, pass_fds=[number])
        self._pipe.send(self.custom[:])
        answer = None
        if self._pipe.poll(START_SECONDS):
            try:
                answer = self._pipe.recv()
            except EOFError:
                answer = "the process ended"
        if answer != sandbox.READY:
            self._stop()
            why = answer or f"no answer in {START_SECONDS:g} s"
            raise BadInput(f"filters.custom: {self.custom.path} cannot be imported: {why}")
        return self._pipe

    def _stop(self) -> None:
        if self._process is not None and self._pipe is not None:
            self._process.kill()
            self._process.wait()
            self._pipe.close()
        self._process = self._pipe = None
