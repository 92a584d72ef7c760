"""What a stage took is in its manifest: CPU seconds, peak memory, bytes a second."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from cluster.resources import Usage, charge, measured
from cluster.settings import Settings
from cluster.stage import build, stage
from cluster.store import Draft, Store

BURN = "import time\nuntil = time.process_time() + 0.4\nwhile time.process_time() < until: pass\n"


class Nothing(Settings):
    pass


@stage(version=1)
def grind(settings: Nothing, draft: Draft) -> None:
    """Use memory here, time in a child, and both of them elsewhere."""
    held = bytearray(200 << 20)
    subprocess.run([sys.executable, "-c", BURN], check=True)
    draft.progress(len(held), len(held), "bytes")


@stage(version=1)
def rest(settings: Nothing, draft: Draft) -> None:
    pass


def taken(function: Any, root: Path) -> dict[str, float]:
    return build(function, Store(root), settings=Nothing()).manifest.resources


def test_a_stage_tells_its_time_peak_and_speed(tmp_path: Path) -> None:
    busy = taken(grind, tmp_path)
    assert 0.4 < busy["cpu_seconds"] < 60
    assert 200 << 20 < busy["peak_bytes"] < 20 << 30
    assert busy["bytes"] == 200 << 20 and 0 < busy["bytes_per_second"] < busy["bytes"] / 0.4


def test_a_peak_is_that_of_the_stage_not_of_an_earlier_one(tmp_path: Path) -> None:
    before = taken(grind, tmp_path)["peak_bytes"]
    after = taken(rest, tmp_path)
    assert 0 < after["cpu_seconds"] < 0.5  # less than a millisecond, and still some
    assert after["peak_bytes"] < before - (100 << 20)
    assert "bytes_per_second" not in after


def test_what_workers_took_is_counted_once_in_all_that_is_measured() -> None:
    with measured() as outer:
        with measured() as inner:
            charge(Usage(1000.0, 1 << 50))
        charge(Usage(2000.0, 7))
    assert 1000 <= inner.cpu_seconds < 1100 and 3000 <= outer.cpu_seconds < 3100
    assert inner.peak_bytes == outer.peak_bytes == 1 << 50
    charge(Usage(1.0, 1))  # nobody asks
