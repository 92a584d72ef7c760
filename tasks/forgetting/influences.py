"""What a document shaped without being contained in it: merges, choices, what was learned."""

from collections.abc import Iterator, Mapping
from typing import Any

from cluster.artifact import Artifact
from cluster.manifest import named_inputs
from tasks.forgetting.places import Places

Influence = dict[str, Any]
SHOWN = 20


def influences(affected: Mapping[str, Places]) -> list[Influence]:
    """The influences on the artifacts of an affected corpus, by fingerprint, in their order."""
    found = []
    for places in affected.values():
        for how, rows, more in _of(places, affected):
            about = {"artifact": places.artifact.name, "stage": places.artifact.manifest.stage}
            found.append({**about, "how": how, "rows": rows, **more})
    return found


def _of(places: Places, affected: Mapping[str, Places]) -> Iterator[tuple[str, int, Influence]]:
    about = places.artifact.manifest
    taken = _rows_taken(about.inputs, affected)
    settings = about.settings.get("settings") or {}
    if about.stage == "tokenizer" and taken:
        yield "its merges were counted on a text with these rows", taken, {}
    if about.stage == "dedup":
        others = sorted(set(places.copies) - places.kept - set(places.rejected))
        if others:
            yield "other rows went as copies of these", len(others), {"ids": others[:SHOWN]}
        for kind in ("lines", "passage_words"):
            if settings.get(kind) and places.kept:
                told = f"what repeats these may be cut from later rows ({kind})"
                yield told, len(places.kept), {}
    if about.stage == "grade" and taken:
        yield "a quality classifier learns from grades of a text with these rows", taken, {}
    if about.stage == "vectors" and taken:
        yield "its vectors were learned from a text with these rows", taken, {}
    if about.stage == "shards" and places.documents:
        yield "its lists of rare and long tokens were counted with these", places.holds, {}


def _rows_taken(inputs: Mapping[str, Any], affected: Mapping[str, Places]) -> int:
    """How many of the rows are in what an artifact was made from."""
    return sum(
        places.holds
        for _, fingerprint in named_inputs(inputs)
        if (places := affected.get(fingerprint))
    )


def kept_steps(model: Artifact) -> list[int]:
    """The steps whose checkpoints a finished training has kept."""
    names = {file.split("/")[1] for file in model.manifest.files if file.startswith("checkpoints/")}
    return sorted(int(name.removeprefix("step-")) for name in names)
