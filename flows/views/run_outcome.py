"""What became of a run: its stages, where what it made lies, its figures, and its pages."""

from typing import Any

from cluster.home import home
from flows.headline import headline
from flows.views.output import Output, shorten
from tasks.report.words import duration, number

LONGEST_LINK = 200  # characters of one that is printed; the page of the run has all
WHY = 160  # characters of a reason that are shown; --json has all of it


def show_run(out: Output, record: dict[str, Any]) -> None:
    """The stages in a table that fits 80 columns; below it what is too long for one."""
    stages = record["stages"]
    rows = ((s["name"], s["state"], _took(s), shorten(s["why"], WHY)) for s in stages)
    out.table(("stage", "state", "time", "why"), rows)
    made = [s["artifact"] for s in stages if s["artifact"]]
    if made:
        out.say(f"\nbelow {home()}:")
    for path in made:
        out.say(f"  {path.removeprefix(f'{home()}/')}")
    figures = headline(record["metrics"])
    out.section(("figure", "value"), ((name, number(value)) for name, value in figures.items()))
    for stage in [s for s in stages if s["state"] == "failed"][1:]:  # the first is told at the end
        out.say(f"\n{stage['name']} failed too: {stage['error']}")
    out.say(f"\n{record['status']} in {duration(record['seconds'])}")
    for name in ("prefect", "mlflow", "members"):
        if (url := record["urls"].get(name)) and len(url) <= LONGEST_LINK:
            out.say(f"{name:8} {url}")
    for name in ("page", "report"):
        if record[name]:
            out.say(f"{name:8} {record[name]}")


def _took(stage: dict[str, Any]) -> str:
    return duration(stage["seconds"]) if stage["state"] == "built" else ""
