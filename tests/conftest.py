"""One private home for the whole test run: state, services and ports of its own."""

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before anything of Headrace is imported: no test may touch the user's own home or services.
# The path is short because Ray opens sockets below it.
_HOME = Path(tempfile.mkdtemp(prefix="hr-"))
os.environ["HEADRACE_HOME"] = str(_HOME)
os.environ["PREFECT_PROFILES_PATH"] = str(_HOME / "profiles.toml")
for _name in ("PREFECT_API_URL", "MLFLOW_TRACKING_URI", "RAY_ADDRESS"):
    os.environ.pop(_name, None)

from hypothesis import settings  # noqa: E402

from cluster.environment import prepare  # noqa: E402

prepare()
# An example's first call may compile a kernel. The same examples every time, so that a failure is
# the change's; `--hypothesis-profile=explore` draws new ones.
settings.register_profile("headrace", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("headrace")


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
