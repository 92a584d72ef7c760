"""What MLflow, Prefect and a page in the home show of a run; made from its record, at its end."""

from collections import ChainMap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect import runtime
from prefect.artifacts import create_link_artifact, create_markdown_artifact

from cluster.artifact import Artifact
from cluster.files import write_atomically
from cluster.manifest import parents
from cluster.mlflow_tracking import PipelineRun, journal_key, tracked_as
from cluster.prefect_progress import artifact_key
from cluster.runs import RunRecord, StageRecord, records
from cluster.services import Services
from flows.headline import headline
from tasks.report.run_page import builders, links, render
from tasks.scaling.forecasts import told
from tasks.tokens.roles import WEIGHT_FILES

# Stages whose figures stand for the run; those of others, and of variants, carry the stage's name.
SCORES = {"evaluate", "classify", "answers", "judge"}
# Files of rows that MLflow shows as evaluation tables.
TABLES = {
    "answers": "answers.jsonl",
    **dict.fromkeys(("classify", "regress", "label", "extract"), "predictions.jsonl"),
    "exam": "rows.jsonl",
    "infer": "answers.jsonl",
    "judge": "judge.jsonl",
}
DATASETS = ("read", "shards")
OVERLAID = ("sweep", "pretrain")  # members and variants, which have names of their own behind a /
Artifacts = Mapping[str, Artifact]
EVALUATIONS = {"evaluate", "answers", "judge", "exam"}
MOST_NAMES = 12


def urls(tracked: PipelineRun, services: Services) -> dict[str, str]:
    """Where Prefect and MLflow show the run of this flow."""
    flow_url = f"{services.prefect_ui}/runs/flow-run/{runtime.flow_run.id}"
    found = {"prefect": flow_url, "mlflow": tracked.url(services.mlflow_ui)}
    return {name: url for name, url in found.items() if url}


def origin(record: RunRecord) -> dict[str, str]:
    """Who runs what, with which source, as the tags that MLflow shows it by."""
    source = record.source
    found = {
        "mlflow.user": source.get("user"),
        "mlflow.source.name": source.get("command"),
        "mlflow.source.type": "JOB" if runtime.deployment.id else "LOCAL",
        "mlflow.source.git.commit": source.get("commit"),
        "headrace.goal": record.goal,
        "headrace.host": source.get("host"),
        "prefect.flow_run_id": record.flow_run_id,
    }
    return {key: value for key, value in found.items() if value}


def artifacts_of(stages: Sequence[StageRecord]) -> dict[str, Artifact]:
    """What stages made or found, by their names; the many members of a sweep left out."""
    made = {s.name: s.artifact for s in stages if s.artifact and s.stage != "sweep"}
    return {name: Artifact.load(Path(path)) for name, path in made.items()}


def results(artifacts: Artifacts) -> dict[str, Any]:
    """The run's figures and forecasts, gathered from its artifacts, and the path of its report."""
    metrics: dict[str, float] = {}
    report = None
    for name, artifact in artifacts.items():
        metrics |= _named(name, artifact)
        if artifact.manifest.stage == "report":
            report = str(artifact.path / "report.html")
    return {"metrics": metrics, "forecasts": told(artifacts.values()), "report": report}


def _named(name: str, artifact: Artifact) -> dict[str, float]:
    prefix = "" if name in SCORES else f"{name}."
    return {f"{prefix}{key}": value for key, value in artifact.manifest.metrics.items()}


def tell(
    record: RunRecord,
    root: Path,
    artifacts: Artifacts,
    tracked: PipelineRun,
    services: Services,
) -> RunRecord:
    """Write the page of a run that has ended, end its tracked run; the record with its links."""
    tracked.settle()
    record = record.model_copy(update={"stages": list(map(caught_up, record.stages))})
    page = root / "runs" / f"{record.id}.html"
    links = urls(tracked, services) | _links(record, tracked, services.mlflow_ui)
    record = record.model_copy(update={"urls": links, "page": str(page)})
    write_atomically(page, render(record))
    tracker = tracked.tracker
    if figures := headline(record.metrics):
        tracker.metrics([{"step": 0, **figures}])
    tracker.datasets({name: artifacts[name] for name in DATASETS if name in artifacts})
    for name, artifact in artifacts.items():
        if file := TABLES.get(artifact.manifest.stage):
            tracker.table(f"{name}.json", artifact.path / file)
    for path in (record.report, page):
        if path:
            tracker.file(Path(path))
    tracker.tags({"mlflow.note.content": _note(record, root, services.mlflow_ui)})
    _tell_scores(record, artifacts, tracked)
    tracked.finish("crashed" if record.status == "running" else record.status)
    return record


def caught_up(stage: StageRecord) -> StageRecord:
    """A stage with the tracked run that MLflow had not been told of when the stage ended."""
    if stage.tracking_run or stage.state != "built":
        return stage
    return stage.model_copy(update={"tracking_run": tracked_as(stage.stage, stage.fingerprint)})


def _links(record: RunRecord, tracked: PipelineRun, ui: str | None) -> dict[str, str]:
    """Where MLflow shows the report, and the losses of members beside each other."""
    found: dict[str, str] = {}
    page = tracked.url(ui, "/artifacts/report.html")
    if record.report and page and page != ui:
        found["report"] = page
    several = [s for s in record.stages if s.stage in OVERLAID and "/" in s.name]
    if members := tracked.overlaid(ui, [s.tracking_run for s in several if s.tracking_run]):
        found["members"] = members
    return found


def _note(record: RunRecord, root: Path, ui: str | None) -> str:
    """What MLflow's page of the run says first: links, and which runs built what this one found."""
    found = builders(record.stages)
    lines = [_markdown(record, but="mlflow")]
    known = {run.id: run.urls.get("mlflow", "") for run in records(root) if run.id in found}
    for run, names in found.items():
        _, at, page = known.get(run, "").partition("#")
        url = f"{ui}/#{page}" if ui and at else None  # the server may have moved since
        shown = ", ".join(names[:MOST_NAMES])
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        lines.append(f"{'[' + run + '](' + url + ')' if url else run} built {shown}{more}")
    return "\n\n".join(filter(None, lines))


def _markdown(record: RunRecord, but: str) -> str:
    """The links of a run in a line, but that to where they are shown."""
    found = links({name: url for name, url in record.urls.items() if name != but})
    return " · ".join(f"[{words}]({url})" for words, url in found)


def _tell_scores(record: RunRecord, artifacts: Artifacts, tracked: PipelineRun) -> None:
    """The evaluation of each model that was built or evaluated in this run."""
    stages = {stage.name: stage for stage in record.stages}
    for name, model in artifacts.items():
        run = stages[name].tracking_run
        if run is None or not model.manifest.files.keys() & set(WEIGHT_FILES):
            continue
        about = [n for n, a in artifacts.items() if model.fingerprint in parents(a.manifest)]
        judged = [name, *(n for n in about if artifacts[n].manifest.stage in EVALUATIONS)]
        if any(stages[one].state == "built" for one in judged):
            found = [_named(one, artifacts[one]) for one in judged]
            key = journal_key(model.manifest.stage, model.fingerprint)
            tracked.tracker.scores(run, key, headline(dict(ChainMap(*found))))


def publish(record: RunRecord) -> None:
    """Show the outcome on the flow run's page in the Prefect UI."""
    recipe = record.recipe["name"]
    for name, said in (("report", "its report, in MLflow"), ("mlflow", "its run in MLflow")):
        if url := record.urls.get(name):
            about = f"{record.id}: {said}"
            key = artifact_key(recipe, name)
            create_link_artifact(key=key, link=url, link_text=about, description=about)
    figures = [f"| {key} | {value:.5g} |" for key, value in headline(record.metrics).items()]
    stages = [
        f"| {s.name} | {s.state} | {f'{s.seconds:.1f}' if s.state == 'built' else ''} "
        f"| {_cell(s.why)} | {_cell(s.error or s.found)} |"
        for s in record.stages
    ]
    parts = [
        _markdown(record, but="prefect"),
        "\n".join(["| figure | value |\n|---|---|", *figures]) if figures else "",
        "\n".join(["| stage | state | seconds | why | found |\n|---|---|---|---|---|", *stages]),
        f"The page of this run is `{record.page}`" if record.page else "",
    ]
    text = "\n\n".join(filter(None, parts))
    about = f"{record.id}: what became of it"
    create_markdown_artifact(key=artifact_key(recipe, "run"), markdown=text, description=about)


def _cell(text: str) -> str:
    """Text that stays in its cell of a Markdown table."""
    return " ".join(text.replace("|", "\\|").replace("`", "'").split())
