"""A stage: a plain function from artifacts and settings to an artifact, with a name and a version.

    @stage(version=1)
    def filter_text(raw: Artifact, settings: FilterSettings, draft: Draft) -> None: ...

The function takes artifacts (or lists of them), literals (settings, numbers, strings) and the draft
it writes to, all by keyword. Literals and input fingerprints are its identity; an argument with a
default may be left out of both. It stays an ordinary function: tests call `build`, which runs it
against a store without Prefect or Ray.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from cluster import handover
from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.manifest import Ledger
from cluster.placement import Placement
from cluster.settings import NONE, Contents, contents, plain
from cluster.store import Draft, Spec, Store
from cluster.tracking import Tracker

Function = TypeVar("Function", bound=Callable[..., None])


class Outcome(Protocol):
    """What a gate looks at: a draft that is complete, or a manifest."""

    @property
    def ledger(self) -> Ledger | None:
        """What became of its rows."""

    @property
    def facts(self) -> dict[str, Any]:
        """What the stage found."""


@dataclass(frozen=True)
class StageInfo:
    """What the decorator records about a stage function."""

    name: str
    version: int
    trains: bool
    scores: bool
    tracked: bool
    gate: Callable[[Outcome, Any], None] | None


def stage(
    version: int,
    *,
    name: str | None = None,
    trains: bool = False,
    scores: bool = False,
    tracked: bool = False,
    gate: Callable[[Any, Any], None] | None = None,
) -> Callable[[Function], Function]:
    """Mark a function as a stage.

    Raise `version` when its output changes for the same settings. `trains`: it runs the training
    loop, so it gets the placement's devices and a tracked run; `scores`: it runs a network alone,
    on one of the devices; `tracked`: it gets a tracked run alone.
    `gate(outcome, settings)` raises BadInput when what was recorded exceeds a tolerance of its
    `settings`; it is asked when the stage has been built, and whenever its artifact is found.
    """

    def mark(function: Function) -> Function:
        label = name or str(function.__name__)
        about = StageInfo(label, version, trains, scores, trains or tracked, gate)
        setattr(function, "__stage__", about)  # noqa: B010
        return function

    return mark


def info(function: Callable[..., None]) -> StageInfo:
    """The record of a stage function."""
    found: StageInfo = function.__stage__  # pyrefly: ignore[missing-attribute]
    return found


def specify(
    function: Callable[..., None],
    recipe: str,
    inputs: dict[str, str | list[str]],
    literals: dict[str, Any],
    label: str = "",
    found: Contents = NONE,
) -> Spec:
    """The spec of one stage run: `inputs` are fingerprints by argument name, `found` is what the
    names in its settings stand for.
    """
    about = info(function)
    parameters = {k: p for k, p in inspect.signature(function).parameters.items() if k != "draft"}
    needed = {name for name, p in parameters.items() if p.default is p.empty}
    given = set(inputs) | set(literals)
    assert needed <= given <= set(parameters), (
        f"stage {about.name} takes {sorted(parameters)}, got {sorted(given)}"
    )
    settings = {key: plain(value, found) for key, value in literals.items()}
    return Spec(about.name, about.version, recipe, settings, inputs, label)


def check(function: Callable[..., None], outcome: Outcome, literals: dict[str, Any]) -> None:
    """Raise BadInput when an outcome exceeds a tolerance of the stage's settings."""
    if gate := info(function).gate:
        gate(outcome, literals["settings"])


def build(
    function: Callable[..., None],
    store: Store,
    *,
    spec: Spec | None = None,
    recipe: str = "test",
    placement: Placement | None = None,
    tracker: Tracker | None = None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    force: bool = False,
    work: Mapping[str, float] | None = None,
    **arguments: Any,
) -> Artifact:
    """Run a stage unless the store has its artifact already; the artifact.

    `arguments` are the function's own: artifacts, lists of artifacts, literals. `spec` is the one
    that was planned; without it, what the settings name is looked up here. `work` are figures of
    what there is to do, for the manifest.
    Raises BadInput as the stage and its gate do, and when an input or what the settings name is no
    longer what was planned.
    """
    inputs, literals = _split(arguments)
    if spec is None:
        spec = specify(function, recipe, inputs, literals, found=contents(*literals.values()))
    elif replaced := sorted(name for name in inputs if inputs[name] != spec.inputs[name]):
        raise BadInput(f"{', '.join(replaced)}: replaced since the run was planned; run again")
    with store.writer(spec):
        found = None if force else store.find(spec.stage, spec.fingerprint)
        if found is None:
            with store.draft(spec, placement, tracker, on_progress, force, work) as draft:
                function(**arguments, draft=draft)
                _check_unchanged(draft, literals)
                check(function, draft, literals)
            found = Artifact.load(store.folder(spec))
        else:
            check(function, found.manifest, literals)
    return found


def _check_unchanged(draft: Draft, literals: dict[str, Any]) -> None:
    """Raise BadInput, and drop all that is unfinished, when a file, source or function that the
    settings name is no longer what the draft's identity says.
    """
    found = contents(*literals.values())
    changed = []
    for key, value in literals.items():
        planned, now = draft.spec.settings[key], plain(value, found)
        if planned != now:
            changed += [f"{key}.{name}" for name in planned if planned[name] != now[name]]
    if changed:
        handover.forget(draft.scratch)
        raise BadInput(
            f"what {', '.join(changed)} of stage '{draft.spec.stage}' names changed while it was "
            "used; run again when nothing writes to it"
        )


def _split(arguments: dict[str, Any]) -> tuple[dict[str, str | list[str]], dict[str, Any]]:
    inputs: dict[str, str | list[str]] = {}
    literals = {}
    for key, value in arguments.items():
        if isinstance(value, Artifact):
            inputs[key] = value.fingerprint
        elif isinstance(value, list) and value and isinstance(value[0], Artifact):
            inputs[key] = [a.fingerprint for a in value]
        else:
            literals[key] = value
    return inputs, literals
