"""A writer killed at every sync, rename and removal of a file, each time in a process of its own.

python -m tests.cluster.killed_writer ROOT [force]

Writes to ROOT/1, ROOT/2, ...; with `force` replaces what was built there before. Prints the number
of the first writer that came to its end.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.settings import Settings
from cluster.stage import build, stage
from cluster.store import Draft, Store

POINTS = ((os, ("fsync", "unlink", "rmdir")), (Path, ("rename", "replace")))


class Nothing(Settings):
    pass


@stage(version=1)
def pour(settings: Nothing, draft: Draft) -> None:
    (draft.path / "a.txt").write_text("a" * 100)
    (draft.path / "b.txt").write_text("b" * 100)


def killing(real: Callable[..., Any], left: list[int]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), 9)
        return real(*arguments, **options)

    return call


def sweep(root: Path, force: bool) -> int:
    for point in range(1, 100):
        store = Store(root / str(point))
        if force:
            build(pour, store, settings=Nothing())
        child = os.fork()
        if not child:
            left = [point]
            for owner, names in POINTS:
                for name in names:
                    setattr(owner, name, killing(getattr(owner, name), left))
            build(pour, store, settings=Nothing(), force=force)
            os._exit(0)
        if os.waitpid(child, 0)[1] == 0:
            return point
    raise AssertionError("the writer never came to its end")


if __name__ == "__main__":
    print(sweep(Path(sys.argv[1]), "force" in sys.argv))
