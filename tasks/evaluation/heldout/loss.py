"""Held-out score of a network on its own objective, beside a unigram model on the same targets.

The unigram model says of every target how frequent it was among the targets of training (counts
plus one); of a yes-or-no question it knows the share of yes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cluster.artifact import Artifact
from cluster.errors import BadInput
from model.config import Family
from model.objectives.base import Objective, Scored
from model.objectives.rows import Vocabulary
from model.transformer import Transformer
from tasks.evaluation.heldout.through_time import gradient_norms
from tasks.evaluation.statistics.intervals import Interval, statistic_interval
from tasks.tokens.encoder import Encoder, load
from tasks.tokens.loader import Batch, Loader, windows
from tasks.tokens.shards.facts import EncodingFacts
from tasks.training.facts import Trained
from tasks.training.micro_batches import on_device
from tasks.training.pretraining import arrangement_of, load_objective
from tasks.training.samples import Samples, samples_of, vocabulary_of
from tasks.training.settings import ObjectiveSettings

BATCH_TOKENS = 4096
TOKENS = "tokens"


@dataclass
class Tally:
    """Targets of one kind: how many were predicted right, and by batch their number and their
    summed loss in nats.
    """

    hits: int = 0
    targets: list[int] = field(default_factory=list)
    blocks: list[tuple[int, float]] = field(default_factory=list)

    @property
    def nats(self) -> float:
        """The loss of all."""
        return sum(nats for _, nats in self.blocks)

    def interval(self) -> Interval:
        """The 95 % bootstrap interval of the loss of a target, over batches: tokens beside each
        other are not independent.
        """
        data = np.array(self.blocks)
        return statistic_interval(lambda rows: float(rows[:, 1].sum() / rows[:, 0].sum()), data)

    def add(self, scored: Scored, most: int) -> None:
        """Count up to `most` more targets."""
        # In fp32 a long sum would lose the digits of what is added to it.
        losses = scored.losses[:most].double()
        self.blocks.append((len(losses), float(losses.sum())))
        self.hits += int(scored.hits[:most].sum())
        self.targets += scored.targets[:most].tolist()

    def metrics(self, seen: "Unigram", prefix: str = "") -> dict[str, float]:
        """Loss and accuracy of the network and of the unigram model."""
        count = max(1, len(self.targets))
        targets = np.array(self.targets, np.int64)
        return {
            f"{prefix or 'heldout_'}loss": self.nats / count,
            f"{prefix or 'heldout_'}accuracy": self.hits / count,
            f"{prefix}unigram_loss": seen.loss(targets),
            f"{prefix}unigram_accuracy": seen.accuracy(targets),
        }


class Unigram:
    """Frequencies of targets in training, plus one each, among `classes`."""

    def __init__(self, classes: int):
        self.counts_V = np.ones(classes)

    def add(self, targets: np.ndarray) -> None:
        """Count more targets."""
        self.counts_V += np.bincount(targets, minlength=len(self.counts_V))

    def loss(self, targets: np.ndarray) -> float:
        """Mean nats of some targets; 0 without any."""
        nats_V = np.log(self.counts_V.sum()) - np.log(self.counts_V)
        return float(nats_V[targets].mean()) if len(targets) else 0.0

    def accuracy(self, targets: np.ndarray) -> float:
        """Share of the targets that are the most frequent one."""
        return float((targets == self.counts_V.argmax()).mean()) if len(targets) else 0.0


@dataclass(frozen=True)
class HeldoutScore:
    """What was scored, by kind of target, the objective's own first; the text of its tokens.

    Where every token was predicted once, from those before it, the loss is the length of a code for
    the text, whatever the tokenizer; where some were predicted from the others it is none.
    """

    tallies: dict[str, Tally]
    text: bytes
    is_code: bool = True

    @property
    def bits(self) -> str:
        """What its bits per byte are called."""
        return "bits_per_byte" if self.is_code else "bits_per_predicted_byte"

    @property
    def primary(self) -> Tally:
        """The targets of the objective."""
        return next(iter(self.tallies.values()))

    @property
    def tokens(self) -> int:
        """Targets scored."""
        return len(self.primary.targets)

    @property
    def nats(self) -> float:
        """Their summed loss."""
        return self.primary.nats

    def intervals(self) -> dict[str, Interval]:
        """The 95 % intervals of the loss and, where targets are tokens, of the bits per byte."""
        found = {"heldout_loss": self.primary.interval()}
        if TOKENS in tuple(self.tallies)[:1]:
            bits = self.tokens / (math.log(2) * max(1, len(self.text)))
            low, high = found["heldout_loss"]
            found[self.bits] = (low * bits, high * bits)
        return found

    def metrics(self, seen: dict[str, Unigram]) -> dict[str, float]:
        """See `evaluate`."""
        first, *others = self.tallies
        found = self.primary.metrics(seen[first])
        for name in others:
            found |= self.tallies[name].metrics(seen[name], f"{name}_")
        if first == TOKENS:
            # A little above 700 exp overflows; a training that diverged still has its figures.
            found["perplexity"] = math.exp(min(found["heldout_loss"], 700.0))
            found[self.bits] = self.nats / (math.log(2) * max(1, len(self.text)))
        return found


@dataclass(frozen=True)
class Subject:
    """A model folder to be scored: its objective, on the shards of its own tokenizer."""

    model: Artifact
    shards: Artifact
    encoder: Encoder
    settings: ObjectiveSettings
    module: Objective
    vocabulary: Vocabulary | None
    packing: Artifact | None = None

    @property
    def family(self) -> Family:
        """The family of its network."""
        return self.module.network.config.family

    @property
    def causal(self) -> bool:
        """Whether it predicts each token from those before it alone."""
        return self.settings.objective == "causal"


def load_subject(model: Artifact, shards: Artifact, packing: Artifact | None = None) -> Subject:
    """A pretrained model ready to be scored; `packing` is the one it was trained with, if any.

    Raises BadInput when model and shards do not share a tokenizer.
    """
    encoder = load(model)
    if encoder.sha256 != EncodingFacts.of(shards).tokenizer_sha256:
        raise BadInput(
            f"{model.name} and {shards.name} have different tokenizers; evaluate a model on "
            "shards made with its own tokenizer, or run `headrace run RECIPE --rebuild pretrain`"
        )
    settings = ObjectiveSettings(**Trained.of(model).objective)
    module = load_objective(model.folder(), settings).eval()
    vocabulary = vocabulary_of(encoder, settings, module.network.config.family)
    return Subject(model, shards, encoder, settings, module, vocabulary, packing)


def score_heldout(
    subject: Subject,
    max_tokens: int,
    device: str = "cpu",
    progress: Callable[[tuple[int, int]], None] = lambda done: None,
) -> HeldoutScore:
    """Score the held-out stream in order until `max_tokens` targets are.

    A causal model predicts each token once. Other objectives see whole windows, the first draw of
    each, and what is too short for one at the end of the stream is left out.
    """
    module = subject.module.to(device)
    tallies: dict[str, Tally] = {}
    for batch in _heldout(subject):
        tensors = on_device(batch, module, device)
        for name, scored in module.scored(**tensors).items():
            tally = tallies.setdefault(name, Tally())
            primary = name == next(iter(tallies))
            tally.add(scored, max_tokens - len(tally.targets) if primary else len(scored.targets))
        done = len(next(iter(tallies.values())).targets)
        progress((done, max_tokens))
        if done == max_tokens:
            break
    tokens = tallies[TOKENS].targets if TOKENS in tallies else []
    is_code = subject.settings.objective in ("causal", "bidirectional")
    return HeldoutScore(tallies, subject.encoder.decode_bytes(tokens), is_code)


def _heldout(subject: Subject) -> Iterator[Batch]:
    context = subject.settings.context
    rows = max(1, BATCH_TOKENS // context)
    found = samples_of(
        subject.shards, "heldout", subject.settings, subject.family, subject.vocabulary, seed=0
    )
    if isinstance(found, Samples):
        return found.in_order(rows)
    return windows(subject.shards, "heldout", context, rows)


def through_time(subject: Subject, device: str = "cpu") -> dict[str, Any] | None:
    """How far back gradients of a recurrent decoder reach; None of another network."""
    network = subject.module.network
    if not isinstance(network, Transformer) or network.config.recurrent is None:
        return None
    return gradient_norms(network, _heldout(subject), device) if subject.causal else None


def seen_targets(subject: Subject, max_targets: int, device: str = "cpu") -> dict[str, Unigram]:
    """Unigram models of the targets that this model was trained on, up to about `max_targets`."""
    trained, settings = Trained.of(subject.model), subject.settings
    samples = samples_of(
        subject.shards,
        "train",
        settings,
        subject.family,
        subject.vocabulary,
        trained.seed,
        arrangement_of(subject.model, subject.packing),
    )
    rows, found = max(1, BATCH_TOKENS // settings.context), dict[str, Unigram]()
    for first in range(0, trained.samples_seen, rows):
        batch = samples.batch(first, min(rows, trained.samples_seen - first))
        tensors = on_device(batch, subject.module, device)
        answers = subject.module.answers(**tensors)
        for name, targets in answers.items():
            classes = subject.encoder.vocab_size if name.endswith(TOKENS) else 2
            found.setdefault(name, Unigram(classes)).add(targets.cpu().numpy())
        max_targets -= len(next(iter(answers.values())))
        if max_targets <= 0:
            break
    return found


def seen_text(
    model: Artifact, shards: Artifact, max_bytes: int, packing: Artifact | None = None
) -> bytes:
    """The training text a causal model has seen, up to about `max_bytes` of it."""
    trained = Trained.of(model)
    order = arrangement_of(model, packing)
    loader = Loader(shards, "train", trained.context, trained.seed, order)
    per_sample = trained.context * EncodingFacts.of(shards).bytes_per_token
    samples = min(trained.samples_seen, max(1, int(max_bytes / per_sample)))
    return loader.bytes_seen(samples, load(model))
