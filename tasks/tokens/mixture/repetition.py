"""How often a training sees each source, known before it starts."""

import itertools
from typing import Any

from cluster.artifact import Artifact
from tasks.tokens.mixture.index import MixtureIndex, SourceSize, plan_mixture
from tasks.tokens.mixture.settings import MANY_EPOCHS, Mixture
from tasks.tokens.packing.facts import PackingFacts
from tasks.tokens.steps import Steps


def repetition(
    shards: Artifact,
    packing: Artifact | None,
    mixture: Mixture | None,
    *,
    context: int,
    steps: Steps,
) -> list[dict[str, Any]]:
    """Per source, sorted by label: `source`, `samples`, `tokens`, `share` of the training tokens,
    and `epochs`. Without the packing, sizes are those of concatenated documents.

    Raises BadInput when the sources do not allow the mixture.
    """
    sizes = source_sizes(shards, packing, context)
    if mixture:
        return plan_mixture(mixture, sizes, steps).summary()
    return _in_turn(sizes, steps.total)


def source_sizes(shards: Artifact, packing: Artifact | None, context: int) -> list[SourceSize]:
    """What one epoch of each source is."""
    if packing:
        return list(PackingFacts.of(packing).sources)
    from tasks.tokens.shards.documents import documents_by_source

    tokens = {n: int(d[1].sum()) for n, d in documents_by_source(shards, "train").items()}
    return [SourceSize(name, n // context, n // context * context) for name, n in tokens.items()]


def repetition_warnings(sources: list[dict[str, Any]]) -> list[str]:
    """A line for every source that is repeated more often than pays."""
    return [
        f"{s['source']} is seen {s['epochs']:g} times; repeated text is worth little after about "
        f"{MANY_EPOCHS:g} epochs (Muennighoff et al. 2023): give more of it, less weight, or "
        f"max_epochs"
        for s in sources
        if s["epochs"] > MANY_EPOCHS
    ]


def segments(draws: MixtureIndex) -> list[dict[str, Any]]:
    """The stretches of constant shares, each with the sample it begins at, for people to read."""
    begins = [segment.begin for segment in draws.segments] + [draws.samples]
    names = [source.name for source in draws.sources]
    found = []
    for begin, end in itertools.pairwise(begins):
        counts = [b - a for a, b in zip(draws.counts(begin), draws.counts(end), strict=True)]
        shares = {n: round(c / (end - begin), 4) for n, c in zip(names, counts, strict=True) if c}
        found.append({"from_sample": begin, "share_of_samples": shares})
    return found


def _in_turn(sizes: list[SourceSize], samples: int) -> list[dict[str, Any]]:
    """Every source at its natural share: all of them once in every epoch."""
    size, tokens = sum(s.samples for s in sizes), sum(s.tokens for s in sizes)
    epochs = samples / max(size, 1)
    return [
        {
            "source": source.name,
            "samples": round(source.samples * epochs),
            "tokens": round(source.tokens * epochs),
            "share": round(source.tokens / max(tokens, 1), 6),
            "epochs": round(epochs, 3),
        }
        for source in sizes
    ]
