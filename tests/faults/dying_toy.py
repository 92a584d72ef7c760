"""A pipeline of two toy stages, in which the tests kill what it needs."""

import os
import signal
import time
from pathlib import Path

from prefect import flow, runtime

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.ray_session import LazyRayTaskRunner
from cluster.runs import StageRecord
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft, Store
from flows.execution import execute
from flows.plan.dag import Dag


class Waits(Settings):
    """What a stage waits for: a file."""

    folder: str
    go: str = "go"


@stage(version=1)
def dig(settings: Waits, draft: Draft) -> None:
    """Tell that it works, and wait until it may end."""
    folder = Path(settings.folder)
    (folder / "digging").write_text(str(os.getpid()))
    while not (folder / settings.go).exists():
        time.sleep(0.1)
    (draft.path / "ditch").write_text("deep")


@stage(version=1)
def die(settings: Waits, draft: Draft) -> None:
    """Be killed, every time."""
    os.kill(os.getpid(), signal.SIGKILL)


@stage(version=1)
def refuse(settings: Waits, draft: Draft) -> None:
    raise BadInput("hard rock")


@stage(version=1)
def fill(ditch: Artifact, settings: Waits, draft: Draft) -> None:
    (draft.path / "water").write_text((ditch.path / "ditch").read_text())


@flow(name="toy-pipeline", task_runner=LazyRayTaskRunner())
def toy_pipeline(root: Path, settings: Waits, deadly: bool) -> tuple[str, list[StageRecord]]:
    """The id of the flow run, and what became of its stages."""
    dag = Dag("toy", Store(root))
    first = dag.add(die if deadly else dig, settings=settings)
    dag.add(fill, ditch=first, settings=settings)
    return str(runtime.flow_run.id), execute(dag, Placement())
