"""Headrace's own code, found first: `import headrace` before `flows`, `tasks`, `model`, `cluster`.

Others have folders and packages of these names. Importing this module puts the folder that has ours
(the clone, or `site-packages/_headrace` where it was installed) before all others;
`cluster.environment.prepare` does so for the processes that are started, and
`cluster.ray_session` for Ray's workers.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = str(HERE / "_headrace" if (HERE / "_headrace").exists() else HERE)
NAMES = ("flows", "tasks", "model", "cluster")


def _come_first() -> None:
    """Raises ImportError where another package of such a name has been imported already."""
    sys.path[:] = [ROOT, *(path for path in sys.path if path != ROOT)]
    for name in NAMES:
        found = str(import_module(name).__file__)
        if not Path(found).is_relative_to(ROOT):
            raise ImportError(
                f"'{name}' was imported from {found}, and Headrace has a package of this name: "
                "write `import headrace` before it, or rename yours"
            )


_come_first()


def main() -> None:
    """The `headrace` command."""
    from flows.cli import main as command

    command()


def __getattr__(name: str) -> Any:
    """The flow `pipeline`, by which Prefect's deployments name it."""
    if name == "pipeline":
        return import_module("flows.pipeline").pipeline
    raise AttributeError(f"module 'headrace' has no attribute '{name}'")
