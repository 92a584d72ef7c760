"""A run before it runs: stages, their fingerprints, which are cached, and why the others are not.

A pipeline is a plain function that adds stages to a `Dag`. Fingerprints depend on settings and on
the fingerprints of inputs only, so all of them are known before anything starts. What the settings
name (sources, files, code) is looked up as the stage is added, each name once.
"""

import contextlib
import copy
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from cluster.artifact import Artifact
from cluster.catalogue import Found
from cluster.errors import BadInput
from cluster.manifest import Manifest
from cluster.runs import records
from cluster.settings import NONE, Content, Contents, contents, limits, nearest
from cluster.stage import StageInfo, check, info, specify
from cluster.store import Spec, Store
from flows.plan.reasons import changes

Key = tuple[str, str]  # stage and fingerprint


@dataclass(frozen=True)
class Node:
    """One stage of the run, with its arguments bound: other nodes, artifacts that are there, lists
    of either, literals.

    It starts when the nodes among its arguments are done, and `after`, which it takes nothing from.
    """

    name: str
    function: Callable[..., None]
    arguments: dict[str, Any]
    spec: Spec
    found: Artifact | None
    why: str
    after: "Node | None" = None

    @property
    def about(self) -> StageInfo:
        """Name, version and kind of the stage."""
        return info(self.function)

    @property
    def upstream(self) -> dict[str, "Node | list[Node]"]:
        """The arguments that are other nodes."""
        return {k: v for k, v in self.arguments.items() if _is_a(Node, v)}

    @property
    def needs(self) -> "list[Node]":
        """The nodes that have to end before it starts."""
        values = [v if isinstance(v, list) else [v] for v in self.upstream.values()]
        return [*chain.from_iterable(values), *([self.after] if self.after else [])]

    @property
    def given(self) -> dict[str, "Artifact | list[Artifact]"]:
        """The arguments that are artifacts of earlier runs."""
        return {k: v for k, v in self.arguments.items() if _is_a(Artifact, v)}

    @property
    def literals(self) -> dict[str, Any]:
        """The arguments that are settings, numbers or strings."""
        return {k: v for k, v in self.arguments.items() if not _is_input(v)}


class Dag:
    """The stages of a run in the order they were added."""

    def __init__(
        self,
        recipe: str,
        store: Store,
        rebuild: frozenset[str] = frozenset(),
    ):
        self.recipe, self.store, self.rebuild = recipe, store, rebuild
        self.contents: Contents = NONE
        self.labels: dict[Key, str] = {}
        self.user: tuple[str, ...] = ()
        self.users: dict[Key, dict[tuple[str, ...], None]] = defaultdict(dict)
        self._nodes: dict[Key, Node] = {}
        self._records = records(store.root)
        past = [(r.id, s) for r in self._records for s in r.stages if s.artifact]
        self._past = {stage.fingerprint for _, stage in past}
        self.built_by = {stage.fingerprint: run for run, stage in past if stage.state == "built"}
        self._catalogue = store.catalogue()

    @property
    def nodes(self) -> list[Node]:
        """The stages, in order."""
        return list(self._nodes.values())

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def look_up(self, mark: Content, name: Hashable) -> Any:
        """What a name in some settings stands for. Raises BadInput when nothing is behind it."""
        self.contents = contents(names=[(mark, name)], known=self.contents)
        return self.contents[mark, name]

    def add(
        self,
        function: Callable[..., None],
        label: str = "",
        after: Node | None = None,
        **arguments: Any,
    ) -> Node:
        """Add a stage; the node stands for its artifact in later calls.

        A stage that is there already is not added again. `label` tells members of a sweep apart;
        without one, `labels` may have it. `users` notes for which `user` it was added. A node to
        start `after` is no part of what the stage makes. Raises BadInput when the settings name
        what is not there, or an artifact that is found exceeds a tolerance of theirs.
        """
        spec = self._spec(function, label, arguments)
        name = f"{spec.stage}/{spec.label}" if spec.label else spec.stage
        forced = spec.stage in self.rebuild or name in self.rebuild
        if known := self._nodes.get((spec.stage, spec.fingerprint)):
            look = Found(known.found)
        else:
            look = Found() if forced else self._find(spec, arguments.get("settings"))
        if look.artifact:
            self._check(look.artifact, function, arguments)
            spec = replace(spec, settings=look.artifact.manifest.settings)  # its limits are its own
        key = spec.stage, spec.fingerprint
        self.users[key][self.user] = None
        if key not in self._nodes:
            kept = "unchanged" if look.artifact else self._why(spec, look.damage)
            why = "forced" if forced else kept
            self._nodes[key] = Node(name, function, arguments, spec, look.artifact, why, after)
        return self._nodes[key]

    def look_again(self, node: Node) -> Node:
        """The node of a stage that another run may have built since: it stands in the place of the
        one before. One that exceeds a tolerance is left to the stage itself, which tells of it.
        """
        found = self.store.find(node.spec.stage, node.spec.fingerprint)
        if found is None or node.why == "forced":
            return node
        with contextlib.suppress(BadInput):
            check(node.function, found.manifest, node.arguments)
            built = replace(node, found=found, why="built by another run meanwhile")
            self._nodes[node.spec.stage, node.spec.fingerprint] = built
            return built
        return node

    def past(self, stage: str, count: int) -> list[Manifest]:
        """Manifests of the newest artifacts that a stage left in this home."""
        return self._catalogue.newest(stage, count)

    @property
    def spent(self) -> list[dict[str, float]]:
        """What each of this home's completed runs took as a whole, oldest first."""
        return [record.spent for record in self._records if record.spent]

    def sketch(self) -> "Dag":
        """A plan against the same store, without a stage yet, to see what there would be."""
        twin = copy.copy(self)
        twin._nodes, twin.users = {}, defaultdict(dict)
        return twin

    def check_rebuild(self) -> None:
        """Raise BadInput when a stage to rebuild is not part of this run."""
        names = {n.name for n in self} | {n.spec.stage for n in self}
        for name in sorted(self.rebuild - names):
            raise BadInput(f"--rebuild {name}: no such stage in this run; {nearest(name, names)}")

    def _spec(self, function: Callable[..., None], label: str, arguments: dict[str, Any]) -> Spec:
        inputs = {k: _fingerprints(v) for k, v in arguments.items() if _is_input(v)}
        literals = {k: v for k, v in arguments.items() if not _is_input(v)}
        self.contents = contents(*literals.values(), known=self.contents)
        spec = specify(function, self.recipe, inputs, literals, label, self.contents)
        return replace(spec, label=label or self.labels.get((spec.stage, spec.fingerprint), ""))

    def _find(self, spec: Spec, settings: Any) -> Found:
        """The artifact of a spec, or one that would be the same under its limits."""
        look = self._catalogue.find(spec.stage, spec.fingerprint)
        names = [name for name in limits(settings) if name in spec.settings["settings"]]
        if look.artifact or not names:
            return look
        made = self._catalogue.made_by(spec.stage)
        same = (artifact for artifact in made if _is_within(names, artifact.manifest, spec))
        return Found(next(same, None), look.damage)

    def _check(
        self, found: Artifact, function: Callable[..., None], arguments: dict[str, Any]
    ) -> None:
        try:
            check(function, found.manifest, arguments)
        except BadInput as error:
            stage = found.manifest.stage
            raise BadInput(
                f"{found.name}, built before: {error}; or `--rebuild {stage}`"
            ) from error

    def _why(self, spec: Spec, damage: str) -> str:
        if damage:
            return damage
        if spec.fingerprint in self._past:
            return "its folder is gone"
        then = self._catalogue.earlier(spec.stage, spec.recipe, spec.label)
        return changes(then, spec) if then else "first build"


def _is_within(names: list[str], then: Manifest, now: Spec) -> bool:
    """Whether an artifact differs from a spec in some limits only, and no row in it reached a limit
    that is lower than the one wanted now.
    """
    if (then.version, then.inputs) != (now.version, now.inputs):
        return False
    old, new = then.settings["settings"], now.settings["settings"]
    if then.settings | {"settings": old | {n: new[n] for n in names}} != now.settings:
        return False
    reached = then.facts.get("reached", {})
    return all(not reached.get(name) or _most(old[name]) >= _most(new[name]) for name in names)


def _most(limit: float | None) -> float:
    """A limit; null is none."""
    return math.inf if limit is None else limit


def _is_input(value: Any) -> bool:
    return _is_a(Node, value) or _is_a(Artifact, value)


def _is_a(kind: type, value: Any) -> bool:
    """Whether it is one of them, or a list of them that is not empty."""
    return isinstance(value[0] if isinstance(value, list) and value else value, kind)


def _fingerprints(value: Any) -> str | list[str]:
    if isinstance(value, list):
        return [str(_fingerprints(inner)) for inner in value]
    return str(value.spec.fingerprint if isinstance(value, Node) else value.fingerprint)
