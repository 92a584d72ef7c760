"""One private home for the whole test run: state, services and ports of its own."""

import gc
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# Collecting imports all there is, and none of it is garbage: to look takes a fifth of its time.
gc.disable()

# Before anything of Headrace is imported: no test may touch the user's own home or services.
# The path is short because Ray opens sockets below it.
_HOME = Path(tempfile.mkdtemp(prefix="hr-"))
os.environ["HEADRACE_HOME"] = str(_HOME)
os.environ["PREFECT_PROFILES_PATH"] = str(_HOME / "profiles.toml")
RAY = ("RAY_ADDRESS", "RAY_AUTH_TOKEN_PATH")
# Else PyTorch's compiler starts processes to compile in, each of which imports PyTorch first.
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
# No test waits for what Prefect's server looks for here, every five seconds: 1 % of a core.
for _name in ("LATE_RUNS", "PAUSE_EXPIRATIONS"):
    os.environ[f"PREFECT_SERVER_SERVICES_{_name}_LOOP_SECONDS"] = "60"
# Tests do wait for the worker of deployments to ask for work, which it does every ten seconds.
os.environ["PREFECT_WORKER_QUERY_SECONDS"] = "1"
for _name in ("PREFECT_API_URL", "PREFECT_HOME", "MLFLOW_TRACKING_URI", *RAY):
    os.environ.pop(_name, None)

from hypothesis import settings  # noqa: E402
from xdist.scheduler import LoadScopeScheduling  # noqa: E402

from cluster.environment import has_gpu, prepare  # noqa: E402

prepare()
# An example's first call may compile a kernel. The same examples every time, so that a failure is
# the change's; `--hypothesis-profile=explore` draws new ones.
settings.register_profile("headrace", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("headrace")


# What needs services or Ray, in three parts: each is run whole by one process, with its own. They
# wait for much of their time, for which there is a fourth process, that computes meanwhile.
SERVED = {
    "runs": (
        "tests/end_to_end/",
        "tests/faults/test_daemons_die.py",
        "tests/faults/test_overlap.py",
        "tests/faults/test_strangers.py",
    ),
    "services": (
        "tests/cluster/test_apart.py",
        "tests/cluster/test_capacity.py",
        "tests/cluster/test_deployments.py",
        "tests/cluster/test_fan_out.py",
        "tests/cluster/test_mlflow_artifacts.py",
        "tests/cluster/test_ray_session.py",
        "tests/cluster/test_services.py",
        "tests/evaluation/judging/test_secrets.py",
        "tests/evaluation/test_exam_schedule.py",
        "tests/flows/test_deploy.py",
    ),
    "workers": (
        "tests/data/test_blocks.py",
        "tests/data/test_dedup_workers.py",
        "tests/data/test_text_workers.py",
        "tests/flows/test_budget.py",
        "tests/flows/test_own_stages.py",
        "tests/serving/test_replicas.py",
        "tests/tokens/test_shard_workers.py",
        "tests/training/test_workers.py",
    ),
}


def _part(nodeid: str) -> str | None:
    return next((part for part, files in SERVED.items() if nodeid.startswith(files)), None)


def _turn(item: pytest.Item) -> int:
    """What takes longest comes first."""
    if part := _part(item.nodeid):
        return list(SERVED).index(part)
    return len(SERVED) + (not item.nodeid.startswith(("tests/training/", "tests/cluster/")))


class ByFile(LoadScopeScheduling):
    """With `-n`: whole files, whose fixtures are made once, in the order of the items."""

    def _split_scope(self, nodeid: str) -> str:
        return _part(nodeid) or nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    config.option.loadscopereorder = False
    return ByFile(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)
    if not has_gpu():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no NVIDIA device"))


def pytest_collection_finish() -> None:
    """What is imported stays to the end: no look for garbage goes through its objects, which takes
    two seconds a time.
    """
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Take down what the run started, and its home."""
    from cluster import services

    logging.raiseExceptions = False  # what Prefect's threads still say meets closed streams
    _forget_events()
    services.down()
    shutil.rmtree(_HOME, ignore_errors=True)


def _forget_events() -> None:
    """Else Prefect tries for minutes, event by event, to tell a server that is gone of the flows
    that ran in this process, and this process does not end.
    """
    if worker := sys.modules.get("prefect.events.worker"):

        async def forget(*_: object) -> None:
            pass

        worker.EventsWorker._handle = forget  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def shared_home() -> Path:
    """The home of this test run; services are started in it once, on free ports."""
    return _HOME


@pytest.fixture
def fresh_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of one test's own, without services."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    yield tmp_path / "home"


@pytest.fixture(scope="module")
def ray_session(shared_home: Path) -> None:
    """The Ray session of this process, which every file that needs one finds: starting one, and
    its workers' first imports, take seconds. The process ends it. Its workers find the toys.
    """
    from cluster import ray_session

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent / "cluster"), prepend=os.pathsep)
        ray_session.start()
