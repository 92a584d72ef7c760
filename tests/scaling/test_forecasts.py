"""`headrace forecasts`: what runs foretold, held against what came."""

import json
from pathlib import Path

import pytest

from cluster.artifact import Artifact
from cluster.runs import RunRecord
from cluster.stage import build
from cluster.store import Store
from flows.publishing import results
from tasks.scaling.forecasts import coverage, merged
from tasks.scaling.law.stage import fit, forecast
from tests import shell
from tests.scaling.test_forecast import QUICK, grid, run, target

SIZES, LENGTHS = [1e4, 4e4, 1.6e5, 6.4e5], [1e5, 4e5, 1.6e6]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, Artifact]:
    """A law, and the run that it foretold, whose loss turned out far above the band."""
    store = Store(tmp_path_factory.mktemp("store"))
    *runs, held = grid(store, SIZES, LENGTHS, noise=0.002)
    law = build(fit, store, runs=runs, targets=[target(held)], settings=QUICK)
    worse = run(store, "again", 6.4e5, 1.6e6, 2 * held.manifest.metrics["loss"])
    later = law.manifest.model_copy(update={"created": worse.manifest.created})
    earlier = Artifact(law.path, later)
    return law, build(forecast, store, fit=earlier, runs=[worse])


def record(home: Path, *artifacts: Artifact) -> None:
    """A run that ended with these artifacts."""
    found = results({artifact.name: artifact for artifact in artifacts})
    RunRecord.start({"name": "mill"}, "sweep").model_copy(update=found).save(home)


def test_what_a_run_foretold_is_told_with_what_came_of_it(
    tmp_path: Path, made: tuple[Artifact, Artifact]
) -> None:
    law, told = made
    empty = shell.headrace("forecasts", "--json", HEADRACE_HOME=str(tmp_path))
    assert json.loads(empty.stdout) == {"forecasts": [], **coverage([])}
    record(tmp_path, law)
    pending = json.loads(shell.headrace("forecasts", "--json", HEADRACE_HOME=str(tmp_path)).stdout)
    (row,) = pending["forecasts"]
    assert (row["target"], row["by"], row["measured"]) == ("n640000-d1.6e+06", "chinchilla", None)
    assert row["low"] < row["loss"] < row["high"]
    assert pending["coverage"] is None
    record(tmp_path, law, told)
    done = json.loads(shell.headrace("forecasts", "--json", HEADRACE_HOME=str(tmp_path)).stdout)
    (row,) = done["forecasts"]  # the same forecast, now with what came
    assert row["measured"] == pytest.approx(2 * row["loss"], rel=0.02)
    assert (row["inside"], row["made"]) == (False, law.manifest.created)
    assert (done["coverage"], done["n"]) == (0.0, 1)
    said = shell.headrace("forecasts", HEADRACE_HOME=str(tmp_path)).stdout
    assert "0% of 1 bands held" in said and "n640000" in said


def test_bands_that_held_too_seldom_are_said_to() -> None:
    def rows(inside: int, beforehand: bool = True) -> list[dict[str, object]]:
        about = {"law": "a", "by": "tied", "made": "2026", "beforehand": beforehand, "measured": 1}
        return [about | {"target": str(i), "inside": i < inside} for i in range(40)]

    assert coverage(rows(36))["holds"] is True
    assert coverage(rows(28))["holds"] is False
    assert coverage(rows(28, beforehand=False))["coverage"] is None
    assert len(merged([rows(3), rows(5)])) == 40
