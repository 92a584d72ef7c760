"""What an erasure changes: every affected artifact with the identity of the one that takes its
place, and how that is made.

    rewritten   text without the rows; shards with tombstones in place of their documents
    carried     as it is: what rows only shaped, and models that never saw them
    replayed    trained again from its last checkpoint before the first step that saw one
    trained     trained again from the first step, as it has no such checkpoint
    rebuilt     made again by its stage, from what takes the place of its inputs
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from cluster.artifact import Artifact
from cluster.manifest import named_inputs
from cluster.store import Spec
from tasks.data.reading.erasures import Erasure
from tasks.forgetting.exposure import Seen, is_training
from tasks.forgetting.influences import kept_steps
from tasks.forgetting.keeping import key_of
from tasks.forgetting.text import is_text
from tasks.forgetting.trace import Trace

REWRITTEN, CARRIED = "rewritten", "carried"
REPLAYED, TRAINED, REBUILT = "replayed", "trained", "rebuilt"
MADE_HERE = (REWRITTEN, CARRIED)
LOCAL = ("decontaminate",)
"""Stages that are made again, and decide of each row by itself: all others stay as they were."""
OTHER = "this version of Headrace makes it from its first step on: it was made by another"
AGAIN = "what it is made from is made again, with other rows or in another order"


@dataclass(frozen=True)
class Change:
    """An affected artifact, what takes its place, how, and of a training from which step of how
    many; `why` says what stands in the way of a replay.
    """

    old: Artifact
    spec: Spec
    way: str
    step: int = 0
    steps: int = 0
    why: str = ""

    @property
    def name(self) -> str:
        """What the new artifact is called."""
        return f"{self.spec.stage}/{self.spec.folder}"

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "artifact": self.old.name,
            "becomes": self.name,
            "how": self.way,
            "from_step": self.step if self.steps else None,
            "steps": self.steps or None,
            "why": self.why if self.way == TRAINED else None,
        }


def changes(trace: Trace, erasure: Erasure) -> list[Change]:
    """Every affected artifact's change, those first that others are made from."""
    found: dict[str, Change] = {}
    swaps: dict[str, str] = {}
    for fingerprint, places in trace.affected.items():
        old = places.artifact
        spec = _spec(old, swaps, erasure)
        change = Change(old, spec, *_way(old, found, trace.seen.get(fingerprint)))
        found[fingerprint] = change
        swaps |= {fingerprint: spec.fingerprint, old.name: change.name, str(old.path): change.name}
    return list(found.values())


def settled(found: Sequence[Change], made: Mapping[str, Artifact]) -> list[Change]:
    """The changes as they came: what this version of Headrace makes under another identity was
    made from the start; `made` has what took an artifact's place, by the old fingerprint.
    """
    came = []
    for one in found:
        new = made.get(one.old.fingerprint)
        if new is not None and new.fingerprint != one.spec.fingerprint:
            about = new.manifest
            spec = replace(one.spec, settings=about.settings, inputs=about.inputs)
            spec = replace(spec, version=about.version)
            way = TRAINED if one.steps else REBUILT
            one = replace(one, spec=spec, way=way, step=0, why=OTHER)
        came.append(one)
    return came


def _spec(old: Artifact, swaps: Mapping[str, str], erasure: Erasure) -> Spec:
    """The identity of what takes an artifact's place."""
    about = old.manifest
    settings, inputs = swapped(about.settings, swaps), swapped(about.inputs, swaps)
    if about.stage == "read":
        for source in settings["settings"]["sources"]:
            if key_of(source) not in erasure.clear:
                source["erased"] = [*source["erased"], erasure.id]
    return Spec(about.stage, about.version, about.recipe, settings, inputs, about.label)


def swapped(value: Any, swaps: Mapping[str, str]) -> Any:
    """A value with some texts in it replaced, at any depth."""
    if isinstance(value, str):
        return swaps.get(value, value)
    if isinstance(value, Mapping):
        return {key: swapped(inner, swaps) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [swapped(inner, swaps) for inner in value]
    return value


def _way(
    old: Artifact, before: Mapping[str, Change], seen: Sequence[Seen] | None
) -> tuple[str, int, int, str]:
    """How what takes its place is made, from which step of how many, and why not otherwise."""
    inputs = {name: before.get(one) for name, one in named_inputs(old.manifest.inputs)}
    kept = all(change is None or _keeps(change) for change in inputs.values())
    if kept and is_text(old):
        return REWRITTEN, 0, 0, ""
    if kept and old.manifest.stage in ("shards", "tokenizer"):
        return (REWRITTEN if old.manifest.stage == "shards" else CARRIED), 0, 0, ""
    if not is_training(old):
        return REBUILT, 0, 0, "" if kept else AGAIN
    return _training(old, inputs, seen, kept)


def _keeps(change: Change) -> bool:
    """Whether what takes an artifact's place has all the rest of it where it was."""
    alike = change.spec.stage in (*LOCAL, "packing") and change.why != AGAIN
    return change.way in MADE_HERE or alike


def _training(
    old: Artifact, inputs: Mapping[str, Change | None], seen: Sequence[Seen] | None, kept: bool
) -> tuple[str, int, int, str]:
    steps: int = old.manifest.facts["steps"]
    if old.manifest.stage != "pretrain":
        return TRAINED, 0, steps, f"a {old.manifest.stage} run keeps no checkpoints on its way"
    if seen is None:
        return TRAINED, 0, steps, "what it saw, and when, cannot be told any more"
    if inputs.get("start") is not None:
        return TRAINED, 0, steps, "the model that it goes on from is another"
    if not kept:
        return TRAINED, 0, steps, AGAIN
    if not seen:
        return CARRIED, 0, 0, ""
    first = min(one.step for one in seen)
    if (step := max((s for s in kept_steps(old) if s < first), default=0)) == 0:
        return TRAINED, 0, steps, f"no checkpoint was kept before step {first}, which saw a row"
    return REPLAYED, step, steps, ""
