"""The `headrace` command.

    headrace run                # text to an evaluated model, with the shipped quickstart recipe
    headrace --help             # everything else

Exit status: 0 done, 2 bad input, 130 Ctrl-C, 143 SIGTERM, 1 anything else that failed.
"""

import contextlib
import logging
import os
import signal
import sys
import traceback
from importlib.metadata import version
from typing import Annotated

import typer

from cluster.environment import keep_bytecode
from cluster.errors import BadInput, StageFailed, explain
from flows.commands import (
    daily,
    exporting,
    forgetting,
    history,
    laws,
    measures,
    models,
    runs,
    schedule,
    scores,
    services,
    serving,
    store,
    words,
)
from flows.views.output import INTERRUPTED, TERMINATED, print_failure, tell

app = typer.Typer(
    name="headrace",
    help="Raw text to an evaluated language model: one recipe, on a laptop or a cluster.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
COMMANDS = {
    "Pipelines": (
        *(runs.run, runs.plan, runs.data, runs.pretrain, runs.sweep),
        *(daily.init, daily.schema, daily.stop, history.compare, history.logs),
    ),
    "Models": (
        *(models.attention, models.generate, models.adapt, models.embed),
        *(serving.serve, serving.infer, exporting.export, words.vectors),
    ),
    "Scores and scaling laws": (
        *(measures.fit, measures.judge, measures.agree),
        *(scores.score, scores.learn, scores.exam, scores.leaderboard),
        *(laws.forecasts, laws.reproduce, laws.mix),
    ),
    "Services and schedules": (
        *(services.up, services.down, services.status, services.ui, services.doctor),
        *(schedule.deploy, schedule.backfill),
    ),
    "Artifacts": (
        *(store.ls, store.show, store.lineage, store.verify, store.gc),
        *(forgetting.trace, forgetting.erase),
    ),
}
"""Under which heading of `--help` each command stands."""
for heading, commands in COMMANDS.items():
    for command in commands:
        app.command(rich_help_panel=heading)(command)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


@app.callback()
def root(
    asked: Annotated[
        bool,
        typer.Option("--version", help="say which Headrace this is", callback=_say_version),
    ] = False,
) -> None:
    """Raw text to an evaluated language model: one recipe, on a laptop or a cluster."""


def main() -> None:
    """Run the command line and turn what went wrong into a message and an exit status."""
    os.umask(0o077)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # clean up as after Ctrl-C
    with contextlib.suppress(OSError, BadInput):  # a home out of order is no matter for `--help`
        keep_bytecode()
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    logging.raiseExceptions = False  # that a log server fails is told by what it fails for
    ours = logging.getLogger("headrace")
    ours.addHandler(handler)
    ours.propagate = False  # Prefect's handler of all loggers would say it again
    sys.exit(_guarded())


def _guarded() -> int:
    """Run the command; its exit status, however it ended."""
    try:
        status = app(standalone_mode=False)  # None, or the status of an early exit
        if status == INTERRUPTED:  # what Typer makes of Ctrl-C
            raise KeyboardInterrupt
        return status or 0
    except (KeyboardInterrupt, typer.Abort):
        tell("interrupted")
        return INTERRUPTED
    except SystemExit as stop:
        if stop.code == TERMINATED:
            tell("ended by SIGTERM")
        raise
    except BrokenPipeError:  # `headrace ls | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as error:
        return _failed(error)


def _failed(error: Exception) -> int:
    """Say what went wrong; the exit status."""
    if isinstance(error, BadInput):
        return _say(error, 2)
    if isinstance(error, StageFailed):
        return _say(error, 1)
    if isinstance(error, OSError) and (known := explain(error)):
        return _say(*known)
    if hasattr(error, "exit_code") and hasattr(error, "show"):  # a usage error of the parser
        error.show()
        if "--json" in sys.argv and error.exit_code:
            print_failure(error.format_message())  # pyrefly: ignore[missing-attribute]
        return int(error.exit_code)
    traceback.print_exception(error)
    return 1


def _say(error: object, status: int) -> int:
    tell(str(error), "error:", "bold red")
    return status


if __name__ == "__main__":
    main()
