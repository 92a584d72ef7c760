"""What is printed is what was said: no text is read as markup, and no line is lost."""

import ast
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from rich.console import Console
from rich.progress import TextColumn
from rich.text import Text
from typer.main import get_command

from cluster.errors import BadInput
from flows import cli
from flows.views import output, progress
from flows.views.output import Output

ROOT = Path(__file__).parents[2]
HOSTILE = "list[int] of [/x] in [red]a.jsonl[/] :warning: [link=x]y"
# What of Rich is used: each of these takes `Text`, or is told `markup=False`.
KNOWN = {"Console", "Text", "Table", "Column", "Progress", "BarColumn", "TaskID"}
KNOWN |= {"TextColumn", "TimeElapsedColumn"}
SOURCES = sorted(p for name in ("flows", "tasks", "cluster") for p in (ROOT / name).rglob("*.py"))


@pytest.fixture
def stderr(monkeypatch: pytest.MonkeyPatch) -> Iterator[io.StringIO]:
    """What the console of progress and errors prints, on a wide terminal without colours."""
    written = io.StringIO()
    kept = {"markup": False, "highlight": False, "emoji": False}
    wide = Console(file=written, width=200, force_terminal=True, color_system=None, **kept)  # type: ignore[arg-type]
    for module in (output, progress):
        monkeypatch.setattr(module, "console", wide)
    yield written


def rich_names(path: Path) -> Iterator[tuple[str, int, ast.Call | None]]:
    """The names that a file imports from Rich, and the calls of them."""
    tree = ast.parse(path.read_text())
    taken = {
        alias.asname or alias.name: node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "rich"
        for alias in node.names
    }
    yield from ((name, line, None) for name, line in taken.items())
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in taken:
            yield node.func.id, node.lineno, node


def test_nothing_of_rich_that_reads_markup_is_used() -> None:
    for path in SOURCES:
        text = path.read_text()
        assert "from_markup" not in text and "rich.markup" not in text, path
        assert "\nimport rich" not in text, path
        for name, line, call in rich_names(path):
            assert name in KNOWN, f"{path}:{line} uses Rich's {name}: does it read markup?"
            if call is not None and name in ("Console", "TextColumn"):
                off = {k.arg for k in call.keywords if getattr(k.value, "value", None) is False}
                assert "markup" in off, f"{path}:{line}: {name} without markup=False"
        if path != ROOT / "flows" / "views" / "output.py":
            assert "console.status(" not in text and "console.print" not in text, (
                f"{path}: use output.py"
            )


def test_lines_and_tables_show_text_as_it_stands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    out = Output(as_json=False)
    out.say(HOSTILE)
    out.table((HOSTILE, "b"), [("x", HOSTILE), (None, 1)])
    assert capsys.readouterr().out.count(HOSTILE) == 3


def test_a_terminal_takes_no_commands_from_text(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).say("\x1b[2Jgone")
    assert capsys.readouterr().out == "␛[2Jgone\n"
    Output(as_json=False).table(["seen"], [["a\x0e\x08\x9b2J\x00b\r"]])
    assert "a␎␈\ufffd2J␀b␍" in capsys.readouterr().out


def test_a_reader_that_has_seen_enough_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    with pytest.raises(BrokenPipeError):
        Output(as_json=False).say("the first of many lines")


def test_errors_status_and_progress_show_text_as_it_stands(stderr: io.StringIO) -> None:
    assert cli._say(BadInput(HOSTILE), 2) == 2
    assert stderr.getvalue() == f"error: {HOSTILE}\n"
    with output.waiting(HOSTILE):
        pass
    assert stderr.getvalue().count(HOSTILE) == 2
    with progress._bars() as bars:
        cast(TextColumn, bars.columns[0]).get_table_column().width = 100
        bars.add_task(HOSTILE, total=1, figures=HOSTILE)
    assert stderr.getvalue().count(HOSTILE) >= 4


def test_an_error_nobody_foresaw_is_shown_as_it_stands(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise RuntimeError(HOSTILE)

    monkeypatch.setattr(cli, "app", fail)
    assert cli._guarded() == 1
    assert HOSTILE in capfd.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [["run", HOSTILE], ["show", HOSTILE], [HOSTILE], ["judge", "x", "--reading", HOSTILE]],
    ids=["recipe", "artifact", "command", "choice"],
)
def test_what_a_user_wrote_comes_back_in_the_error(
    fresh_home: Path,
    arguments: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    stderr: io.StringIO,
) -> None:
    monkeypatch.setattr(sys, "argv", ["headrace", *arguments])
    assert cli._guarded() == 2
    assert HOSTILE in capfd.readouterr().err + stderr.getvalue()


def test_no_word_of_the_help_is_markup() -> None:
    for name, command in get_command(cli.app).commands.items():  # type: ignore[attr-defined]
        texts = [command.help, *(getattr(p, "help", None) for p in command.params)]
        for text in filter(None, texts):
            assert Text.from_markup(text).plain == text, f"{name}: {text}"


def test_the_json_of_a_failure_has_the_message_as_it_stands(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(BadInput), output.output(as_json=True):
        raise BadInput(HOSTILE)
    assert json.loads(capfd.readouterr().out) == {"status": "failed", "error": HOSTILE}


@pytest.mark.parametrize(
    ("number", "said"),
    [(None, "-"), (5, "5"), (1.2345e6, "1.23M"), (999.4, "999"), (999.6e9, "1T")],
)
def test_numbers_have_three_digits_and_a_prefix(number: float | None, said: str) -> None:
    assert output.human(number) == said
