"""MLflow behind HTTP that answers errors at times, and the sender that has to live with it.

python -m tests.cluster.mlflow_outage JOURNALS DATABASE AWAY

While the file AWAY exists every answer is 503. The server is MLflow's own; sender and server are a
process of their own, as they are in use.
"""

import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RETRY_SECONDS = 1.0


def main(journals: Path, database: str, away: Path) -> None:
    from mlflow.server.constants import ARTIFACT_ROOT_ENV_VAR, BACKEND_STORE_URI_ENV_VAR
    from werkzeug.serving import make_server

    from cluster import mlflow_sender

    os.environ[BACKEND_STORE_URI_ENV_VAR] = database
    os.environ[ARTIFACT_ROOT_ENV_VAR] = str(journals)
    from mlflow.server import app

    def with_outages(environ: Any, start_response: Any) -> Iterable[bytes]:
        if away.exists():
            start_response("503 Service Unavailable", [])
            return [b"away"]
        return app(environ, start_response)

    server = make_server("127.0.0.1", 0, with_outages, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    mlflow_sender.RETRY_SECONDS = RETRY_SECONDS
    mlflow_sender.Sender(journals, f"http://127.0.0.1:{server.port}", journals).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
