"""What stands for a stage in Prefect: a task that builds it or tells why there is nothing to do.

They return `State`, not `State[str]`: pydantic keeps that class in the module that first names it,
which is another in a worker, where it would not be found.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefect import task
from prefect.cache_policies import NO_CACHE
from prefect.states import Cancelled, Completed, State

from cluster.artifact import Artifact
from cluster.mlflow_tracking import settle, stage_tracker
from cluster.node_cache import release
from cluster.placement import Placement
from cluster.prefect_progress import ProgressArtifact
from cluster.stage import build, info
from cluster.store import Spec, Store
from cluster.system_metrics import sampled
from cluster.url_secrets import learn
from flows.plan.work import Work, coldness
from tasks.report.findings import findings
from tasks.tokens.roles import WEIGHT_FILES


@dataclass(frozen=True)
class Call:
    """What a worker needs to build one stage: all of it small, all of it picklable."""

    name: str
    spec: Spec
    function: Callable[..., None]
    literals: dict[str, Any]
    placement: Placement
    root: Path
    tracking_parent: str | None
    forced: bool
    work: Work
    url_secrets: dict[str, str] = field(repr=False)


@task(cache_policy=NO_CACHE, persist_result=False)
def build_stage(call: Call, inputs: dict[str, str | list[str]]) -> State:
    """Build one stage in this process; the name of its artifact, and what it found."""
    learn(call.url_secrets)
    tracker = stage_tracker(call.function, call.name, call.tracking_parent, call.spec.fingerprint)
    store = Store(call.root)
    arguments: dict[str, Any] = {name: _open(store, value) for name, value in inputs.items()}
    progress = ProgressArtifact(call.spec.recipe, call.name)
    try:
        with sampled(tracker):
            artifact = build(
                call.function,
                store,
                spec=call.spec,
                placement=call.placement,
                tracker=tracker,
                on_progress=progress,
                force=call.forced,
                work=call.work | coldness(call.function),
                **arguments,
                **call.literals,
            )
    except BaseException:
        # A stage is cancelled by an interrupt, which is no `Exception`.
        tracker.close("FAILED")
        raise
    finally:
        release()
    progress.finish()
    tracker.results(artifact.manifest.metrics)
    if artifact.manifest.files.keys() & set(WEIGHT_FILES):
        spec = call.spec  # one of several variants or members stands for no recipe
        tracker.model(artifact, None if spec.label else f"{spec.recipe}-{spec.stage}")
    tracker.close()
    if not info(call.function).trains:
        settle(tracker)
    return Completed(message=findings(artifact.manifest), data=artifact.name)


@task(cache_policy=NO_CACHE, persist_result=False)
def cached_stage(artifact: str, said: str) -> State:
    """A stage whose artifact is already in the store, and what it found when it was built."""
    return Completed(name="Cached", message=said, data=artifact)


@task(cache_policy=NO_CACHE, persist_result=False)
def skipped_stage(why: str) -> State:
    """A stage that is not run, as one that it needs failed."""
    return Cancelled(name="Skipped", message=why)


def _open(store: Store, value: str | list[str]) -> Artifact | list[Artifact]:
    if isinstance(value, str):
        return store.open(value)
    return [store.open(name) for name in value]
