"""Which steps saw a document: what the arithmetic says is what a look at every batch finds."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster.artifact import Artifact
from cluster.stage import build, stage
from cluster.store import Draft, Store
from tasks.forgetting.exposure import exposure
from tasks.forgetting.places import Document
from tasks.tokens.loader import Arrangement
from tasks.tokens.mixture.settings import Mixture
from tasks.tokens.shards.documents import DocumentMap
from tasks.training.facts import Trained
from tasks.training.samples import Samples, samples_of
from tasks.training.settings import ObjectiveSettings
from tasks.training.spikes import batch_of
from tests.tokens.made import packed, shards_of

CONTEXT = 16
MIXTURE = Mixture.model_validate(
    {
        "stages": [{"until": 0.5, "weights": {"a": 1, "b": 3}}, {"weights": {"a": 1}}],
        "max_epochs": {"b": 3},
    }
)


@stage(version=1, name="pretrain")
def trained(shards: Artifact, facts: dict, draft: Draft, packing: Artifact | None = None) -> None:
    draft.facts = facts


def corpus(root: Path, kind: str) -> tuple[Artifact, Artifact | None, list[Document]]:
    """Shards in which every training token is another, their packing, their documents."""
    lengths = np.random.default_rng(0).integers(2, 60, 40).tolist()
    shards = shards_of(root, lengths, "ab" * 20, shard_tokens=300)
    begins = DocumentMap(shards, "train").starts.tolist()
    pairs = zip(begins, lengths, strict=True)
    documents = [Document(f"d{i}", "train", b, b + n) for i, (b, n) in enumerate(pairs)]
    return shards, None if kind == "windows" else packed(root, shards, kind, CONTEXT), documents


def model_of(root: Path, shards: Artifact, packing: Artifact | None, **facts) -> Artifact:
    about = {
        "objective": ObjectiveSettings(context=CONTEXT).identity(),
        "context": CONTEXT,
        "seed": 3,
        "samples_seen": 12 * 4 + 2 * 2,
        "steps": 14,
        "batch_samples": 4,
        "batch_ramp": ((2, 2),),
        "mixture": None,
        "skipped_batches": [],
    }
    made = {"packing": packing} if packing else {}
    return build(trained, Store(root), shards=shards, facts=about | facts, **made)


def scanned(model: Artifact, shards: Artifact, packing) -> list[tuple[int, int, set[int]]]:
    """Step, sample and tokens of every sample of every batch of every step."""
    about = Trained.of(model)
    mixture = Mixture.model_validate(about.mixture) if about.mixture else None
    arranged = Arrangement(packing, mixture, about.batches) if packing else None
    settings = ObjectiveSettings(**about.objective)
    samples = samples_of(shards, "train", settings, "decoder", None, about.seed, arranged)
    skipped = model.manifest.facts["skipped_batches"]
    found = []
    for step in range(1, about.steps + 1):
        for batch in {step, batch_of(step, skipped)}:
            for number in range(about.batches.before(batch), about.batches.before(batch + 1)):
                row = samples.batch(number, 1)
                tokens = {*row["inputs"].ravel().tolist(), *row["targets"].ravel().tolist()}
                found.append((step, number, tokens))
    return sorted(found, key=lambda one: one[:2])


def own_tokens(document: Document, number: int) -> set[int]:
    """Tokens are numbered through, without the ends of documents."""
    return set(range(document.start - number + 1, document.stop - number))


@pytest.fixture(scope="module", params=["windows", "concatenate", "best_fit", "padded"])
def made(request, tmp_path_factory):
    root = tmp_path_factory.mktemp(request.param)
    shards, packing, documents = corpus(root, request.param)
    some = {"mixture": MIXTURE.identity()} if packing else {}
    models = [
        model_of(root, shards, packing),
        model_of(root, shards, packing, skipped_batches=[1, 5]),
    ]
    models += [model_of(root, shards, packing, **some)] if some else []
    looked = [(model, scanned(model, shards, packing)) for model in models]
    return shards, packing, documents, looked


@given(chosen=st.sets(st.integers(0, 39), min_size=1, max_size=4))
def test_exposure_is_what_a_scan_of_every_batch_finds(made, chosen):
    shards, packing, documents, looked = made
    asked = [documents[i] for i in chosen]
    tokens = set().union(*(own_tokens(documents[i], i) for i in chosen))
    for model, scan in looked:
        brute = [(step, sample) for step, sample, seen in scan if seen & tokens]
        assert exposure(model, shards, shards, packing, asked) == brute


@pytest.mark.parametrize("dynamic", [True, False])
def test_the_second_text_of_a_pair_counts(tmp_path, dynamic, monkeypatch):
    from model.objectives.lengths import Rates
    from model.objectives.transforms import Setup

    shards, _, documents = corpus(tmp_path, "windows")
    setup = Setup("next_sentence", "encoder", CONTEXT, None, Rates())  # type: ignore[arg-type]
    samples = Samples(shards, "train", setup, 3, dynamic)
    read: list[set[int]] = []
    monkeypatch.setattr(
        Setup, "row", lambda self, one, random, other: read.append({*one.tolist(), *other.tolist()})
    )
    monkeypatch.setattr(Setup, "batch", lambda self, rows: rows)
    samples.batch(0, 150)
    for number, document in enumerate(documents):
        tokens = own_tokens(document, number)
        brute = [g for g, seen in enumerate(read) if seen & tokens]
        assert samples.seeing([(document.start, document.stop)], 150).tolist() == brute
