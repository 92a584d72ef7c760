"""The page of one run, made from its record: who ran what and where, links, stages and what they
took, the recipe. The report has the results; this has what differs from run to run.
"""

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from cluster.runs import RunRecord, StageRecord
from tasks.report.page import fill

View = dict[str, Any]
LINKS = {
    "report": "the report, in MLflow",
    "members": "losses of its members side by side, in MLflow",
    "mlflow": "the run in MLflow",
    "prefect": "the flow run in Prefect",
}
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
        "links": [(LINKS.get(name, name), url) for name, url in _ordered(record.urls)],
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
        "yaml": yaml.safe_dump(record.recipe, sort_keys=False, allow_unicode=True),
    }


def _ordered(urls: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(name, urls[name]) for name in [*LINKS, *(set(urls) - set(LINKS))] if name in urls]


def _beside(record: RunRecord) -> str | None:
    """The report as seen from the page, which lies in the same home; the home may be moved."""
    if not (record.report and record.page):
        return record.report
    return posixpath.relpath(record.report, posixpath.dirname(record.page))


def _states(stages: Sequence[StageRecord]) -> str:
    """`3 built, 20 cached`."""
    counts: dict[str, int] = {}
    for stage in stages:
        counts[stage.state] = counts.get(stage.state, 0) + 1
    return ", ".join(f"{count} {state}" for state, count in counts.items()) or "no stage"


def _row(stage: StageRecord) -> View:
    about = stage.model_dump(include={"name", "state", "seconds", "why", "found", "built_by"})
    about |= {name: stage.resources.get(name) for name in RESOURCES}
    return about | {"artifact": stage.artifact and "/".join(stage.artifact.split("/")[-2:])}
