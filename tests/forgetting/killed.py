"""An erasure killed at random points, then given again: the home that one without kills leaves.

    python -m tests.forgetting.killed FOLDER --kept 29 --points 8

Every erasure is in a process of its own, forked from one that has trained nothing. All draw the
same salt, which would else be part of every name.
"""

import argparse
import json
import os
import random
import shutil
import signal
import sys
import traceback
from pathlib import Path
from typing import Any
from unittest import mock

from cluster.artifact import faults
from cluster.home import home
from cluster.placement import Placement
from cluster.store import Store
from flows.commands import forgetting
from tests.chaos.crash_points import kill_at
from tests.chaos.witness import content
from tests.forgetting.corpus import SECRET, built_home, run_here
from tests.shell import headrace

EVERY_STEP = Placement(checkpoint_seconds=1e-6)


def forked(job: Any, folder: Path, point: int = 0) -> int:
    """How a process ended that did a job in a home, and was killed at a point."""
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        status = 1
        try:
            os.environ["HEADRACE_HOME"] = str(folder / "home")
            done = kill_at(point)
            job()
            (folder / "points").write_text(str(len(done)))
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def erase() -> None:
    """Erase the secret; what is to be built again is built here, with a checkpoint at each step."""

    def run(dag: Any, recipe: Any, goal: str, *_: Any) -> dict[str, Any]:
        return run_here(dag, recipe, goal, place=EVERY_STEP)[0]

    with (
        mock.patch.object(forgetting, "run_planned", run),
        mock.patch("secrets.token_hex", lambda size: "0" * 2 * size),
    ):
        done = headrace("erase", SECRET, "--yes")
    assert done.returncode == 0, done.stderr


def left() -> dict[str, Any]:
    """What an erasure leaves: each artifact with its content, and what is to be gone."""
    store = Store()
    found: dict[str, Any] = {
        one.name: [about.model_dump() for _, about in sorted(content(one).items())] + faults(one)
        for one in store.artifacts()
    }
    found["unfinished"] = sorted(p.name for p in store.root.glob("artifacts/*/.*"))
    found["rows"] = json.loads(headrace("trace", SECRET, "--json").stdout)["rows"]
    (told,) = (home() / "erasures/certificates").glob("*.json")
    certified = json.loads(told.read_text())
    made = [one | {"seconds": None} for one in certified["rebuilt"]]  # a time is never the same
    return found | {key: certified[key] for key in ("removed", "remains")} | {"rebuilt": made}


def fresh(folder: Path) -> Path:
    """The home as it was before anything was erased."""
    shutil.rmtree(folder / "killed", ignore_errors=True)
    shutil.copytree(folder / "made", folder / "killed")
    return folder / "killed"


def main() -> None:
    """A line a kill; status 1 where one was not made good."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kept", type=int, required=True)
    parser.add_argument("--points", type=int, required=True)
    given = parser.parse_args()
    folder = given.folder
    training = {"context": 32, "tokens": 7_680, "batch_tokens": 256, "packing": "best_fit"}
    sections = {"seed": 4, "pretrain": training | {"kept_checkpoints": given.kept}}
    (folder / "made").mkdir(parents=True)
    assert forked(lambda: built_home(folder, **sections), folder / "made") == 0
    clean = fresh(folder)
    assert forked(erase, clean) == 0
    points = int((clean / "points").read_text())
    os.environ["HEADRACE_HOME"] = str(clean / "home")
    sound, wrong = left(), 0
    draw = random.Random(given.kept)
    for first in sorted(draw.sample(range(1, points + 1), given.points)):
        killed = fresh(folder)
        ended = [forked(erase, killed, first), forked(erase, killed, draw.randrange(1, points))]
        status = forked(erase, killed)
        os.environ["HEADRACE_HOME"] = str(killed / "home")
        same = status == 0 and left() == sound
        wrong += not same
        print(
            f"point {first} of {points}: {ended}, {'as if never' if same else 'wrong'}", flush=True
        )
        assert ended[0] == -signal.SIGKILL
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
