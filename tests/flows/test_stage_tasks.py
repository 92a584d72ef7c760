"""The tasks of stages, as Ray passes them to processes that have imported less."""

import subprocess
import sys
from pathlib import Path

import cloudpickle

from flows import execution

READ = "import sys, cloudpickle; print(cloudpickle.load(open(sys.argv[1], 'rb')).name)"


def test_a_worker_can_read_what_the_driver_sends(tmp_path: Path) -> None:
    sent = tmp_path / "task"
    sent.write_bytes(cloudpickle.dumps(execution.build_stage))
    root = Path(execution.__file__).parents[1]
    command = [sys.executable, "-c", READ, str(sent)]
    told = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr[-2000:]
