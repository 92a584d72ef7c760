"""A node whose memory runs out: the task ends with a message, and so does what it had started."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tasks.data.reading import intake

ROOM = 1 << 30  # for Ray itself, and what else this machine does meanwhile


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_task_that_outgrows_the_memory_ends_with_a_message(
    store, read_path, tmp_path, monkeypatch
):
    """Ray's own monitor kills its workers; it tries three times more, not for ever."""
    monkeypatch.setattr(intake, "BLOCK_BYTES", 1)
    for name in ("much", "little"):
        (tmp_path / f"{name}.jsonl").write_text(f'{{"text": "{name} to read"}}')
    artifact = read_path(str(tmp_path / "*.jsonl"))
    memory = psutil.virtual_memory()
    environment = {
        "PYTHONPATH": str(Path.cwd()),
        "RAY_memory_usage_threshold": f"{(memory.total - memory.available + ROOM) / memory.total}",
        "RAY_memory_monitor_refresh_ms": "50",
        "RAY_task_oom_retry_delay_base_ms": "100",
    }
    driver = Path(__file__).with_name("memory_driver.py")
    ended = subprocess.run(
        [sys.executable, str(driver), str(artifact.path)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    message = (
        "the workers of a task died 4 times, most likely for want of memory; "
        "fewer side by side need less: `--set placement.data_workers=1`\n"
    )
    assert message in ended.stdout, ended.stderr[-3000:]  # among what Ray says
    assert not sandboxes(store.root)
    assert not list((store.root / "artifacts" / "filter").glob("[!.]*"))


def sandboxes(home):
    """The processes of custom filters that still run with this home."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("HEADRACE_HOME") == str(home):
                found.append(str(process.cmdline()))
    return [command for command in found if "sandbox.py" in command]
