"""The services of a cluster, as `cluster/compose.yaml` has them, for tests: PostgreSQL, an S3
server, Prefect and MLflow in front of both, each behind a password. Needs root, PostgreSQL's
programs (Debian: postgresql), and `uv pip install "moto[server]" s3fs boto3 psycopg2-binary`.

    with services("10.78.0.1", folder) as addresses: ...      # the variables of whoever uses them
"""

import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from tests.end_to_end.hosts import plain

BIN = Path(sys.executable).parent
POSTGRES = max(Path("/usr/lib/postgresql").glob("*/bin"), default=None)
STORED = ("--workers", "1", "--artifacts-destination", "s3://headrace/mlflow")
QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}


@contextlib.contextmanager
def services(host: str, folder: Path) -> Iterator[dict[str, str]]:
    """All of them on an address of this machine while the block runs."""
    password = secrets.token_hex(16)
    s3 = {
        "AWS_ENDPOINT_URL": f"http://{host}:5555",
        "AWS_ACCESS_KEY_ID": "headrace",
        "AWS_SECRET_ACCESS_KEY": secrets.token_hex(16),
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    prefect = {"PREFECT_API_AUTH_STRING": f"headrace:{secrets.token_hex(16)}"}
    addresses = {
        **(QUIET | s3 | prefect),
        "PREFECT_API_URL": f"http://{host}:4299/api",
        "MLFLOW_TRACKING_URI": f"http://{host}:5099",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "HEADRACE_STORE": "s3://headrace/store",
    }
    with contextlib.ExitStack() as stack:
        database = stack.enter_context(_postgres(host, password))
        for command, variables, health in (
            (["moto_server", "-H", host, "-p", "5555"], s3, s3["AWS_ENDPOINT_URL"]),
            (
                ["prefect", "server", "start", "--host", host, "--port", "4299"],
                {
                    "PREFECT_SERVER_API_AUTH_STRING": prefect["PREFECT_API_AUTH_STRING"],
                    "PREFECT_SERVER_DATABASE_CONNECTION_URL": "postgresql+asyncpg"
                    + database.format(name="prefect"),
                    "PREFECT_HOME": str(folder / "prefect"),
                },
                f"{addresses['PREFECT_API_URL']}/health",
            ),
            (
                ["mlflow", "server", "--host", host, "--port", "5099", *STORED],
                s3
                | {
                    "MLFLOW_BACKEND_STORE_URI": "postgresql+psycopg2"
                    + database.format(name="mlflow"),
                    "MLFLOW_S3_ENDPOINT_URL": s3["AWS_ENDPOINT_URL"],
                    "MLFLOW_SERVER_ALLOWED_HOSTS": f"{host}:5099",
                },
                f"{addresses['MLFLOW_TRACKING_URI']}/health",
            ),
        ):
            stack.enter_context(_served(command, variables, health, folder))
        bucket(addresses).mkdir("headrace")
        yield addresses


def bucket(addresses: Mapping[str, str]):  # type: ignore[no-untyped-def]
    """The S3 server, as fsspec has it."""
    import s3fs

    return s3fs.S3FileSystem(
        endpoint_url=addresses["AWS_ENDPOINT_URL"],
        key=addresses["AWS_ACCESS_KEY_ID"],
        secret=addresses["AWS_SECRET_ACCESS_KEY"],
        use_listings_cache=False,
    )


@contextlib.contextmanager
def _postgres(host: str, password: str) -> Iterator[str]:
    """A PostgreSQL server with two databases; the end of their URLs, for a `name`."""
    assert POSTGRES is not None
    data = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
    (data / "password").write_text(password)
    subprocess.run(["chown", "-R", "postgres", data], check=True)
    plainly = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def carry_out(program: str, *arguments: str) -> None:
        command = [*plainly, str(POSTGRES / program), *arguments]
        subprocess.run(
            command, check=True, cwd=data, env={"PGPASSWORD": password}, stdout=subprocess.DEVNULL
        )

    new = ("--username=headrace", "--auth=scram-sha-256", f"--pwfile={data}/password")
    carry_out("initdb", *new, f"--pgdata={data}/data")
    with (data / "data/pg_hba.conf").open("a") as file:
        file.write("host all headrace samenet scram-sha-256\n")
    served = ["-h", host, "-p", "5499", "-k", str(data), "-D", f"{data}/data"]
    server = subprocess.Popen(
        [*plainly, str(POSTGRES / "postgres"), *served], stderr=subprocess.DEVNULL
    )
    there = ("--host", host, "--port", "5499", "--username=headrace")
    try:
        _wait(lambda: carry_out("pg_isready", *there), subprocess.CalledProcessError, server)
        for name in ("prefect", "mlflow"):
            carry_out("createdb", *there, name)
        yield f"://headrace:{password}@{host}:5499/{{name}}"
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(data)


@contextlib.contextmanager
def _served(
    command: list[str], variables: Mapping[str, str], health: str, folder: Path
) -> Iterator[None]:
    """A service that answers, reached by all hosts."""
    import httpx

    log = folder / f"{command[0]}.log"
    own = plain() | QUIET | {"HOME": str(folder)} | dict(variables)
    with log.open("w") as out:
        service = subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            env=own,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        _wait(lambda: httpx.get(health, timeout=20), httpx.HTTPError, service, log)
        yield
    finally:
        os.killpg(service.pid, 15)
        service.wait()


def _wait(
    attempt: Callable[[], object],
    error: type[Exception],
    service: "subprocess.Popen[bytes]",
    log: Path | None = None,
) -> None:
    while True:
        with contextlib.suppress(error):
            attempt()
            return
        assert service.poll() is None, log.read_text() if log else "it did not start"
        time.sleep(0.2)
