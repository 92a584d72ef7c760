"""The Prefect server, started by `services.up` as `python -m cluster.prefect_process PORT HANDLE`.

HANDLE is the file number of a socket that listens on PORT already: who connects while the server
starts, or starts again, waits for it instead of being refused.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from cluster.databases import create_database
from cluster.guard import serve
from cluster.services import watch
from cluster.watchdog import UNATTENDED_SECONDS

SQLITE = "sqlite+aiosqlite:///"


def main(port: str, handle: str) -> None:
    """Serve until killed."""
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    watch(UNATTENDED_SECONDS)
    own = get_current_settings().home / "prefect.db"
    lock_when_begun()
    settings = get_current_settings().server
    url = settings.database.connection_url
    if url and url.get_secret_value() == f"{SQLITE}{own}":
        create_database(own, "prefect", make_database)
    serve(
        create_app(final=True),
        f"http://127.0.0.1:{port}",
        int(handle),
        timeout_keep_alive=settings.api.keepalive_timeout,
        log_level=settings.logging_level.lower(),
    )


def lock_when_begun() -> None:
    """Have transactions on SQLite take the lock for writing when they begin. Prefect begins them to
    read; one that then writes fails at once, without waiting, where another has written meanwhile.
    Events were lost by that, and with them word of failed runs.
    """
    from prefect.server.database.configurations import AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction

    def begin_transaction(self: Any, session: Any, with_for_update: bool = False) -> Any:
        return begin(self, session, with_for_update=True)

    AioSqliteConfiguration.begin_transaction = begin_transaction


def make_database(path: Path) -> None:
    """Prefect's tables, empty, by its own command: a process has one database."""
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "--yes"]
    variables = os.environ | {"PREFECT_SERVER_DATABASE_CONNECTION_URL": f"{SQLITE}{path}"}
    subprocess.run(command, env=variables, stdout=subprocess.DEVNULL, check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
