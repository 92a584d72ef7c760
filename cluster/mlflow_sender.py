"""Sends the journals of `cluster.tracking` to MLflow; runs inside the background MLflow process.

Sending may stop anywhere and start again: what was sent is remembered by byte offset, and MLflow
takes the same figure of the same moment twice without keeping it twice.
"""

import json
import logging
import math
import re
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from mlflow.entities import (
    Dataset,
    DatasetInput,
    InputTag,
    Metric,
    Param,
    RunTag,
)
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS

from cluster.databases import create_database
from cluster.environment import own_store
from cluster.files import write_atomically
from cluster.mlflow_models import log_model, log_scores
from cluster.tracking import begun, ended, events, sent
from cluster.url_secrets import put_back

# MLflow takes up to 1000 figures, and up to 100 parameters, in one request.
BATCH, RETRY_SECONDS = 1000, 10.0
KEEP_SECONDS = 7 * 86400
TABLE_ROWS = 10_000
log = logging.getLogger("headrace.tracking")


class Sender:
    """Sends the journals of a folder, each to the tracking store it names, else to `uri`."""

    def __init__(self, folder: Path, uri: str, artifacts: Path):
        self.folder, self.uri, self.artifacts = folder, uri, artifacts
        self._stores: dict[str, TrackingStore] = {}
        self._retry_at: dict[Path, float] = {}

    def store(self, uri: str | None = None) -> "TrackingStore":
        """The tracking store at an address."""
        uri = uri or self.uri
        if uri not in self._stores:
            if uri == own_store():
                create_database(Path(uri.removeprefix("sqlite:///")), "mlflow", make_database)
            self._stores[uri] = TrackingStore(put_back(uri), self.artifacts, self.folder)
        return self._stores[uri]

    def run(self, poll: float = 0.5) -> None:
        """Send for ever."""
        self.remove_old()
        while True:
            self.send_all()
            time.sleep(poll)

    def send_all(self) -> None:
        """Send what is new; a journal that cannot be sent is tried again after ten seconds."""
        for path in sorted(self.folder.glob("*.jsonl")):
            if time.monotonic() < self._retry_at.get(path, 0.0):
                continue
            try:
                self._send(path)
            except Exception:  # a tracking store may fail in any way; the journal keeps the rows
                log.exception("%s was not sent; trying again", path)
                self._retry_at[path] = time.monotonic() + RETRY_SECONDS

    def remove_old(self) -> None:
        """Remove journals that were sent and ended a week ago."""
        for path in self.folder.glob("*.jsonl"):
            old = time.time() - path.stat().st_mtime > KEEP_SECONDS
            if old and ended(path) and sent(path).get("offset") == path.stat().st_size:
                # In this order: a journal without its offset would
                # be sent again, as a run of its own.
                path.unlink()
                path.with_suffix(".sent").unlink()

    def _send(self, path: Path) -> None:
        """Send what a journal has beyond the offset that was sent, and note each event sent."""
        known = sent(path)
        if path.stat().st_size == known.get("offset", 0):
            return
        for event, offset in joined(events(path, known.get("offset", 0))):
            if "start" in event:
                run = self._begin(event, known)
                if run is None:  # its pipeline has not been sent yet
                    return
                known |= run
            else:
                store = self.store(known.get("to"))
                store.try_to_pass_on(known["run_id"], known["experiment_id"], event)
            known["offset"] = offset
            # After each event: a kill makes one of them, not a whole journal, come twice.
            write_atomically(path.with_suffix(".sent"), json.dumps(known))

    def _begin(self, event: dict[str, Any], known: dict[str, Any]) -> dict[str, Any] | None:
        """Create the run of a journal, or set the one it has to running again."""
        about = event["start"]
        if "run_id" in known:  # a run goes on where it is, whatever store is named now
            self.store(known.get("to")).client.update_run(known["run_id"], status="RUNNING")
            return {}
        to = about.get("to")
        tags = {key: value for key, value in about.get("tags", {}).items() if value}
        if parent := about.get("parent"):
            path = self.folder / f"{parent}.1.jsonl"
            pipeline = sent(path)
            if not pipeline:
                return None
            tags = _origin(path) | tags | {"mlflow.parentRunId": pipeline["run_id"]}
            to, experiment = pipeline.get("to"), pipeline["experiment_id"]
        else:
            experiment = self.store(to).experiment(about.get("experiment", "headrace"))
        run = self.store(to).client.create_run(experiment, event["time"], tags, about["name"])
        found = {"run_id": run.info.run_id, "experiment_id": experiment}
        return found | ({"to": to} if to else {})


def make_database(path: Path) -> None:
    """MLflow's tables, empty: the first experiment, which MLflow makes with them, names this
    folder; it makes another where there is none.
    """
    MlflowClient(f"sqlite:///{path}").search_experiments(max_results=1)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("DELETE FROM experiments")


class TrackingStore:
    """An MLflow server or database, and how each event of a journal is told to it."""

    def __init__(self, uri: str, artifacts: Path, journals: Path):
        self.uri, self.artifacts, self.journals = uri, artifacts, journals
        self.client = MlflowClient(uri)

    def experiment(self, name: str) -> str:
        """The id of the experiment of this name, made where there is none."""
        if found := self.client.get_experiment_by_name(name):
            return str(found.experiment_id)
        here = not self.uri.startswith("http")
        return str(
            self.client.create_experiment(name, (self.artifacts / name).as_uri() if here else None)
        )

    def try_to_pass_on(self, run_id: str, experiment_id: str, event: dict[str, Any]) -> None:
        """Pass an event on; one that MLflow will never take must not hold up what follows."""
        try:
            self._pass_on(run_id, experiment_id, event)
        except MlflowException as error:
            if error.error_code != "INVALID_PARAMETER_VALUE":
                raise
            log.error("MLflow refuses %s of run %s: %s", sorted(event), run_id, error)

    def _pass_on(self, run_id: str, experiment_id: str, event: dict[str, Any]) -> None:
        if "params" in event:
            self._params(run_id, event["params"])
        elif "rows" in event:
            for batch in _batches(_metrics(event["rows"])):
                self.client.log_batch(run_id, metrics=batch)
        elif "inputs" in event:
            self.client.log_inputs(run_id, [_dataset(one) for one in event["inputs"]])
        elif "system" in event:
            row = event["system"] | {"step": event["at"], "time": event["time"]}
            self.client.log_batch(run_id, metrics=_metrics([row]))
        elif "model" in event:
            log_model(self.client, run_id, experiment_id, event)
        elif "scores" in event:
            log_scores(self.client, self.journals, event)
        elif "tags" in event:
            self.client.log_batch(run_id, tags=[RunTag(*pair) for pair in event["tags"].items()])
        elif "table" in event:
            self._table(run_id, event["table"], Path(event["rows_of"]))
        elif "file" in event:
            self._file(run_id, Path(event["file"]))
        elif "end" in event:
            self.client.set_terminated(run_id, event["end"], event["time"])

    def _file(self, run_id: str, path: Path) -> None:
        """Copy a file to the run's artifacts, unless it is gone by now."""
        if path.exists():
            self.client.log_artifact(run_id, str(path))

    def _params(self, run_id: str, values: dict[str, str]) -> None:
        """Log parameters that the run does not have; MLflow lets none change."""
        has = self.client.get_run(run_id).data.params
        new = [Param(_key(k), v) for k, v in values.items() if _key(k) not in has]
        for start in range(0, len(new), 100):
            self.client.log_batch(run_id, params=new[start : start + 100])

    def _table(self, run_id: str, name: str, path: Path) -> None:
        """What `MlflowClient.log_table` writes; but that would append the rows again if this was
        stopped in the middle and sent anew.
        """
        if not path.exists():
            log.error("the table %s of run %s is gone: %s", name, run_id, path)
            return
        self.client.log_text(run_id, _split(path), name)
        tags = self.client.get_run(run_id).data.tags
        listed = json.loads(tags.get(MLFLOW_LOGGED_ARTIFACTS, "[]"))
        if (entry := {"path": name, "type": "table"}) not in listed:
            self.client.set_tag(run_id, MLFLOW_LOGGED_ARTIFACTS, json.dumps([*listed, entry]))


def joined(lines: Iterable[tuple[dict[str, Any], int]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Neighbouring lines of figures as one; each row keeps the time of its line."""
    rows: list[dict[str, Any]] = []
    end = 0
    for event, offset in lines:
        if "rows" not in event and rows:
            yield {"rows": rows}, end
            rows = []
        if "rows" in event:
            rows += [row | {"time": event["time"]} for row in event["rows"]]
        else:
            yield event, offset
        end = offset
    if rows:
        yield {"rows": rows}, end


def _metrics(rows: Iterable[dict[str, Any]]) -> list[Metric]:
    return [
        # MLflow would turn an infinity into the largest float and spoil the chart.
        Metric(
            _key(key), value if math.isfinite(value) else math.nan, row["time"], int(row["step"])
        )
        for row in rows
        for key, value in row.items()
        if key not in ("step", "time")
    ]


def _batches(metrics: list[Metric]) -> Iterable[list[Metric]]:
    return (metrics[start : start + BATCH] for start in range(0, len(metrics), BATCH))


def _origin(path: Path) -> dict[str, str]:
    """Who ran a pipeline, with which source, as its stages' runs say too."""
    tags = begun(path).get("tags", {})
    return {key: value for key, value in tags.items() if key.startswith("mlflow.") and value}


def _dataset(one: dict[str, Any]) -> DatasetInput:
    source = json.dumps({"uri": one["source"]})
    size = json.dumps({f"num_{key}": value for key, value in one["size"].items()})
    dataset = Dataset(one["name"], one["digest"], "local", source, profile=size)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", one["use"])])


def _split(path: Path) -> str:
    """The first rows of a JSON-lines file as pandas' "split" table; nested values as text."""
    with path.open(encoding="utf-8") as file:
        rows = [json.loads(line) for line in islice(file, TABLE_ROWS)]
    columns = list(dict.fromkeys(key for row in rows for key in row))
    data = [[_cell(row.get(key)) for key in columns] for row in rows]
    return json.dumps({"columns": columns, "data": data})


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


def _key(name: str) -> str:
    """A name with only the characters MLflow allows."""
    return re.sub(r"[^\w\-./: ]", "_", name)[:250]
