"""The Prefect server, started by `services.up` as `python -m cluster.prefect_process PORT HANDLE`.

HANDLE is the file number of a socket that listens on PORT already: who connects while the server
starts, or starts again, waits for it instead of being refused.
"""

import sys

from cluster.guard import serve


def main(port: str, handle: str) -> None:
    """Serve until killed."""
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    settings = get_current_settings().server
    serve(
        create_app(final=True),
        f"http://127.0.0.1:{port}",
        int(handle),
        timeout_keep_alive=settings.api.keepalive_timeout,
        log_level=settings.logging_level.lower(),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
