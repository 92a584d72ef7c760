"""A document's trace: its rows, what holds them, who saw them when, and what they shaped.

trace = follow(Asked(text="...").check(), Store())
trace.told()          # what `headrace trace --json` prints
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.store import Store
from tasks.forgetting.asked import Asked
from tasks.forgetting.descent import descendants
from tasks.forgetting.exposure import Seen, exposure, is_training, told
from tasks.forgetting.influences import influences, kept_steps
from tasks.forgetting.places import Document, Places, places_of
from tasks.forgetting.rows import Found, find_rows


@dataclass(frozen=True)
class Trace:
    """What was found: rows, all that descends from the `read` artifacts with them (by fingerprint,
    ancestors first), the samples that each training saw.
    """

    found: Found
    affected: Mapping[str, Places]
    seen: Mapping[str, Sequence[Seen]]
    unknown: Mapping[str, str] = field(default_factory=dict)
    """Trainings, by name, of which it cannot be told what they saw, and why."""

    def told(self) -> dict[str, Any]:
        """As JSON has it."""
        trained = [(self.affected[print_].artifact, seen) for print_, seen in self.seen.items()]
        return {
            "rows": self.found.told(),
            "artifacts": [
                places.told(len(self.seen.get(print_, ())))
                for print_, places in self.affected.items()
            ],
            "samples": [one for model, seen in trained for one in told(model, seen)],
            "models": [_model(model, seen) for model, seen in trained],
            "unknown": dict(self.unknown),
            "influences": influences(self.affected),
        }


def follow(asked: Asked, store: Store) -> Trace:
    """The trace of what is asked through the artifacts of a home.

    Raises BadInput for a damaged artifact on the way.
    """
    artifacts = store.artifacts()
    reads = [a for a in reversed(artifacts) if a.manifest.stage == "read"]
    found = find_rows(asked, reads)
    affected: dict[str, Places] = {}
    for one in descendants(artifacts, [print_ for print_, ids in found.ids.items() if ids]):
        affected[one.fingerprint] = places_of(one, found.rows)
    seen: dict[str, Sequence[Seen]] = {}
    unknown: dict[str, str] = {}
    for print_, places in affected.items():
        if is_training(places.artifact):
            try:
                seen[print_] = _seen(places.artifact, affected, store)
            except BadInput as error:
                unknown[places.artifact.name] = str(error)
    return Trace(found, affected, seen, unknown)


def _seen(model: Artifact, affected: Mapping[str, Places], store: Store) -> list[Seen]:
    shards = _input(model, "shards", store)
    places = affected.get(shards.fingerprint)
    documents: Sequence[Document] = places.documents if places else ()
    tokenizer = _input(shards, "tokenizer", store)
    packing = _input(model, "packing", store) if "packing" in model.manifest.inputs else None
    return exposure(model, shards, tokenizer, packing, documents)


def _input(artifact: Artifact, name: str, store: Store) -> Artifact:
    fingerprint = str(artifact.manifest.inputs[name])
    stages = (name, "adopt") if name == "tokenizer" else (name,)
    for stage in stages:
        if found := store.find(stage, fingerprint):
            return found
    raise BadInput(
        f"the {name} that {artifact.name} was made from is gone, and with it the order of its "
        "samples; `headrace run` makes it again"
    )


def _model(model: Artifact, seen: Sequence[Seen]) -> dict[str, Any]:
    """First and last step that saw a row, and the checkpoints kept before the one and from the
    other on.
    """
    steps = [one.step for one in seen]
    first, last = (min(steps), max(steps)) if steps else (None, None)
    kept = kept_steps(model)
    return {
        "model": model.name,
        "steps": model.manifest.facts["steps"],
        "first": first,
        "last": last,
        "before": max((s for s in kept if first is None or s < first), default=None),
        "after": min((s for s in kept if last is not None and s >= last), default=None),
    }
