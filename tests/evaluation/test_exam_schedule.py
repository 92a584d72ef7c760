"""Exams as a Prefect flow: new models answer them, on a schedule, and nothing is done twice."""

import json
import shutil
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from cluster import services
from cluster.deployments import deployed
from tests.prefect_api import prefect_api


@pytest.fixture
def exam(tmp_path: Path, shared_home: Path) -> Path:
    services.up()
    rows = [{"question": "def", "choices": ["a", "b"], "answer": n} for n in (0, 1)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "scheduled.yaml"
    path.write_text("name: scheduled\nkind: choice\nrows: rows.jsonl\n")
    return path


def save_checkpoint(tiny: Any, folder: Path) -> dict[str, Any]:
    """A model folder that is no artifact, unlike any of another name; its configuration."""
    shutil.copytree(tiny.model.path, folder, dirs_exist_ok=True)
    (folder / "artifact.json").unlink(missing_ok=True)
    about: dict[str, Any] = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(about | {"checkpoint": folder.name}))
    return about


def test_each_new_checkpoint_sits_once(
    tiny: Any, tmp_path: Path, exam: Path, shared_home: Path
) -> None:
    from flows.exams import PAGE, exams

    checkpoints = tmp_path / "checkpoints"

    def new_results() -> int:
        state = exams(str(checkpoints), [str(exam)], return_state=True)
        return int(state.result())

    for new, name in ((1, "step-1"), (0, "step-1"), (1, "step-2")):
        about = save_checkpoint(tiny, checkpoints / name)
        assert new_results() == new
    page = (shared_home / PAGE).read_text()
    assert "step-1" in page and "step-2" in page
    (checkpoints / "step-2" / "config.json").write_text(json.dumps(about | {"checkpoint": 3}))
    (checkpoints / "step-2" / "model.safetensors").write_bytes(b"torn")
    state = exams(str(checkpoints), [str(exam)], return_state=True)
    assert state.is_failed() and "scheduled, step-2" in str(state.message)


def test_the_schedule_is_a_deployment_with_its_paths(exam: Path, shared_home: Path) -> None:
    from flows.exams import deploy_exams

    found = deploy_exams("all", [exam], "*/15 * * * *", None, 4, None)
    assert found["deployment"] == "headrace-exams/all-scheduled"
    assert found["next_run"][14:16] in ("00", "15", "30", "45")
    with prefect_api() as server:
        about = server.get("/deployments/name/headrace-exams/all-scheduled").json()
    assert about["parameters"]["paths"] == [str(exam)]
    assert about["entrypoint"] == "flows.exams.exams"
    assert deployed(UUID(about["id"])).folder == Path.cwd()
    with prefect_api() as server:  # no run of it may start while other tests go on
        server.delete(f"/deployments/{about['id']}").raise_for_status()


@pytest.mark.slow
def test_the_worker_puts_what_is_new_to_the_exam_every_minute(
    tiny: Any, tmp_path: Path, exam: Path, shared_home: Path
) -> None:
    from flows.exams import deploy_exams

    checkpoints = tmp_path / "saved"
    save_checkpoint(tiny, checkpoints / "minute-1")
    deployed = deploy_exams(str(checkpoints), [exam], "* * * * *", None, 4, None)
    with prefect_api() as server:
        about = server.get(f"/deployments/name/{deployed['deployment']}").json()
        wanted = {
            "deployments": {"id": {"any_": [about["id"]]}},
            "flow_runs": {"state": {"type": {"any_": ["COMPLETED", "FAILED", "CRASHED"]}}},
            "sort": "EXPECTED_START_TIME_ASC",
        }
        ended: list[str] = []
        while len(ended) < 3:
            time.sleep(1)
            runs = server.post("/flow_runs/filter", json=wanted).raise_for_status().json()
            if len(runs) > len(ended) == 0:
                save_checkpoint(tiny, checkpoints / "minute-2")
            ended = [run["state"]["message"] for run in runs]
        server.delete(f"/deployments/{about['id']}").raise_for_status()
    assert ended[:3] == ["1 new results", "1 new results", "0 new results"]
