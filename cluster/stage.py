"""A stage: a plain function from artifacts and settings to an artifact, with a name and a version.

    @stage(version=1)
    def filter_text(raw: Artifact, settings: FilterSettings, draft: Draft) -> None: ...

The function takes artifacts (or lists of them), literals (settings, numbers, strings) and the draft
it writes to, all by keyword. Literals and input fingerprints are its identity; an argument with a
default may be left out of both. It stays an ordinary function: tests call `build`, which runs it
against a store without Prefect or Ray.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from cluster.artifact import Artifact
from cluster.placement import Placement
from cluster.settings import Settings
from cluster.store import Spec, Store
from cluster.tracking import Tracker

Function = TypeVar("Function", bound=Callable[..., None])


@dataclass(frozen=True)
class StageInfo:
    """What the decorator records about a stage function."""

    name: str
    version: int
    trains: bool
    tracked: bool
    identity: Callable[[Any], Any] | None


def stage(
    version: int,
    *,
    name: str | None = None,
    trains: bool = False,
    tracked: bool = False,
    identity: Callable[[Any], Any] | None = None,
) -> Callable[[Function], Function]:
    """Mark a function as a stage.

    Raise `version` when its output changes for the same settings. `trains`: it runs the training
    loop, so it gets the placement's devices and a tracked run; `tracked`: a tracked run alone.
    `identity` replaces the identity of its `settings` where these name things by path (sources are
    identified by content).
    """

    def mark(function: Function) -> Function:
        label = name or str(function.__name__)
        about = StageInfo(label, version, trains, trains or tracked, identity)
        setattr(function, "__stage__", about)  # noqa: B010
        return function

    return mark


def info(function: Callable[..., None]) -> StageInfo:
    """The record of a stage function."""
    found: StageInfo = function.__stage__  # type: ignore[attr-defined]
    return found


def specify(
    function: Callable[..., None],
    recipe: str,
    inputs: dict[str, str | list[str]],
    literals: dict[str, Any],
    label: str = "",
) -> Spec:
    """The spec of one stage run: `inputs` are fingerprints by argument name."""
    about = info(function)
    parameters = {k: p for k, p in inspect.signature(function).parameters.items() if k != "draft"}
    needed = {name for name, p in parameters.items() if p.default is p.empty}
    given = set(inputs) | set(literals)
    assert needed <= given <= set(parameters), (
        f"stage {about.name} takes {sorted(parameters)}, got {sorted(given)}"
    )
    settings = {key: _identity(about, key, value) for key, value in literals.items()}
    return Spec(about.name, about.version, recipe, settings, inputs, label)


def _identity(about: StageInfo, key: str, value: Any) -> Any:
    if key == "settings" and about.identity:
        return about.identity(value)
    return value.identity() if isinstance(value, Settings) else value


def build(
    function: Callable[..., None],
    store: Store,
    *,
    recipe: str = "test",
    label: str = "",
    placement: Placement | None = None,
    tracker: Tracker | None = None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    force: bool = False,
    **arguments: Any,
) -> Artifact:
    """Run a stage unless the store has its artifact already; the artifact.

    `arguments` are the function's own: artifacts, lists of artifacts, literals.
    """
    spec = specify(function, recipe, *_split(arguments), label)
    with store.writer(spec):
        found = None if force else store.find(spec.stage, spec.fingerprint)
        if found is None:
            with store.draft(spec, placement, tracker, on_progress) as draft:
                function(**arguments, draft=draft)
            found = Artifact.load(store.folder(spec))
    return found


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
