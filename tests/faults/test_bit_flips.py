"""A bit flipped anywhere in what a run has made: `verify` finds it, and no stage takes it silently.

Every flip goes through the command and through every stage that reads the damaged artifact, which
fails naming the file and what to do, or makes what it made of the sound one.
"""

import json
import random
import shutil
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.manifest import MANIFEST
from cluster.stage import build
from cluster.store import Store
from flows.cli import app
from flows.end_to_end import plan
from flows.plan.dag import Dag, Node
from flows.recipe import SHIPPED, Recipe, load
from tests.chaos.witness import content

MODULES = ("textwrap", "string", "shlex", "queue", "sched", "heapq", "bisect", "copy", "types")


class Made:
    """The artifacts of a plan, and what stages make of them when one is damaged."""

    def __init__(self, root: Path, goal: str, recipe: Recipe, quiet: tuple[str, ...] = ()):
        self.scratch, self.quiet = root / "scratch", quiet
        self.dag = plan(goal, Dag(recipe.name, Store(root / "home")), recipe)
        self.paths: dict[str, Path] = {}
        for node in self.dag:
            self.paths[node.name] = self.build(node, self.dag.store).path
        self.unread: set[tuple[str, str, str]] = set()

    def build(self, node: Node, store: Store) -> Artifact:
        """A stage on artifacts as they lie there now."""
        inputs = {name: self.load(value) for name, value in node.upstream.items()}
        return build(node.function, store, spec=node.spec, **inputs, **node.literals)

    def load(self, value: Node | list[Node]) -> Any:
        if isinstance(value, Node):
            return Artifact.load(self.paths[value.name])
        return [self.load(node) for node in value]

    def places(self, count: int, seed: int) -> Iterator[tuple[Node, str, int]]:
        """Node, file and bit of some flips: all files in turn, the bit at random."""
        draws = random.Random(seed)
        files = [
            (node, file.relative_to(self.paths[node.name]).as_posix(), file.stat().st_size)
            for node in self.dag
            for file in sorted(self.paths[node.name].rglob("*"))
            if file.is_file() and file.stat().st_size
        ]
        draws.shuffle(files)
        for number in range(count):
            node, name, size = files[number % len(files)]
            yield node, name, draws.randrange(8 * size)

    def readers(self, node: Node) -> list[Node]:
        """The stages that take an artifact, but for those that are to be left out."""
        taken = {
            reader.name: [
                one.name
                for value in reader.upstream.values()
                for one in (value if isinstance(value, list) else [value])
            ]
            for reader in self.dag
            if reader.name not in self.quiet
        }
        return [reader for reader in self.dag if node.name in taken.get(reader.name, ())]

    def use(self, node: Node, name: str) -> None:
        """Let all readers of a damaged file work; those that do not read it need not again."""
        for reader in self.readers(node):
            if (node.name, name, reader.name) in self.unread:
                continue
            shutil.rmtree(self.scratch, ignore_errors=True)
            try:
                made = self.build(reader, Store(self.scratch))
            except BadInput as error:
                assert Path(name).name in str(error), f"{reader.name} does not name {name}: {error}"
                assert "headrace " in str(error), f"{reader.name} names no remedy: {error}"
            else:
                sound = Artifact.load(self.paths[reader.name])
                assert content(made) == content(sound), f"{reader.name} took {name} as it was"
                self.unread.add((node.name, name, reader.name))


@contextmanager
def flipped(path: Path, bit: int) -> Iterator[None]:
    def flip() -> None:
        with path.open("r+b") as file:
            file.seek(bit // 8)
            (byte,) = file.read(1)
            file.seek(bit // 8)
            file.write(bytes([byte ^ 1 << bit % 8]))

    flip()
    try:
        yield
    finally:
        flip()


def check(made: Made, count: int, seed: int) -> None:
    for node, name, bit in made.places(count, seed):
        folder = made.paths[node.name]
        with flipped(folder / name, bit):
            with pytest.raises(BadInput, match=rf"1 damaged: {folder.parent.name}/{folder.name};"):
                app(["verify", "--json"], standalone_mode=False)
            found = made.dag.store.catalogue().find(node.spec.stage, node.spec.fingerprint)
            if name == MANIFEST:
                assert found.artifact is None and found.damage == "its artifact.json is damaged"
                with pytest.raises(BadInput, match=r"artifact\.json cannot be read.*headrace run"):
                    Artifact.load(folder)
            else:
                made.use(node, name)
    app(["verify", "--json"], standalone_mode=False)  # all of it is whole again


def small(folder: Path, **changes: str) -> Recipe:
    """The recipe `smoke` on a few modules, with a short training."""
    (folder / "in").mkdir()
    for module in MODULES:
        shutil.copy(Path(sysconfig.get_path("stdlib")) / f"{module}.py", folder / "in")
    wanted = {
        "sources": f'[{{path: "{folder}/in"}}]',
        "shards.heldout_share": "0.3",
        "pretrain.tokens": "2000",
        "pretrain.batch_tokens": "256",
    }
    overrides = [f"{key}={value}" for key, value in (wanted | changes).items()]
    return load(str(SHIPPED / "smoke.yaml"), overrides)


def test_d13_no_flip_in_a_small_run_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    recipe = small(tmp_path, **{"pretrain.packing": "best_fit"})
    made = Made(tmp_path, "pretrain", recipe, quiet=("report",))  # it reads little of much
    assert {"read", "shards", "packing", "pretrain", "report"} <= set(made.paths)
    check(made, 60, seed=7)


@pytest.mark.slow
def test_no_flip_of_400_in_a_whole_run_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    check(Made(tmp_path, "all", load("smoke")), 400, seed=7)


@pytest.mark.slow
def test_no_flip_in_vectors_or_preferences_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kinds of artifact that `smoke` has not, and what reads them; an exam of the last model."""
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    rows = [{"prompt": f"say {n}", "chosen": f"{n} it is", "rejected": "no"} for n in range(20)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rows.jsonl").write_text('{"question": "say", "choices": ["a", "b"], "answer": 0}')
    exam = tmp_path / "mine.yaml"
    exam.write_text("name: mine\nkind: choice\nrows: rows.jsonl\nprompt: '{{question}}'\n")
    more = {
        "vectors": "{window: 2, width: 8, min_count: 2, epochs: 1}",
        "dense": "[{}]",
        "instruct.tokens": "1000",
        "prefer": f'{{data: "{tmp_path}/pairs.jsonl", batch_rows: 8}}',
        "evaluate.exams": f"['{exam}']",
    }
    without = dict.fromkeys(("sweep", "classify", "evaluate.answers"), "null")
    made = Made(tmp_path, "all", small(tmp_path, **more, **without), quiet=("report",))
    assert {"vectors", "dense/network", "preferences", "prefer", "exam/mine"} <= set(made.paths)
    check(made, 80, seed=7)
