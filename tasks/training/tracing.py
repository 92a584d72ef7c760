"""A trace of a few training steps, by `torch.profiler`: what the CPU and the GPU do, and when.

Look at it with chrome://tracing or ui.perfetto.dev.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

from torch.profiler import profile, schedule

WAIT, WARM = 3, 1
"""Steps before the trace: the first ones are not like the others, and the profiler has its own."""
log = logging.getLogger("headrace.train")


@contextlib.contextmanager
def traced(path: Path, steps: int) -> Iterator[Callable[[], None]]:
    """Trace `steps` steps in Chrome's format (`.json.gz`); what is yielded is called after each.

    A training that ends before leaves those that were. With 0 there is no trace.
    """
    if not steps:
        yield lambda: None
        return

    def write(profiler: profile) -> None:
        profiler.export_chrome_trace(str(path))
        log.info("trace of %d steps: %s", steps, path)

    plan = schedule(wait=WAIT, warmup=WARM, active=steps, repeat=1)
    with profile(schedule=plan, on_trace_ready=write) as profiler:
        yield profiler.step
