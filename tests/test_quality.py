"""Lint, formatting and types, as part of the one test command."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
COMMANDS = {
    "lint": ["ruff", "check", "."],
    "format": ["ruff", "format", "--check", "."],
    "types": ["pyrefly", "check"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_quality(name: str) -> None:
    command = [sys.executable, "-m", *COMMANDS[name]]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
