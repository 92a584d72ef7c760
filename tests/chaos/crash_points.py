"""A stage killed at every sync, rename and removal of a file, then run again: the clean result.

    python -m tests.chaos.crash_points FOLDER                 # every stage of the recipe `smoke`
    python -m tests.chaos.crash_points FOLDER --goal data --every 7 --first 3
    python -m tests.chaos.crash_points FOLDER --goal pretrain --stages pretrain

Each stage is built once undisturbed, in `FOLDER/clean`. Then, for each point, a process of its own
builds it in a home of its own and is killed there; another builds it again, and both have to be the
same, file by file. So is a forced rebuild, over what is there. What native libraries write by
themselves, databases among it, has no points.
"""

import argparse
import importlib
import os
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
from tests.chaos.witness import content

POINTS = ("fsync", "unlink", "remove", "rmdir", "rename", "replace")
MOST_POINTS = 2000
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
    """The stages of a recipe, each killed at every `every`th point from the `first` on."""

    def __init__(
        self,
        folder: Path,
        recipe: Recipe,
        goal: str,
        every: int = 1,
        first: int = 1,
        stages: Collection[str] = (),
    ):
        self.clean, self.killed = folder / "clean", folder / "killed"
        self.every, self.first, self.stages = every, first, stages
        self._modules = folder / "modules.txt"
        os.environ["HEADRACE_HOME"] = str(self.clean)
        self.dag = plan(goal, Dag(recipe.name, Store(self.clean)), recipe)

    def run(self) -> Iterator[Swept]:
        """Every stage, in order, afresh and then as a forced rebuild; `stages` alone, if given."""
        for node in self.dag:
            assert self._built(node, self.clean) == 0, f"{node.name} cannot be built undisturbed"
            if self.stages and node.spec.stage not in self.stages:
                continue
            self._import_as_it_did()
            for forced in (False, True):
                yield self._stage(node, forced)

    def _stage(self, node: Node, forced: bool) -> Swept:
        wrong, killed = list[str](), 0
        for point in range(self.first, MOST_POINTS, self.every):
            shutil.rmtree(self.killed, ignore_errors=True)
            if forced:
                made = self._folder(node, self.killed)
                shutil.copytree(self._folder(node, self.clean), made)
            ended = self._built(node, self.killed, point, forced)
            if ended != -signal.SIGKILL:
                wrong += [f"point {point}: status {ended}"] if ended else []
                break
            killed += 1
            if again := self._built(node, self.killed):
                wrong.append(f"point {point}: run again, status {again}")
            elif difference := self._difference(node):
                wrong.append(f"point {point}: {difference}")
        return Swept(node.name, forced, killed, wrong)

    def _built(self, node: Node, home: Path, point: int = 0, force: bool = False) -> int:
        """How a process ended that built a stage in a home, and was killed at a point."""
        sys.stdout.flush()
        if (child := os.fork()) == 0:
            status = 1
            try:
                os.environ["HEADRACE_HOME"] = str(home)
                kill_at(point)
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
        sound, made = content(Artifact.load(self._folder(node, self.clean))), content(found)
        other = sorted(n for n in sound.keys() | made.keys() if sound.get(n) != made.get(n))
        return f"other content: {', '.join(other)}" if other else ""


def kill_at(point: int) -> list[int]:
    """Have this process killed when it is about to do the `point`th of what `POINTS` names, never
    for 0; how many are left until then, as they are done.
    """
    left = [point]

    def killing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in POINTS:  # `pathlib` and `shutil` look them up when they are called
        setattr(os, name, killing(getattr(os, name)))
    return left


def main() -> None:
    """Sweep, a line for each stage; status 1 where something was not made good."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--goal", default="all")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--stages", default="", help="the stages to kill, by comma; none: all")
    parser.add_argument("--recipe", default="smoke")
    parser.add_argument("--set", action="append", default=[], dest="changes")
    given = parser.parse_args()
    recipe = load(given.recipe, given.changes)
    points, wrong = 0, 0
    stages = [name for name in given.stages.split(",") if name]
    sweep = Sweep(given.folder, recipe, given.goal, given.every, given.first, stages)
    for swept in sweep.run():
        points, wrong = points + swept.points, wrong + len(swept.wrong)
        how = "rebuilt" if swept.forced else "built"
        print(f"{swept.stage} {how}: {swept.points} points, {len(swept.wrong)} wrong", flush=True)
        print("".join(f"  {line}\n" for line in swept.wrong), end="")
    print(f"{points} points, {wrong} wrong")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
