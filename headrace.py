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


DOOR = {
    "Artifact": "cluster.artifact",
    "BadInput": "cluster.errors",
    "Draft": "cluster.store",
    "Settings": "cluster.settings",
    "map_rows": "tasks.data.own_rows",
    "pipeline": "flows.pipeline",
    "read_batches": "tasks.data.text",
    "stage": "cluster.stage",
}
"""What a user's file imports from here, and where it is: `pipeline` is the flow by which Prefect's
deployments name it, the others make a stage of one's own (`docs/how/own-stages.md`)."""


def __getattr__(name: str) -> Any:
    if name in DOOR:
        return getattr(import_module(DOOR[name]), name)
    raise AttributeError(f"module 'headrace' has no attribute '{name}'")
