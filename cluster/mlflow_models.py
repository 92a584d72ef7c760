"""Models in MLflow: each belongs to the run that trained it; one that stands for its recipe is also
a version of a registered model, with its evaluation as tags. Nothing is copied.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from mlflow.entities import RunTag
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from cluster.tracking import sent

DIGITS = 6
LOGGED = "headrace.logged_model"  # a registry in a database keeps no id of it


class NotYet(Exception):
    """What an event is about has not been sent yet."""


def log_model(
    client: MlflowClient, run_id: str, experiment_id: str, event: Mapping[str, Any]
) -> None:
    """Tell of the model that a run made."""
    about, path = event["model"], event["model"]["source"]
    tags = {"mlflow.model.isExternal": "true", "headrace.path": path}
    name = re.sub(r"[^\w\- ]", "_", Path(path).name)[:250]
    model = client.create_logged_model(experiment_id, name, run_id, tags)
    client.finalize_logged_model(model.model_id, "READY")
    client.log_batch(run_id, tags=[RunTag("headrace.model", path)])
    if event.get("registered") and not versions(client, run_id):
        tags = {"headrace.path": path, "headrace.digest": about["digest"], LOGGED: model.model_id}
        _register(client, str(event["registered"]), run_id, model.model_id, tags)


def _register(
    client: MlflowClient, name: str, run_id: str, model_id: str, tags: dict[str, str]
) -> None:
    with suppress(MlflowException):  # it is there, or the next call tells why it cannot be
        client.create_registered_model(name)
    version = client.create_model_version(
        # A name for "in that run": a server takes no path of ours, and nothing lies with it.
        name, f"runs:/{run_id}", run_id, tags, await_creation_for=0, model_id=model_id
    )  # fmt: skip
    shown = json.dumps([{"name": name, "version": int(version.version)}])
    client.set_logged_model_tags(model_id, {"mlflow.modelVersions": shown})


def log_scores(client: MlflowClient, journals: Path, event: Mapping[str, Any]) -> None:
    """Tell of the evaluation of a model that was registered.

    Raises NotYet while there is something of the model's run to be sent.
    """
    found = versions(client, event["of"])
    if not found and _waits(journals, event["journal"]):
        raise NotYet(f"the model of run {event['of']} has not been sent")
    for version in found:
        for key, value in event["scores"].items():
            client.set_model_version_tag(version.name, version.version, key, f"{value:.{DIGITS}g}")
            client.log_metric(event["of"], key, value, model_id=version.tags[LOGGED])


def versions(client: MlflowClient, run_id: str) -> list[ModelVersion]:
    """The registered versions of the model that a run made."""
    return list(client.search_model_versions(f"run_id = '{run_id}'"))


def _waits(journals: Path, key: str) -> bool:
    paths = journals.glob(f"{key}.*.jsonl")
    return any(path.stat().st_size > sent(path).get("offset", 0) for path in paths)
