"""A stage killed at every sync, rename and removal of a file, then run again: the clean result.

    python -m tests.chaos.crash_points FOLDER                 # every stage of the recipe `smoke`
    python -m tests.chaos.crash_points FOLDER --goal pretrain --stages pretrain
    python -m tests.chaos.crash_points FOLDER --each 3       # of every kind of point, three
    python -m tests.chaos.crash_points FOLDER --like rename  # of those kinds alone

Each stage is built once undisturbed, in `FOLDER/clean`. Then, for each point, a process of its own
builds it in a home of its own and is killed there; another builds it again, and both have to be the
same, file by file and loss by loss. So is a forced rebuild, over what is there; what follows it
is by turns another and a build that takes what there is. What native libraries write by themselves,
databases among it, has no points.
"""

import argparse
import importlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.artifact import Artifact, faults
from cluster.placement import Placement
from cluster.stage import build, info
from cluster.store import Store
from flows.end_to_end import plan
from flows.plan.dag import Dag, Node
from flows.recipe import Recipe, load
from tests.chaos.witness import STEPS, content, losses

POINTS = ("fsync", "unlink", "remove", "rmdir", "rename", "replace")
IMPORTED = {
    "tasks",
    "model",
    "numpy",
    "pandas",
    "numba",
    "torch",
    "pyarrow",
    "safetensors",
    "tokenizers",
    "sklearn",
}


@dataclass(frozen=True)
class Swept:
    """One stage: at how many points it was killed, and where that was not made good."""

    stage: str
    forced: bool
    points: int
    wrong: list[str]


class Sweep:
    """The stages of a recipe, each killed at every point, or of each kind that `like` finds at so
    many: the first, the last and some between.
    """

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        goal: str,
        each: int | None = None,
        like: str = "",
        stages: Collection[str] = (),
        ways: Collection[bool] = (False, True),
    ):
        self.clean, self.killed = folder / "clean", folder / "killed"
        self.each, self.like, self.stages, self.ways = each, re.compile(like), stages, ways
        self._modules, self._done = folder / "modules.txt", folder / "done.txt"
        os.environ["HEADRACE_HOME"] = str(self.clean)
        self.dag = plan(goal, Dag(recipe.name, Store(self.clean)), recipe)

    def run(self) -> Iterator[Swept]:
        """Every stage, in order, afresh and then as a forced rebuild, or in one of these `ways`;
        `stages` alone, if given.
        """
        for node in self.dag:
            assert self._built(node, self.clean) == 0, f"{node.name} cannot be built undisturbed"
            if self.stages and node.spec.stage not in self.stages:
                continue
            self._import_as_it_did()
            for forced in self.ways:
                yield self._stage(node, forced)

    def _stage(self, node: Node, forced: bool) -> Swept:
        wrong, points = list[str](), self._points(node, forced)
        for number, point in enumerate(points):
            self._prepare(node, forced)
            ended = self._built(node, self.killed, point, forced)
            if ended != -signal.SIGKILL:
                wrong.append(f"point {point}: status {ended}")
            elif again := self._built(node, self.killed, force=forced and number % 2 == 0):
                wrong.append(f"point {point}: run again, status {again}")
            elif difference := self._difference(node):
                wrong.append(f"point {point}: {difference}")
        return Swept(node.name, forced, len(points), wrong)

    def _prepare(self, node: Node, forced: bool) -> None:
        """A home with nothing in it, or with what is to be built again."""
        shutil.rmtree(self.killed, ignore_errors=True)
        if forced:
            shutil.copytree(self._folder(node, self.clean), self._folder(node, self.killed))

    def _points(self, node: Node, forced: bool) -> list[int]:
        """Where to kill a stage, by what it does when nobody does."""
        self._prepare(node, forced)
        assert self._built(node, self.killed, force=forced) == 0
        kinds: dict[str, list[int]] = {}
        for point, kind in enumerate(self._done.read_text().splitlines(), start=1):
            if self.like.search(kind):
                kinds.setdefault(kind, []).append(point)
        return sorted(point for found in kinds.values() for point in spread(found, self.each))

    def _built(self, node: Node, home: Path, point: int = 0, force: bool = False) -> int:
        """How a process ended that built a stage in a home, and was killed at a point."""
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            status = 1
            try:
                os.environ["HEADRACE_HOME"] = str(home)
                done = kill_at(point)
                inputs = {name: self._loaded(value) for name, value in node.upstream.items()}
                # A checkpoint at each step: more to be killed at.
                seconds = 1e-6 if info(node.function).trains else 300.0
                build(
                    node.function,
                    Store(home),
                    spec=node.spec,
                    force=force,
                    placement=Placement(checkpoint_seconds=seconds),
                    **inputs,
                    **node.literals,
                )
                self._modules.write_text("\n".join(sys.modules))
                self._done.write_text("\n".join(done))
                status = 0
            except BaseException as error:
                print(f"{node.name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            finally:
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def _import_as_it_did(self) -> None:
        """Import here what a stage imported: the processes that are forked need not again."""
        for name in self._modules.read_text().splitlines():
            if name.partition(".")[0] in IMPORTED:
                importlib.import_module(name)

    def _loaded(self, value: Node | list[Node]) -> Any:
        if isinstance(value, Node):
            return Artifact.load(self._folder(value, self.clean))
        return [self._loaded(node) for node in value]

    def _folder(self, node: Node, home: Path) -> Path:
        return Store(home).folder(node.spec)

    def _difference(self, node: Node) -> str:
        """What a stage made anew has that the clean one has not, or "" for nothing."""
        found = Store(self.killed).find(node.spec.stage, node.spec.fingerprint)
        if found is None:
            return "nothing is there"
        if len(Store(self.killed).artifacts()) != 1:
            return "more than one artifact is there"
        if damaged := faults(found):
            return f"damaged: {'; '.join(damaged)}"
        folder = self._folder(node, self.clean)
        sound, made = content(Artifact.load(folder)), content(found)
        other = sorted(n for n in sound.keys() | made.keys() if sound.get(n) != made.get(n))
        if (found.path / STEPS).exists() and losses(found.path) != losses(folder):
            other.append(f"losses of {STEPS}")
        return f"other content: {', '.join(other)}" if other else ""


def spread(points: list[int], most: int | None) -> list[int]:
    """So many of some points at most, the first and the last among them."""
    if most is None or len(points) <= most:
        return points
    ends = max(1, most - 1)
    return [points[(len(points) - 1) * number // ends] for number in range(most)]


def kill_at(point: int) -> list[str]:
    """Have this process killed when it is about to do the `point`th of what `POINTS` names, never
    for 0; what it has done of that, by kind, which grows.
    """
    done: list[str] = []

    def killing(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            done.append(f"{name} {_kind(arguments[0])}")
            if len(done) == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in POINTS:  # `pathlib` and `shutil` look them up when they are called
        setattr(os, name, killing(name, getattr(os, name)))
    return done


def _kind(what: int | str | os.PathLike[str]) -> str:
    """A file's name, by a handle or a path, without what makes it one of many."""
    path = Path(f"/proc/self/fd/{what}").readlink() if isinstance(what, int) else Path(what)
    return re.sub(r"[0-9a-f]*[0-9][0-9a-f]*", "#", path.name)


def main() -> None:
    """Sweep, a line for each stage; status 1 where something was not made good."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--goal", default="all")
    parser.add_argument("--each", type=int, help="points of a kind, such as `fsync shard-#`")
    parser.add_argument("--like", default="", help="an expression that finds such kinds")
    parser.add_argument("--stages", default="", help="the stages to kill, by comma; none: all")
    parser.add_argument("--rebuilt", action="store_true", help="forced rebuilds alone")
    parser.add_argument("--recipe", default="smoke")
    parser.add_argument("--set", action="append", default=[], dest="changes")
    given = parser.parse_args()
    recipe = load(given.recipe, given.changes)
    points, wrong = 0, 0
    stages = [name for name in given.stages.split(",") if name]
    ways = (True,) if given.rebuilt else (False, True)
    sweep = Sweep(given.folder, recipe, given.goal, given.each, given.like, stages, ways)
    for swept in sweep.run():
        points, wrong = points + swept.points, wrong + len(swept.wrong)
        how = "rebuilt" if swept.forced else "built"
        print(f"{swept.stage} {how}: {swept.points} points, {len(swept.wrong)} wrong", flush=True)
        print("".join(f"  {line}\n" for line in swept.wrong), end="")
    print(f"{points} points, {wrong} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
