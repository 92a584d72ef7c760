"""MLflow in the background, started by `services.up` as `python -m cluster.mlflow_server [PORT]`.

It creates the database, sends it the journals of all runs, and serves the UI when given a port.
"""

import logging
import os
import sys
import threading

from cluster.home import subfolder


def main(port: str | None = None) -> None:
    """Send and serve until killed; everything here gives way to more urgent work."""
    os.nice(10)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    from cluster.mlflow_sender import Sender

    uri, artifacts = os.environ["MLFLOW_TRACKING_URI"], subfolder("mlflow") / "artifacts"
    sender = Sender(subfolder("tracking"), uri, artifacts)
    sender.client.search_experiments(max_results=1)  # creates the database, before anyone else
    sending = threading.Thread(target=sender.run, daemon=True)
    sending.start()
    if port:
        _serve(uri, port, str(artifacts))
    sending.join()


def _serve(uri: str, port: str, artifacts: str) -> None:
    from mlflow.cli import cli

    address = ("--host", "127.0.0.1", "--port", port, "--workers", "1")
    store = ("--backend-store-uri", uri, "--artifacts-destination", artifacts)
    cli(["server", *address, *store], standalone_mode=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
