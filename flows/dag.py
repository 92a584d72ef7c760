"""A run before it runs: stages, their fingerprints, which are cached, and why the others are not.

A pipeline is a plain function that adds stages to a `Dag`. Fingerprints depend on settings and on
the fingerprints of inputs only, so all of them are known before anything starts.
"""

import copy
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from cluster.artifact import Artifact, Manifest
from cluster.catalogue import Found
from cluster.errors import BadInput
from cluster.runs import records
from cluster.settings import nearest
from cluster.stage import StageInfo, info, specify
from cluster.store import Spec, Store

Key = tuple[str, str]  # stage and fingerprint


@dataclass(frozen=True)
class Node:
    """One stage of the run, with its arguments bound: other nodes, lists of nodes, literals.

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
        return {k: v for k, v in self.arguments.items() if _is_node(v)}

    @property
    def literals(self) -> dict[str, Any]:
        """The arguments that are settings, numbers or strings."""
        return {k: v for k, v in self.arguments.items() if not _is_node(v)}


class Dag:
    """The stages of a run in the order they were added.

    What only a shared store has is fetched when it is found, unless `fetch` is off: a plan that is
    only looked at reads manifests and no more.
    """

    def __init__(
        self,
        recipe: str,
        store: Store,
        rebuild: frozenset[str] = frozenset(),
        fetch: bool = True,
    ):
        self.recipe, self.store, self.rebuild = recipe, store, rebuild
        self.nodes: list[Node] = []
        self.labels: dict[Key, str] = {}
        self.user: tuple[str, ...] = ()
        self.users: dict[Key, dict[tuple[str, ...], None]] = defaultdict(dict)
        self._past = {s.fingerprint for r in records(store.root) for s in r.stages if s.artifact}
        self._catalogue = store.catalogue(fetch)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

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
        start `after` is no part of what the stage makes.
        """
        inputs = {k: _fingerprints(v) for k, v in arguments.items() if _is_node(v)}
        literals = {k: v for k, v in arguments.items() if not _is_node(v)}
        spec = specify(function, self.recipe, inputs, literals, label)
        key = spec.stage, spec.fingerprint
        self.users[key][self.user] = None
        for node in self.nodes:
            if (node.spec.stage, node.spec.fingerprint) == key:
                return node
        label = label or self.labels.get(key, "")
        spec = replace(spec, label=label)
        name = f"{spec.stage}/{label}" if label else spec.stage
        forced = spec.stage in self.rebuild or name in self.rebuild
        look = Found() if forced else self._catalogue.find(spec.stage, spec.fingerprint)
        why = "forced" if forced else "unchanged" if look.artifact else self._why(spec, look.damage)
        node = Node(name, function, arguments, spec, look.artifact, why, after)
        self.nodes.append(node)
        return node

    def sketch(self) -> "Dag":
        """A plan against the same store, without a stage yet, to see what there would be."""
        twin = copy.copy(self)
        twin.nodes, twin.users = [], defaultdict(dict)
        return twin

    def check_rebuild(self) -> None:
        """Raise BadInput when a stage to rebuild is not part of this run."""
        names = {n.name for n in self.nodes} | {n.spec.stage for n in self.nodes}
        for name in sorted(self.rebuild - names):
            raise BadInput(f"--rebuild {name}: no such stage in this run; {nearest(name, names)}")

    def _why(self, spec: Spec, damage: str) -> str:
        if damage:
            return damage
        if spec.fingerprint in self._past:
            return "its folder is gone"
        then = self._catalogue.earlier(spec.stage, spec.recipe, spec.label)
        return changes(then, spec) if then else "first build"


def changes(then: Manifest, now: Spec) -> str:
    """What differs between an earlier artifact of a stage and the one wanted now, in words."""
    found = []
    if then.version != now.version:
        found.append(f"stage version {then.version} -> {now.version}")
    old, new = _flat(then.settings), _flat(now.settings)
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key):
            found.append(f"{key} {_short(old.get(key))} -> {_short(new.get(key))}")
    for name in sorted(then.inputs.keys() | now.inputs.keys()):
        if then.inputs.get(name) != now.inputs.get(name):
            found.append(f"its {name} changed")
    return ", ".join(found) or "first build"


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys; the leading `settings.` is dropped."""
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = {str(i): v for i, v in enumerate(value)}.items()
    else:
        return {prefix.removeprefix("settings."): value}
    flat: dict[str, Any] = {}
    for key, inner in pairs:
        flat |= _flat(inner, f"{prefix}.{key}" if prefix else key)
    return flat


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 24 else text[:10] + "…"


def _is_node(value: Any) -> bool:
    return isinstance(value, Node) or (
        isinstance(value, list) and bool(value) and isinstance(value[0], Node)
    )


def _fingerprints(value: Node | list[Node]) -> str | list[str]:
    if isinstance(value, Node):
        return value.spec.fingerprint
    return [node.spec.fingerprint for node in value]
