"""The writer's lock: one at a time, free again when its holder dies."""

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest

from cluster.locks import is_held, lock


def _hold(path: Path, ready: "multiprocessing.synchronize.Event") -> None:
    with lock(path):
        ready.set()
        time.sleep(60)


def test_a_second_holder_waits_and_learns_who_holds(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    path, ready = tmp_path / "lock", context.Event()
    holder = context.Process(target=_hold, args=(path, ready))
    holder.start()
    try:
        assert ready.wait(20)
        assert is_held(path)
        with pytest.raises(TimeoutError, match=f"process {holder.pid}"), lock(path, timeout=0.3):
            pass
        os.kill(holder.pid or 0, signal.SIGKILL)
        holder.join()
        with lock(path, timeout=5):
            assert is_held(path)
    finally:
        holder.kill()
    assert not is_held(path)
