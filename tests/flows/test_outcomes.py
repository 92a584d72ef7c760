"""What the record of a stage says of how it ended."""

from pathlib import Path

import pytest
from prefect.states import Crashed
from ray import exceptions

from cluster.errors import BadInput
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft, Store
from flows.outcomes import record_of
from flows.plan.dag import Dag


class Nothing(Settings):
    """A stage without settings."""


@stage(version=1)
def dig(settings: Nothing, draft: Draft) -> None:
    """Never run."""


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (exceptions.WorkerCrashedError(), "its worker process died 3 times"),
        (exceptions.OutOfMemoryError("no"), "Ray ended its worker process for want of memory"),
        (exceptions.NodeDiedError("gone"), "the node that it ran on died"),
        (exceptions.RuntimeEnvSetupError("no such wheel"), "Ray could not carry it out"),
    ],
)
def test_what_ray_gives_up_is_told_by_its_cause(
    tmp_path: Path, error: Exception, words: str
) -> None:
    dag = Dag("toy", Store(tmp_path))
    node = dag.add(dig, settings=Nothing())
    record = record_of(node, Crashed(data=error), [], dag)
    assert record.state == "failed" and not record.bad_input
    assert str(record.error).startswith(words)
    assert "; the same command goes on from its last checkpoint\n" in str(record.error)
    assert type(error).__name__ in str(record.error)


def test_what_ray_passes_on_is_told_as_what_it_was(tmp_path: Path) -> None:
    dag = Dag("toy", Store(tmp_path))
    node = dag.add(dig, settings=Nothing())
    passed = exceptions.RayTaskError("dig", "where", BadInput("hard rock")).as_instanceof_cause()
    record = record_of(node, Crashed(data=passed), [], dag)
    assert (record.error, record.bad_input) == ("hard rock", True)
