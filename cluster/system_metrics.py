"""The load of this machine while something is tracked, under the names that MLflow gives to it.

with sampled(tracker):
    ...                      # every ten seconds: processor, memory, disk, network, GPUs
"""

import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from cluster.environment import has_gpu
from cluster.home import home
from cluster.tracking import NullTracker, Tracker

EVERY_SECONDS = 10.0
FIRST_SECONDS = 5.0  # a run that finds everything cached has ended by then
MEGA = 1e6
GPU_QUERY = "utilization.gpu,memory.used,memory.total,power.draw"
Row = dict[str, float]


@contextmanager
def sampled(tracker: Tracker) -> Iterator[None]:
    """Track the machine's load, in a thread, until the block ends; not where nothing is tracked."""
    if isinstance(tracker, NullTracker):
        yield
        return
    over = threading.Event()
    thread = threading.Thread(target=_sample, args=(tracker, over), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()


def _sample(tracker: Tracker, over: threading.Event) -> None:
    began, network = time.monotonic(), psutil.net_io_counters()
    psutil.cpu_percent()  # counts from here on
    wait = FIRST_SECONDS
    while not over.wait(wait):
        now = psutil.net_io_counters()
        row = {
            "network_receive_megabytes": (now.bytes_recv - network.bytes_recv) / MEGA,
            "network_transmit_megabytes": (now.bytes_sent - network.bytes_sent) / MEGA,
        }
        tracker.system(round(time.monotonic() - began), load() | row)
        wait = EVERY_SECONDS


def load() -> Row:
    """Processor since the last call, memory, the home's disk, and the GPUs, if there are any."""
    memory, disk = psutil.virtual_memory(), psutil.disk_usage(str(home()))
    return {
        "cpu_utilization_percentage": psutil.cpu_percent(),
        "system_memory_usage_megabytes": memory.used / MEGA,
        "system_memory_usage_percentage": memory.percent,
        "disk_usage_megabytes": disk.used / MEGA,
        "disk_usage_percentage": disk.percent,
    } | (_gpus() if has_gpu() else {})


def _gpus() -> Row:
    """Each device as the driver's own tool tells of it; nothing where that fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}
    command = [tool, f"--query-gpu={GPU_QUERY}", "--format=csv,noheader,nounits"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=5.0, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return gpu_row(told.stdout)


def gpu_row(told: str) -> Row:
    """The figures in the tool's lines, one a device; what it cannot tell (`[N/A]`) is left out."""
    found: Row = {}
    for index, line in enumerate(told.splitlines()):
        busy, used, total, watts = (_number(part) for part in line.split(","))
        share = 100 * used / total if used is not None and total else None
        named = {
            "utilization_percentage": busy,
            "memory_usage_megabytes": used,
            "memory_usage_percentage": share,
            "power_usage_watts": watts,
        }
        found |= {f"gpu_{index}_{key}": v for key, v in named.items() if v is not None}
    return found


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
