"""The page of one run, made from its record: who ran what and where, links, stages and what they
took, the recipe. The report has the results; this has what differs from run to run.
"""

import posixpath
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from cluster.runs import RunRecord, StageRecord
from tasks.report.template import fill
from tasks.report.words import duration, number, size

View = dict[str, Any]
LINKS = {
    "report": "the report in MLflow",
    "members": "losses of its members side by side",
    "mlflow": "the run in MLflow",
    "prefect": "the flow run in Prefect",
}
"""What the links of a run are called, in this order."""
FIGURES: Mapping[str, tuple[str, Callable[[float], str]]] = {
    "seconds": ("time", duration),
    "device_hours": ("time of devices", lambda hours: duration(3600 * hours)),
    "cost": ("cost", lambda usd: f"{usd:.2f} USD"),
    "bytes_written": ("written", size),
    "judge_tokens": ("tokens of a judge", number),
    "joules": ("energy", lambda joules: f"{number(joules)} J"),
}
"""What the figures of a plan are called, and how they are written."""
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast, where there is one
RESOURCES = ("cpu_seconds", "bytes_per_second", "peak_bytes")


def render(record: RunRecord) -> str:
    """The page as HTML."""
    return fill("run.html.j2", view(record))


def view(record: RunRecord) -> View:
    """What the template shows."""
    built = [stage for stage in record.stages if stage.state == "built"]
    return {
        "id": record.id,
        "recipe": record.recipe.get("name", ""),
        "goal": record.goal,
        "status": record.status,
        "started": record.started[:16].replace("T", " "),
        "seconds": record.seconds,
        "links": links(record.urls),
        "builders": builders(record.stages),
        "built": bool(built),
        "report": _beside(record),
        "source": list(record.source.items()),
        "libraries": list(record.libraries.items()),
        "states": _states(record.stages),
        "stages": [_row(stage) for stage in record.stages],
        "failures": [(s.name, s.error) for s in record.stages if s.state == "failed"],
        "work": sum(stage.seconds for stage in built),
        "cpu": sum(stage.resources.get("cpu_seconds", 0.0) for stage in built),
        "peak": max((stage.resources.get("peak_bytes", 0.0) for stage in built), default=None),
        "metrics": list(record.metrics.items()),
        "budget": budget(record),
        "yaml": yaml.dump(record.recipe, Dumper=DUMPER, sort_keys=False, allow_unicode=True),
    }


def links(urls: Mapping[str, str]) -> list[tuple[str, str]]:
    """Each link of a run with what it is called."""
    return [(words, urls[name]) for name, words in LINKS.items() if name in urls]


def budget(record: RunRecord) -> list[tuple[str, str, str, str]]:
    """Each figure of the plan that is not nothing: what it was to be, the ends of its band, and
    what it was; a run that has not completed has none.
    """
    plan, rows = record.planned, []
    for key, (words, shown) in FIGURES.items():
        ends = [plan.get(f"{key}{end}") for end in ("", "_low", "_high")]
        if record.spent and (plan.get(key) or record.spent.get(key)):
            planned, low, high = (shown(end) if end is not None else "–" for end in ends)
            took = record.spent.get(key)
            rows.append((words, planned, f"{low} to {high}", "–" if took is None else shown(took)))
    return rows


def builders(stages: Sequence[StageRecord]) -> dict[str, list[str]]:
    """The runs that built what this one found, each with the names of those stages."""
    found: dict[str, list[str]] = {}
    for stage in stages:
        if stage.built_by:
            found.setdefault(stage.built_by, []).append(stage.name)
    return found


def _beside(record: RunRecord) -> str | None:
    """The report as seen from the page, which lies in the same home; the home may be moved."""
    if not (record.report and record.page):
        return record.report
    return posixpath.relpath(record.report, posixpath.dirname(record.page))


def _states(stages: Sequence[StageRecord]) -> str:
    """`3 built, 20 cached`."""
    counts = Counter(stage.state for stage in stages)
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no stage"


def _row(stage: StageRecord) -> View:
    about = stage.model_dump(include={"name", "state", "seconds", "why", "found"})
    about |= {name: stage.resources.get(name) for name in RESOURCES}
    about["planned"] = stage.planned.get("seconds")
    return about | {"artifact": stage.artifact and "/".join(stage.artifact.split("/")[-2:])}
