"""Energy that work takes, where the machine tells it: processors by RAPL, GPUs by NVML.

    before = reading()
    ...
    before.joules_since(cpu_seconds)     # None where nothing tells

RAPL counts whole processors, so that work is told the share of their busy time that was its own.
Its counters are for root alone on most machines. Of GPUs those count that this process may use.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

RAPL = Path("/sys/class/powercap")
NVML = "libnvidia-ml.so.1"
Counters = dict[str, float]


@dataclass(frozen=True)
class Reading:
    """The counters of processors and GPUs at some moment, in joules, and the CPUs' busy seconds."""

    processors: Counters
    gpus: Counters
    busy: float

    def joules_since(self, cpu_seconds: float) -> float | None:
        """What was taken since, by work of so many CPU seconds; None where nothing tells."""
        now = reading()
        if not (self.processors or self.gpus):
            return None
        share = min(1.0, cpu_seconds / busy) if (busy := now.busy - self.busy) > 0 else 0.0
        # A counter that begins again at 0 on the way tells nothing.
        return share * _grown(self.processors, now.processors) + _grown(self.gpus, now.gpus)


def reading() -> Reading:
    """The counters now."""
    return Reading(dict(_processors()), dict(_gpus()), _busy())


def _grown(before: Counters, now: Counters) -> float:
    return sum(max(0.0, now[name] - value) for name, value in before.items() if name in now)


def _processors() -> Iterator[tuple[str, float]]:
    """Each processor's joules; `intel-rapl:0:1` is a part of one that is counted already."""
    for path in RAPL.glob("*rapl:*/energy_uj"):
        if path.parent.name.count(":") == 1:
            with contextlib.suppress(OSError, ValueError):
                yield path.parent.name, int(path.read_text()) / 1e6


def _gpus() -> Iterator[tuple[str, float]]:
    """Each GPU's joules since its driver was loaded."""
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return
    try:
        library = ctypes.CDLL(NVML)
    except OSError:
        return
    if library.nvmlInit_v2():
        return
    count, handle, energy = ctypes.c_uint(), ctypes.c_void_p(), ctypes.c_ulonglong()
    library.nvmlDeviceGetCount_v2(ctypes.byref(count))
    for index in _visible(count.value):
        found = library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
        if not found and not library.nvmlDeviceGetTotalEnergyConsumption(
            handle, ctypes.byref(energy)
        ):
            yield str(index), energy.value / 1e3
    library.nvmlShutdown()


def _visible(count: int) -> list[int]:
    """The GPUs that this process may use, by number; those named otherwise are all."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    numbers = [int(name) for name in named if name.strip().isdecimal()]
    return [n for n in numbers if n < count] or list(range(count))


def _busy() -> float:
    """Seconds that this machine's CPUs have worked."""
    times = psutil.cpu_times()
    return float(times.user + times.system)
