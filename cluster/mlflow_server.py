"""MLflow in the background: `services.up` starts `python -m cluster.mlflow_server [PORT HANDLE]`.

It creates the database, sends it the journals of all runs, and serves the UI when given a port and
the file number of a socket that listens on it.
"""

import logging
import os
import sys
import threading
from http import HTTPStatus

from starlette.responses import PlainTextResponse
from starlette.routing import Mount

from cluster.environment import own_store
from cluster.guard import serve
from cluster.home import subfolder
from cluster.url_secrets import hidden

ASSISTANT = "/ajax-api/3.0/mlflow/assistant"


def main(port: str = "", handle: str = "") -> None:
    """Send and serve until killed; everything here gives way to more urgent work."""
    os.nice(10)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    from cluster.mlflow_sender import Sender

    uri, artifacts = os.environ["MLFLOW_TRACKING_URI"], subfolder("mlflow/artifacts")
    os.chdir(artifacts)  # below which MLflow puts what names no place
    # What names no store is the home's, whatever store this process was started for.
    sender = Sender(subfolder("tracking"), own_store(), artifacts)
    # Journals have no password of a database; this process knows it. Creates or checks the tables.
    sender.store(hidden(uri)).client.search_experiments(max_results=1)
    sending = threading.Thread(target=sender.run, daemon=True)
    sending.start()
    if port:
        if uri == own_store():  # what the user's own database tells of may be anywhere
            from cluster.mlflow_artifacts import confine

            confine(sending)
        _serve(uri, str(artifacts), f"http://127.0.0.1:{port}", int(handle))
    sending.join()


def _serve(uri: str, artifacts: str, url: str, handle: int) -> None:
    """The app behind `mlflow server`, in this process: that command starts a second one for it,
    which imports everything again.
    """
    from mlflow import server
    from mlflow.environment_variables import _MLFLOW_SGI_NAME

    os.environ[server.BACKEND_STORE_URI_ENV_VAR] = uri
    os.environ[server.REGISTRY_STORE_URI_ENV_VAR] = uri
    os.environ[server.ARTIFACT_ROOT_ENV_VAR] = "mlflow-artifacts:/"
    os.environ[server.SERVE_ARTIFACTS_ENV_VAR] = "true"
    os.environ[server.ARTIFACTS_DESTINATION_ENV_VAR] = artifacts
    os.environ[_MLFLOW_SGI_NAME.name] = "uvicorn"
    from mlflow.server.fastapi_app import app  # it reads all of these

    # Its assistant runs shell commands, and calls agents and models of other makers.
    app.router.routes.insert(0, Mount(ASSISTANT, PlainTextResponse("", HTTPStatus.NOT_FOUND)))
    serve(app, url, handle, log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])
