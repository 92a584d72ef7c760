"""compare, logs: how two runs differ, what a run said."""

import textwrap
from typing import Annotated, Any

import typer

from cluster.files import write_atomically
from cluster.home import home as root
from cluster.home import subfolder
from flows.commands.options import AsJson, Home, RunName
from flows.views.output import Output, output, shorten
from tasks.report.words import duration

WIDTH = 80
MOST_ROWS = 40
WHY = 120
SAME = "the same: settings, data, losses and scores"


def compare(a: RunName, b: RunName, home: Home = None, as_json: AsJson = False) -> None:
    """How two runs differ: settings, data, losses and scores, here and as a page with the curves.

    headrace compare smoke quickstart                       # the newest run of each recipe
    headrace compare mine-20260101 mine-20260102            # the beginnings of two ids
    """
    from cluster.run_names import find_run
    from flows.views.differences import differences

    with output(as_json) as out:
        records = [find_run(root(), name) for name in (a, b)]
        found = differences(root(), records)
        found["report"] = _page(found)
        out.result(found)
        _show(out, found)


def _page(found: dict[str, Any]) -> str:
    """The page, written; its path."""
    from tasks.report.two_runs import render

    path = subfolder("comparisons") / f"{'-'.join(run['id'] for run in found['runs'])}.html"
    write_atomically(path, render(found))
    return str(path)


def _show(out: Output, found: dict[str, Any]) -> None:
    from tasks.report.two_runs import parting, plain, stage_row

    for name, run in zip("ab", found["runs"], strict=True):
        ended = f"{run['status']}, {duration(run['seconds'])}"
        out.say(f"{name}  {run['id']}\n   goal {run['goal']}, {ended}")
    if found["same"]:
        known = "of what is known nothing differs" if found["notes"] else SAME
        out.say(f"\n{known}")
    for title in ("settings", "placement"):
        _table(out, (title, "a", "b"), [(k, *map(plain, pair)) for k, pair in found[title].items()])
    data = found["data"]
    for path, pairs in data["sources"].items():
        _table(out, (path, "a", "b"), [(k, *map(plain, pair)) for k, pair in pairs.items()])
    stages = [stage_row(name, apart) for name, apart in data["stages"].items()]
    rows = [(row["name"], *row["sides"], shorten(row["why"], WHY)) for row in stages]
    _table(out, ("data", "a", "b", "why"), rows)
    _table(out, ("libraries", "a", "b"), [(k, *pair) for k, pair in data["libraries"].items()])
    _show_metrics(out, found["metrics"])
    curves = found["curves"].items()
    _table(out, ("training", "losses"), [(name, parting(curve)) for name, curve in curves])
    for note in found["notes"]:
        out.say("\n" + textwrap.fill(f"note: {note}", WIDTH, subsequent_indent="  "))
    out.say(f"\nreport   {found['report']}")


def _table(out: Output, columns: tuple[str, ...], rows: list[tuple[Any, ...]]) -> None:
    out.section(columns, rows, MOST_ROWS, "the report and --json have")


def _show_metrics(out: Output, metrics: dict[str, Any]) -> None:
    """Figures of both runs that differ, and how many there are of the others."""
    both = {name: m for name, m in metrics.items() if m["difference"] is not None}
    rows = [
        (name, *map(_figure, m["values"]), _figure(m["difference"], "+"))
        for name, m in both.items()
        if m["difference"]
    ]
    _table(out, ("metrics", "a", "b", "b - a"), rows)
    alone = [sum(m["values"][1 - i] is None for m in metrics.values()) for i in range(2)]
    said = [f"{len(both) - len(rows)} {'more ' if rows else ''}are equal"] if both else []
    said += [f"{n} only {name} has" for name, n in zip("ab", alone, strict=True) if n]
    if metrics:
        out.say(f"{'' if rows else chr(10)} metrics: {', '.join(said)}")


def _figure(value: float, sign: str = "") -> str:
    whole = float(value).is_integer() or abs(value) >= 1e5
    return f"{value:{sign},.0f}" if whole else f"{value:{sign}.5g}"


def logs(
    run: RunName,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on with what it says until the run ends")
    ] = False,
    home: Home = None,
    as_json: AsJson = False,
) -> None:
    """The log of a run, of all its stages wherever they ran, as the Prefect server keeps it."""
    from cluster.run_logs import Line, lines
    from cluster.run_names import find_run

    with output(as_json) as out:
        record = find_run(root(), run)
        found: list[Line] = []
        for line in lines(root(), record, follow):
            found.append(line)
            when = line.time[:19].replace("T", " ")
            out.say(f"{when}  {line.level:7}  {line.stage or 'flow'}: {line.message}")
        about = {"id": record.id, "status": find_run(root(), record.id).status}
        out.result(about | {"lines": [line._asdict() for line in found]})
        if not found:
            out.say(f"the Prefect server has no line of {record.id}")
