"""At which steps a training saw some documents, by the loader's arithmetic: nothing is read but the
places of documents and samples.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from cluster.artifact import Artifact
from tasks.forgetting.places import Document
from tasks.tokens.encoder import load
from tasks.training.facts import Trained
from tasks.training.model_settings import ModelSettings
from tasks.training.samples import samples_of, vocabulary_of
from tasks.training.settings import ObjectiveSettings
from tasks.training.spikes import batch_of


class Seen(NamedTuple):
    """A sample, by its number in the training, and a step that saw it."""

    step: int
    sample: int


def is_training(artifact: Artifact) -> bool:
    """Whether it tells on what it was trained, and in which order."""
    return "samples_seen" in artifact.manifest.facts and "shards" in artifact.manifest.inputs


def exposure(
    model: Artifact,
    shards: Artifact,
    tokenizer: Artifact,
    packing: Artifact | None,
    documents: Sequence[Document],
) -> list[Seen]:
    """The steps of a training, each with the samples that have a token of the documents, in order.

    A batch that was skipped counts at its own step too: its loss was looked at.
    """
    from tasks.training.pretraining import arrangement_of

    trained = Trained.of(model)
    settings = ObjectiveSettings(**trained.objective)
    causal = settings.objective == "causal"
    family = "decoder" if causal else ModelSettings(**model.manifest.settings["model"]).family
    vocabulary = None if causal else vocabulary_of(load(tokenizer), settings, family)
    samples = samples_of(
        shards, "train", settings, family, vocabulary, trained.seed, arrangement_of(model, packing)
    )
    stretches = [(one.start, one.stop) for one in documents if one.split == "train"]
    numbers = samples.seeing(stretches, trained.samples_seen)
    return _seen(trained, model.manifest.facts.get("skipped_batches", []), numbers)


def _seen(trained: Trained, skipped: Sequence[int], numbers: np.ndarray) -> list[Seen]:
    """The steps that saw samples: those of their batches, and others that took one again."""
    steps = trained.batches
    first = np.array([steps.before(step) for step in range(1, steps.count + 1)])
    again: dict[int, list[int]] = defaultdict(list)
    for step in skipped:
        again[batch_of(step, skipped)].append(step)
    found = []
    for number, batch in zip(
        numbers.tolist(), np.searchsorted(first, numbers, side="right").tolist(), strict=True
    ):
        found += [Seen(step, number) for step in (batch, *again[batch])]
    return sorted(found)


def told(model: Artifact, seen: Sequence[Seen]) -> list[dict[str, Any]]:
    """As JSON has them."""
    return [{"model": model.name, "step": step, "sample": sample} for step, sample in seen]
