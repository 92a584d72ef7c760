"""Environment variables that must be set before Prefect, Ray, MLflow or DeepSpeed are imported.

These libraries read their settings when they are imported or started: `prepare` comes first in
every process that Headrace starts by hand. What the user has set stays as it is, except where a
value would make a run start services of its own.
"""

import logging
import os
import re
import sys
import tomllib
from pathlib import Path

from cluster.errors import BadInput
from cluster.home import apart, cache_folder, home, subfolder
from cluster.keys import key_file

ROOT = str(Path(__file__).parents[1])
"""Where `flows`, `tasks`, `model` and `cluster` lie."""

TELEMETRY_OFF = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "RAY_USAGE_STATS_ENABLED": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
QUIET = {
    # The console shows warnings; the Prefect API gets what `headrace.*` logs from INFO on.
    "PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "WARNING",
    "PREFECT_LOGGING_EXTRA_LOGGERS": "headrace",
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "GIT_PYTHON_REFRESH": "quiet",
    "TOKENIZERS_PARALLELISM": "false",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
BEHAVIOUR = {
    # A process that cannot reach the server fails instead of starting a private one.
    "PREFECT_SERVER_EPHEMERAL_ENABLED": "false",
    # Ray would otherwise start each worker through `uv run`, in a fresh environment.
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",
    # A proxy that a busy machine starts slowly would be ended, and begun anew, for ever.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "300",
    # A task that does not fit into memory would otherwise be tried for ever.
    "RAY_task_oom_retries": "3",
    # An unreachable tracking server must not hold up training; rows are kept and sent later.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    # A collective that hangs ends its process, with a trace of what all ranks were at.
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    # Gradients of one size after another: pieces of the last would keep the next from fitting.
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "OMP_NUM_THREADS": "1",
}
LOCAL_RAY = {
    "RAY_AUTH_MODE": "token",
    # Else its daemons and workers listen on every interface of the machine, and its metrics, which
    # nothing here asks for, are told without a token.
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_enable_metrics_collection": "0",
}
PASSED_PREFIXES = ("HEADRACE_", "PREFECT_", "MLFLOW_", "HF_")
PASSED_TOO = "AWS_,GOOGLE_,GLOO_,NCCL_"  # unless `HEADRACE_PASS` names others
PASSED_NAMES = (*TELEMETRY_OFF, *QUIET, *BEHAVIOUR)
SECRET = re.compile("KEY|TOKEN|PASSWORD|SECRET|CREDENTIAL|AUTH|HEADERS")
URL_WITH_PASSWORD = re.compile("//[^/]*:[^/]*@")

PROFILE = ("PREFECT_API_", "PREFECT_CLIENT_", "PREFECT_UI_")  # what says which server, and how

_ours: dict[str, str] = {}


def prepare() -> None:
    """Set all variables for this process and its children; call it before the heavy imports."""
    for name, value in (TELEMETRY_OFF | QUIET | BEHAVIOUR).items():
        default(name, value)
    default("HEADRACE_HOME", str(home()))
    default("MLFLOW_TRACKING_URI", own_store())
    _adopt_prefect_profile()
    default("PREFECT_HOME", str(subfolder("prefect")))
    keep_bytecode()
    _come_first()
    if not has_gpu():
        default("DS_ACCELERATOR", "cpu")
    log_from_info()
    if not os.environ.get("RAY_ADDRESS"):
        for name, value in LOCAL_RAY.items():
            default(name, value)
        default("RAY_AUTH_TOKEN_PATH", str(key_file("ray_token")))


def log_from_info() -> None:
    """Let what `headrace.*` logs from INFO on reach the handlers; Ray calls it in each worker."""
    logging.getLogger("headrace").setLevel(logging.INFO)


def default(name: str, value: str) -> None:
    """Set a variable unless the user has; what Headrace set before is replaced."""
    if given(name) is None:
        put(name, value)


def put(name: str, value: str) -> None:
    """Set a variable and remember that it is not the user's."""
    os.environ[name] = _ours[name] = value


def given(name: str) -> str | None:
    """The user's value of a variable: None when unset, empty or set by Headrace in this process."""
    value = os.environ.get(name)
    return None if not value or value == _ours.get(name) else value


def given_store() -> str | None:
    """The user's own tracking store; a child process finds that of the home in its variables."""
    uri = given("MLFLOW_TRACKING_URI")
    return None if uri == own_store() else uri


def own_store() -> str:
    """The home's tracking store, a database."""
    return f"sqlite:///{subfolder('mlflow') / 'mlflow.db'}"


def forget(name: str) -> None:
    """Unset a variable that Headrace set; the user's own value stays."""
    if given(name) is None:
        os.environ.pop(name, None)


def worker_variables() -> dict[str, str]:
    """What a worker on another machine needs to act like the driver, secrets among it.

    Further variables are those that begin with one of `HEADRACE_PASS`, separated by commas.
    """
    also = os.environ.get("HEADRACE_PASS", PASSED_TOO).split(",")
    prefixes = (*PASSED_PREFIXES, *(prefix.strip() for prefix in also if prefix.strip()))
    passed = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(prefixes) or name in PASSED_NAMES
    }
    if apart():
        passed.pop("HEADRACE_HOME", None)  # that of the node, or of this path there
    # Workers of another cluster may have GPUs where the driver has none.
    if not os.environ.get("RAY_ADDRESS") and "DS_ACCELERATOR" in os.environ:
        passed["DS_ACCELERATOR"] = os.environ["DS_ACCELERATOR"]
    return passed | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}


def is_secret(name: str, value: str) -> bool:
    """Whether a variable may stand in no command line, log or record: told by its name, or by a
    password in a URL.
    """
    return bool(SECRET.search(name) or URL_WITH_PASSWORD.search(value))


def keep_bytecode() -> None:
    """Cache bytecode elsewhere where it may not lie beside the source, here and in children.

    Else every command, server and worker compiles its libraries anew, seconds each.
    """
    if "PYTHONDONTWRITEBYTECODE" in os.environ:
        default("PYTHONPYCACHEPREFIX", str(cache_folder("bytecode")))
        sys.dont_write_bytecode, sys.pycache_prefix = False, os.environ["PYTHONPYCACHEPREFIX"]
        del os.environ["PYTHONDONTWRITEBYTECODE"]


def _adopt_prefect_profile() -> None:
    """Put the server of the user's active Prefect profile, if it has one, into variables.

    Workers of a cluster have no profile, and Prefect's home is ours. Raises BadInput for profiles
    that cannot be read.
    """
    if given("PREFECT_API_URL"):
        return
    folder = Path(given("PREFECT_HOME") or "~/.prefect").expanduser()
    path = Path(given("PREFECT_PROFILES_PATH") or folder / "profiles.toml").expanduser()
    try:
        found = tomllib.loads(path.read_text()) if path.exists() else {}
        active = given("PREFECT_PROFILE") or found.get("active")
        profile = found.get("profiles", {}).get(active, {})
    except (OSError, ValueError, AttributeError) as error:
        raise BadInput(f"{path}, your Prefect profiles, cannot be read: {error}") from error
    if "PREFECT_API_URL" in profile:
        servers = {name: str(v) for name, v in profile.items() if name.startswith(PROFILE)}
        os.environ.update(servers | {name: v for name in servers if (v := given(name))})


def _come_first() -> None:
    """Let the processes that this one starts find Headrace before other packages of its names."""
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != ROOT]
    os.environ["PYTHONPATH"] = os.pathsep.join([ROOT, *filter(None, others)])


def has_gpu() -> bool:
    """Whether an NVIDIA device is visible to this process, told without importing torch."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    return not hidden and any(Path("/dev").glob("nvidia[0-9]*"))
