"""The Prefect server, started by `services.up` as `python -m cluster.prefect_process PORT HANDLE`.

HANDLE is the file number of a socket that listens on PORT already: who connects while the server
starts, or starts again, waits for it instead of being refused.
"""

import socket
import sys


def main(handle: str) -> None:
    """Serve until killed."""
    import uvicorn
    from prefect.server.api.server import create_app
    from prefect.settings import get_current_settings

    listening = socket.socket(fileno=int(handle))
    listening.set_inheritable(False)
    settings = get_current_settings().server
    config = uvicorn.Config(
        create_app(final=True),
        timeout_keep_alive=settings.api.keepalive_timeout,
        log_level=settings.logging_level.lower(),
    )
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main(sys.argv[2])
