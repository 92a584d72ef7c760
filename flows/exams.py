"""The Prefect flow of exams: every model named sits every exam that it has not sat yet.

    headrace exam all exams/*.yaml                          # now
    headrace exam all exams/*.yaml --cron "*/15 * * * *"    # and whenever a new model is there

Results are artifacts, found again by what they were made from: a run that finds nothing new ends in
seconds, and one that was killed goes on where it was.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_markdown_artifact
from prefect.cache_policies import NO_CACHE
from prefect.states import Completed, Failed, State

from cluster.deployments import Schedule, deploy
from cluster.home import home
from cluster.services import up
from cluster.store import Store
from tasks.evaluation.exams.results import NamedCandidate, named_candidates, shown, take_exam
from tasks.report.leaderboard import entries, render

PAGE = "leaderboard.html"


@task(cache_policy=NO_CACHE, persist_result=False)
def one_exam(
    candidate: NamedCandidate, exam: Path, concurrency: int, contamination: Path | None
) -> tuple[dict[str, Any], bool]:
    """One exam put to one model, or its result found."""
    artifact, found = take_exam(Store(), candidate, exam, concurrency, contamination)
    return shown(artifact, rows=False), found


@flow(name="headrace-exams", flow_run_name="{models}")
def exams(
    models: str,
    paths: Sequence[str],
    url: str | None = None,
    concurrency: int = 16,
    contamination: str | None = None,
) -> State[Any]:
    """Put every exam to every model that has not taken it; write the leaderboard anew.

    A failure fails the run at its end; the others are done by then.
    """
    up()
    split = Path(contamination) if contamination else None
    lines, failed, new = [], [], 0
    for candidate in named_candidates(Store(), models, url):
        for path in map(Path, paths):
            named = one_exam.with_options(task_run_name=f"{path.stem} {candidate.name}")
            state = named(candidate, path, concurrency, split, return_state=True)
            if state.is_failed():
                failed.append(f"{path.stem}, {candidate.name}: {state.message}")
                continue
            result, found = state.result()
            new += not found
            lines += [
                f"| {result['exam']} | {result['model']} | {name} | {one['value']:.4g} |"
                for name, one in result["results"].items()
            ]
    (home() / PAGE).write_text(render(entries(Store())), encoding="utf-8")
    head = ["| exam | model | figure | value |", "|---|---|---|---|"]
    create_markdown_artifact(key="exams", markdown="\n".join(head + lines))
    if failed:
        return Failed(message="; ".join(failed))
    return Completed(message=f"{new} new results", data=new)


def deploy_exams(
    models: str,
    paths: Sequence[Path],
    cron: str,
    url: str | None,
    concurrency: int,
    contamination: Path | None,
) -> dict[str, Any]:
    """Create or replace the scheduled deployment of these exams; its name and next run."""
    folder = Path(models)
    parameters = {
        "models": str(folder.resolve()) if folder.is_dir() else models,
        "paths": [str(path.resolve()) for path in paths],
        "url": url,
        "concurrency": concurrency,
        "contamination": str(contamination.resolve()) if contamination else None,
    }
    name = "-".join([Path(models).name, *(path.stem for path in paths)])[:100]
    return deploy(
        exams,
        entrypoint="flows.exams.exams",
        name=name,
        schedule=Schedule(cron=cron),
        parameters=parameters,
    )
