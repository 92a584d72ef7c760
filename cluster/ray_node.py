"""A node of the cluster that `RAY_ADDRESS` names, on the machine of a driver that is none.

Ray lets only a node have a driver: a laptop, the worker of a schedule and the pod of one run are
made nodes without CPUs or GPUs for as long as they need it.
"""

import atexit
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil

from cluster.errors import BadInput
from cluster.processes import tail, temporary_folder

OBJECT_STORE_BYTES = 200_000_000
START_SECONDS, END_SECONDS = 180.0, 20.0


def become_node(address: str) -> None:
    """Have a node of the cluster on this machine. One that is started here offers nothing, and ends
    with this process. Raises BadInput where it does not start.
    """
    if "://" in address or address == "auto":  # Ray's client needs none; "auto" is one
        return
    host, port = address.rsplit(":", 1)
    if _has_node(port):
        return
    with socket.create_connection((host, int(port))) as to_head:
        own = to_head.getsockname()[0]
    place = ("--node-ip-address", own, "--num-cpus=0", "--num-gpus=0", "--disable-usage-stats")
    # Where the driver is killed, nobody else would end its node.
    ending = (sys.executable, "-m", "cluster.with_parent", sys.executable, "-m")
    command = [*ending, "ray.scripts.scripts", "start", "--address", address, *place]
    output = temporary_folder() / f"node-{os.getpid()}.log"
    with output.open("wb") as log_file:
        node = subprocess.Popen(
            [*command, f"--object-store-memory={OBJECT_STORE_BYTES}", "--block"],
            env=os.environ | {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "1"},  # a local Ray needs none
            stdout=log_file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C ends the run first
        )
    atexit.register(_end_node, node, output)
    deadline = time.monotonic() + START_SECONDS
    while not _has_node(port):
        if node.poll() is not None or time.monotonic() > deadline:
            raise BadInput(
                f"RAY_ADDRESS is {address}, and this machine cannot be a node of that cluster:\n"
                f"{tail(str(output))}"
            )
        time.sleep(0.2)


def _has_node(port: str) -> bool:
    """Whether a raylet on this machine belongs to a cluster whose head has this port."""
    for process in psutil.process_iter(["name", "cmdline"]):
        if process.info["name"] == "raylet":
            words = process.info["cmdline"] or ()
            if any(w.startswith("--gcs-address=") and w.endswith(f":{port}") for w in words):
                return True
    return False


def _end_node(node: "subprocess.Popen[bytes]", output: Path) -> None:
    import ray

    ray.shutdown()
    node.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        node.wait(END_SECONDS)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(node.pid, signal.SIGKILL)
    output.unlink(missing_ok=True)
