"""What commands print: one JSON object on stdout with `--json`, readable text otherwise.

All printing goes through here. Text is text: what users and libraries write is never read as
Rich's markup (`[int]`, `[/x]`), as an emoji's name or as a terminal's control sequence.

With `--json`, file descriptor 1 points at stderr while the command works, because libraries
(DeepSpeed among them) and child processes write to stdout as they please.
"""

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cluster.errors import sentence

INTERRUPTED, TERMINATED = 130, 143  # the exit statuses that shells expect


class Terminal(Console):
    """Where text goes as it stands."""

    def __init__(self, stderr: bool = False):
        super().__init__(stderr=stderr, markup=False, highlight=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Rich would exit with 1 here: a reader who has seen enough is none of our failures."""
        raise BrokenPipeError


VISIBLE = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\n\t"}
VISIBLE |= {0x7F: "␡"} | dict.fromkeys(range(0x80, 0xA0), "\ufffd")
"""Control characters, C1's among them, and the signs that stand for them."""
console = Terminal(stderr=True)


def plain(text: object, style: str = "") -> Text:
    """Text to be shown as it stands; what would command a terminal is made visible."""
    return Text(str(text).translate(VISIBLE), style=style)


def tell(text: str, label: str = "", style: str = "") -> None:
    """Print a line on stderr, after a label in a style of its own."""
    start = [plain(label, style)] if label else []
    console.print(*start, plain(text), soft_wrap=True)


def waiting(text: str) -> AbstractContextManager[object]:
    """Show on a terminal that something takes a moment, until the block ends."""
    return console.status(plain(text))


class Output:
    """Collects the result of a command; `result` prints it once."""

    def __init__(self, as_json: bool):
        self.as_json = as_json
        self.value: Any = None

    def result(self, value: dict[str, Any]) -> None:
        """Set the object that `--json` prints."""
        self.value = value

    def say(self, text: str) -> None:
        """Print a line for people; silent with `--json`."""
        if not self.as_json:
            Terminal().print(plain(text), soft_wrap=True)

    def table(self, columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> None:
        """Print a table for people; silent with `--json`."""
        if self.as_json:
            return
        table = Table(box=None, header_style="bold")
        for column in columns:
            table.add_column(plain(column), overflow="fold")  # what is shown can be copied, whole
        for row in rows:
            table.add_row(*(plain("" if cell is None else cell) for cell in row))
        Terminal().print(table)

    def section(
        self,
        columns: Iterable[str],
        rows: Iterable[Iterable[Any]],
        most: int | None = None,
        has_all: str = "--json has",
    ) -> None:
        """A table under an empty line, or nothing where it has no rows; of many the first `most`,
        and what has all.
        """
        every = list(rows)
        if every:
            self.say("")
            self.table(columns, every[:most])
        if most is not None and len(every) > most:
            self.say(f" {len(every) - most} more: {has_all} them")


@contextmanager
def output(as_json: bool) -> Iterator[Output]:
    """The output of one command.

    With `--json` there is always one object: a command that fails, or is ended, without one of its
    own prints `{"status": "failed", "error": ...}`.
    """
    out = Output(as_json)
    if not as_json:
        yield out
        return
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield out
    except BaseException as error:
        if out.value is None:
            out.result({"status": "failed", "error": reason(error)})
        raise
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)
        if out.value is not None:
            print(json.dumps(out.value, default=str, allow_nan=False))


def reason(error: BaseException) -> str:
    """Why a command ended before its time."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    if isinstance(error, SystemExit):
        return "ended by SIGTERM" if error.code == TERMINATED else f"exit status {error.code}"
    return sentence(error) or str(error) or type(error).__name__


def print_failure(error: str) -> None:
    """Print the object of a command that failed before it began."""
    print(json.dumps({"status": "failed", "error": error}))


def human(number: float | None, unit: str = "") -> str:
    """A number in three digits with an SI prefix: 1.24M, 7.30G."""
    if number is None:
        return "-"
    for prefix in ("", "k", "M", "G", "T", "P", "E"):
        if abs(number) < 999.5:  # what three digits round to 1000 has the next prefix
            return f"{number:.3g}{prefix}{unit}"
        number /= 1000
    return f"{number:.3g}Z{unit}"


def estimate(
    value: float | None, ends: Sequence[float | None] | None = None, sign: str = ""
) -> str:
    """A value with its interval, `.81 [.74, .86]`, in as many digits as the interval's width has
    two of, two behind the point at least; `sign` `+` shows one.
    """
    if value is None:
        return "-"
    low, high = ends or (None, None)
    if low is None or high is None:
        return _decimals(value, 2 if abs(value) >= 1 else 3, sign)
    digits = min(6, max(2, 1 - math.floor(math.log10(high - low)))) if high > low else 2
    shown = (_decimals(one, digits, sign) for one in (low, high))
    return f"{_decimals(value, digits, sign)} [{', '.join(shown)}]"


def _decimals(value: float, digits: int, sign: str = "") -> str:
    """`.81` for 0.81, as statistics are printed, and no minus before what rounds to nothing."""
    text = f"{round(value, digits) + 0.0:{sign}.{digits}f}"
    return text.replace("0.", ".", 1) if text.lstrip("+-").startswith("0.") else text


def shorten(text: str, most: int) -> str:
    """At most so many characters, cut between words where there are any."""
    if len(text) <= most:
        return text
    head = text[: most - 1]
    return (head.rsplit(" ", 1)[0] if " " in head else head) + "…"
