"""What `show` says of tokens: figures of shards, and any sample's text, by number or by step."""

from typing import Any

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.store import Store
from flows.views.output import Output
from model.objectives.lengths import window
from tasks.tokens.encoder import load
from tasks.tokens.packing.facts import PackingFacts
from tasks.tokens.shards.settings import SPLITS
from tasks.training.facts import Trained
from tasks.training.model_settings import ModelSettings
from tasks.training.settings import ObjectiveSettings

SHOWN = 10
CONTEXT = 256


def describe_shards(shards: Artifact) -> dict[str, Any]:
    """Counts per split and source, and the longest documents of the training split."""
    import pyarrow.compute as pc

    from tasks.tokens.shards.documents import documents_by_source, read_documents

    table = read_documents(shards, "train", "id", "source", "length")
    longest = table.take(pc.select_k_unstable(table, SHOWN, sort_keys=[("length", "descending")]))
    sources = {
        split: {
            name: {"documents": len(length_N), "tokens": int(length_N.sum())}
            for name, (_, length_N) in documents_by_source(shards, split).items()
        }
        for split in SPLITS
    }
    return {
        "sources": sources,
        "longest_documents": [
            {"id": row["id"], "source": row["source"], "tokens": row["length"]}
            for row in longest.to_pylist()
        ],
    }


def samples_seen(
    artifact: Artifact, sample: int | None, step: int | None, context: int | None = None
) -> list[dict[str, Any]]:
    """The samples of a training step, or one by its number, each with its text and documents.

    Of a pretrained model the number is that of the sample in its training; of shards (cut into
    windows of `context` tokens) and of a packing it is the place in the training split.
    Raises BadInput for another artifact, a number that does not exist, or inputs that are gone.
    """
    stage = artifact.manifest.stage
    if stage not in ("shards", "packing", "pretrain") or (step is not None and stage != "pretrain"):
        right = "pretrain" if step is not None else "shards, packing or pretrain"
        raise BadInput(f"{artifact.name} has no samples; name an artifact of the stage {right}")
    loader, shards = _loader(artifact, context or CONTEXT)
    if stage == "pretrain":
        first, count = _wanted(Trained.of(artifact), sample, step)
        places = loader.order(first, count).tolist()
    else:
        first, places = sample or 0, [sample or 0]
        _check(sample or 0, len(loader), f"samples of {artifact.name}")
    encoder = load(_input(shards, "tokenizer"))
    found = _decoded(loader.layout, places, encoder)
    return [{"sample": first + index, **about} for index, about in enumerate(found)]


def print_samples(out: Output, samples: list[dict[str, Any]]) -> None:
    """Print samples for people."""
    for sample in samples:
        out.say(f"\nsample {sample['sample']}, number {sample['place']} of the training split")
        for part in sample["pieces"]:
            where = f"tokens {part['start']} to {part['stop']} of the stream"
            names = ", ".join(part["documents"][:SHOWN])
            out.say(f"--- {where}: {names}")
            out.say(part["text"])


def print_shards(out: Output, found: dict[str, Any]) -> None:
    """Print the figures of shards for people."""
    facts = found["facts"]
    for split, sources in found["sources"].items():
        total = facts[split]
        out.say(
            f"{split}: {total['documents']:,} documents, {total['tokens']:,} tokens, "
            f"{total['bytes']:,} bytes in {len(total['shards'])} shards"
        )
        rows = ((n, f"{s['documents']:,}", f"{s['tokens']:,}") for n, s in sources.items())
        out.table(("source", "documents", "tokens"), rows)
    out.say(
        f"{facts['vocab_size']:,} ids ({facts['dtype']}), {facts['vocabulary_use']:.1%} of them "
        f"used; {facts['bytes_per_token']:.3f} bytes a token, {facts['fertility']:.3f} tokens a "
        "word"
    )
    longest = ((d["id"], d["source"], f"{d['tokens']:,}") for d in found["longest_documents"])
    out.table(("longest documents", "source", "tokens"), longest)
    for name in ("rarest", "longest"):
        out.table((f"{name} tokens", "times"), ((repr(t), n) for t, n in facts[name][:SHOWN]))


def _wanted(trained: Trained, sample: int | None, step: int | None) -> tuple[int, int]:
    """First global sample and how many."""
    if step is None:
        _check(sample or 0, trained.samples_seen, "samples of this training")
        return sample or 0, 1
    steps = trained.batches
    if not 1 <= step <= steps.count:
        raise BadInput(f"--step {step}: this training has {steps.count} steps")
    return steps.before(step), steps.size(step)


def _check(number: int, size: int, what: str) -> None:
    if not 0 <= number < size:
        raise BadInput(f"--sample {number}: there are {size} {what}, numbered from 0")


def _loader(artifact: Artifact, context: int) -> tuple[Any, Artifact]:
    """The loader behind an artifact, and its shards."""
    from tasks.tokens.loader import Arrangement, Loader

    about = artifact.manifest
    if about.stage == "shards":
        return Loader(artifact, "train", context, seed=0), artifact
    shards = _input(artifact, "shards")
    if about.stage == "packing":
        order = Arrangement(artifact)
        return Loader(shards, "train", PackingFacts.of(artifact).context, 0, order), shards
    from tasks.training.pretraining import arrangement_of

    packing = _input(artifact, "packing") if "packing" in about.inputs else None
    order_of = arrangement_of(artifact, packing)
    trained = Trained.of(artifact)
    objective = ObjectiveSettings(**trained.objective)
    family = ModelSettings(**about.settings["model"]).family
    size = window(objective.objective, family, objective.context, objective.rates)
    return Loader(shards, "train", size, trained.seed, order_of), shards


def _input(artifact: Artifact, name: str) -> Artifact:
    fingerprint = artifact.manifest.inputs[name]
    found = Store().find(name, str(fingerprint))
    if found is None:
        raise BadInput(
            f"the {name} that {artifact.name} was made from is gone; `headrace run` makes it again"
        )
    return found


def _decoded(layout: Any, places: list[int], encoder: Any) -> list[dict[str, Any]]:
    """The samples at these places of a packing: each stretch of the token stream that is in one,
    with its text and the ids of the documents that it reaches into.
    """
    import numpy as np

    from tasks.tokens.shards.documents import DocumentMap, read_documents

    shards = layout.stream.artifact
    begins = DocumentMap(shards, "train").starts
    names = read_documents(shards, "train", "id")["id"]
    found = []
    for place in places:
        pieces = []
        for start, stop in layout.stretches(place):
            ids = layout.stream.living(layout.stream.span(start, stop)).tolist()
            first, last = np.searchsorted(begins, [start, stop - 1], side="right") - 1
            pieces.append(
                {
                    "start": start,
                    "stop": stop,
                    "documents": names.slice(first, last - first + 1).to_pylist(),
                    "text": encoder.decode(ids, specials=True),
                    "tokens": ids,
                }
            )
        found.append({"place": place, "pieces": pieces})
    return found
