"""Keeps MLflow's server to the artifacts of the home, whatever place a request names.

It would else read and write any file of the user: an experiment may lie anywhere, and its folder
may be a symbolic link.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread, current_thread
from typing import Any

from mlflow.exceptions import MlflowException
from mlflow.server.handlers import _tracking_store_registry as stores
from mlflow.store.artifact.artifact_repo import ArtifactRepository
from mlflow.store.artifact.artifact_repository_registry import (
    _artifact_repository_registry as repositories,
)
from mlflow.store.artifact.local_artifact_repo import LocalArtifactRepository
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from mlflow.tracing.utils.artifact_utils import TRACE_DATA_FILE_NAME
from mlflow.utils.uri import get_uri_scheme

from cluster.home import subfolder

REFERENCES = ("mlflow-artifacts", "runs", "models")
"""Schemes of addresses that MLflow looks up, `runs:/ID/path`: where they lead is checked then."""


class HomeArtifacts(LocalArtifactRepository):
    """A folder of artifacts in the home, and nothing that a symbolic link in it leads to."""

    def __init__(self, artifact_uri: str, *arguments: Any, **options: Any):
        super().__init__(artifact_uri, *arguments, **options)
        self._check()

    def delete_artifacts(self, artifact_path: str | None = None) -> None:
        """Remove a file or folder."""
        self._check(artifact_path)
        super().delete_artifacts(artifact_path)

    def download_trace_data(self) -> dict[str, Any]:
        """The spans of a trace."""
        self._check(TRACE_DATA_FILE_NAME)
        return super().download_trace_data()

    def _check(self, path: str | None = None) -> None:
        if not Path(self.artifact_dir, path or "").resolve().is_relative_to(artifacts()):
            raise _refusal(self.artifact_uri)


class HomeExperiments(SqlAlchemyStore):
    """The tracking store of the home, which has no experiment whose artifacts are elsewhere."""

    def create_experiment(
        self, name: str, artifact_location: str | None = None, tags: Any = None
    ) -> str:
        """Create an experiment; its id."""
        if artifact_location and get_uri_scheme(artifact_location) not in REFERENCES:
            repositories.get_artifact_repository(artifact_location)
        return str(super().create_experiment(name, artifact_location, tags))


def artifacts() -> Path:
    """The folder of the artifacts that MLflow keeps in this home."""
    return subfolder("mlflow/artifacts").resolve()


def confine(sending: Thread) -> None:
    """Let this process open artifacts of the home alone; but the thread that sends what was
    tracked goes where the user's own settings lead it.
    """
    stores.register("sqlite", _home_store)
    for scheme, opened in [*repositories.get_registered_artifact_repositories().items()]:
        if scheme not in REFERENCES:
            confined = HomeArtifacts if scheme in ("", "file") else _elsewhere
            repositories.register(scheme, partial(_open, sending, opened, confined))


def _home_store(store_uri: str, artifact_uri: str) -> HomeExperiments:
    return HomeExperiments(store_uri, artifact_uri)


def _open(
    sending: Thread,
    sender: Callable[..., ArtifactRepository],
    server: Callable[..., ArtifactRepository],
    uri: str,
    **options: Any,
) -> ArtifactRepository:
    return (sender if current_thread() is sending else server)(uri, **options)


def _elsewhere(uri: str, **_: Any) -> ArtifactRepository:
    """Refuse a place of another kind, `s3://`: MLflow would ask with the user's own credentials."""
    raise _refusal(uri)


def _refusal(uri: str) -> MlflowException:
    return MlflowException.invalid_parameter_value(
        f"{uri} is not below {artifacts()}: this server keeps and shows what is in the home alone"
    )
