"""Objectives in training: their samples, and a miniature of each family that beats its unigrams."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.placement import Placement
from cluster.stage import build, stage
from cluster.store import Draft, Store
from model.config import Family
from model.objectives.catalog import OBJECTIVES, special_tokens
from model.objectives.lengths import target_length, window
from model.objectives.rows import IGNORED
from tasks.data.text import TextWriter
from tasks.evaluation.heldout.settings import HeldoutSettings
from tasks.evaluation.heldout.stage import evaluate
from tasks.tokens.encoder import load, special_token
from tasks.tokens.shards.settings import ShardSettings
from tasks.tokens.shards.stage import shards
from tasks.tokens.shards.stream import TokenStream
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import train_tokenizer
from tasks.training.agreement import check_objective
from tasks.training.model_settings import ModelSettings
from tasks.training.samples import Samples, samples_of, vocabulary_of
from tasks.training.settings import ObjectiveSettings, OptimizerSettings, PretrainSettings
from tasks.training.stage import pretrain

CONTEXT = 32
KINDS = ("class", "separator", "mask", *(f"sentinel_{i}" for i in range(8)))


@stage(version=1, name="text")
def write_text(draft: Draft) -> None:
    lines = [
        f"The {w} number {i} runs.\nIt stops after {i} turns.\n"
        for w in ("wheel", "mill")
        for i in range(200)
    ]
    rows = [
        {"id": str(i), "text": line, "source": "made", "origin": f"made:{i}", "license": None}
        for i, line in enumerate(lines)
    ]
    with TextWriter(draft.path) as writer:
        writer.write(pa.Table.from_pylist(rows))


class Made:
    """Shards of a made-up text, and the stages run on them."""

    def __init__(self, root: Path, kinds: tuple[str, ...] = KINDS):
        self.store = Store(root)
        tokens = tuple(special_token(kind) for kind in kinds)
        vocabulary = TokenizerSettings(vocab_size=320, special_tokens=tokens)
        text = build(write_text, self.store)
        self.tokenizer = build(train_tokenizer, self.store, text=text, settings=vocabulary)
        self.shards = build(
            shards,
            self.store,
            text=text,
            tokenizer=self.tokenizer,
            settings=ShardSettings(heldout_share=0.2),
        )

    def samples(self, split: str = "train", **settings: Any) -> Samples:
        about = ObjectiveSettings(context=CONTEXT, **settings)
        family: Family = OBJECTIVES[about.objective].families[-1]
        vocabulary = vocabulary_of(load(self.tokenizer), about, family)
        found = samples_of(self.shards, split, about, family, vocabulary, seed=3)
        assert isinstance(found, Samples)
        return found

    def metrics(
        self, objective: str, family: str, tokens: int
    ) -> tuple[dict[str, float], Artifact]:
        model = self.train(objective, family, tokens)
        scoring = HeldoutSettings(max_tokens=2_000)
        score = build(evaluate, self.store, model=model, shards=self.shards, settings=scoring)
        return score.manifest.metrics, model

    def train(self, objective: str, family: str, tokens: int, **placement: Any) -> Artifact:
        training = PretrainSettings(
            objective=objective,
            context=CONTEXT,
            tokens=tokens,
            batch_tokens=512,
            optimizer=OptimizerSettings(learning_rate=3e-3),
        )
        shape = ModelSettings(family=family, depth=2, width=48, heads=3)
        return build(
            pretrain,
            self.store,
            recipe="-".join((objective, *placement)),
            force=bool(placement),
            placement=Placement(**placement),
            shards=self.shards,
            tokenizer=self.tokenizer,
            settings=training,
            model=shape,
            seed=0,
        )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize(
    ("family", "objective"),
    [("decoder", "causal"), ("encoder", "masked"), ("encoder_decoder", "span_corruption")],
)
def test_each_family_beats_its_unigrams_clearly(made: Made, family: str, objective: str) -> None:
    metrics, model = made.metrics(objective, family, tokens=60_000)
    assert metrics["heldout_loss"] < 0.75 * metrics["unigram_loss"]
    assert metrics["heldout_accuracy"] > 1.5 * metrics["unigram_accuracy"]
    bits = {name for name in metrics if name.startswith("bits_per") and "witten" not in name}
    assert bits == {"bits_per_byte" if objective == "causal" else "bits_per_predicted_byte"}
    assert ("bits_per_byte_witten_bell" in metrics) == (objective == "causal")
    assert model.manifest.facts["objective"]["objective"] == objective


@pytest.mark.parametrize(
    ("family", "objective"),
    [("encoder", "replaced_token_detection"), ("encoder_decoder", "span_corruption")],
)
def test_checkpoints_and_shards_of_a_training_hold_all_that_is_trained(
    made: Made, family: str, objective: str
) -> None:
    plain = made.train(objective, family, 4_000, checkpoint_seconds=0.001)
    sharded = made.train(objective, family, 4_000, checkpoint_seconds=0.001, zero_stage=3)
    loss = plain.manifest.metrics["train_loss"]
    assert sharded.manifest.metrics["train_loss"] == pytest.approx(loss, rel=1e-3)


@pytest.mark.parametrize(
    ("objective", "kinds"),
    [
        ("next_sentence", ("", "pairs_")),
        ("sentence_comparison", ("",)),
        ("replaced_token_detection", ("", "tokens_")),
    ],
)
def test_what_an_objective_learns_beside_the_network_is_kept(
    made: Made, objective: str, kinds: tuple[str, ...]
) -> None:
    metrics, model = made.metrics(objective, "encoder", tokens=4_000)
    assert "objective/model.safetensors" in model.manifest.files
    for kind in kinds:
        names = {f"{kind or 'heldout_'}loss", f"{kind or 'heldout_'}accuracy"}
        assert names | {f"{kind}unigram_loss", f"{kind}unigram_accuracy"} <= metrics.keys()
    if objective != "next_sentence":
        assert not any(
            name.startswith("bits_per") for name in metrics
        )  # a yes or no stands for no bytes


def test_a_sample_is_the_same_in_every_batch(made: Made) -> None:
    samples = made.samples(objective="masked")
    together = samples.batch(0, 6)
    for number in range(6):
        alone = samples.batch(number, 1)
        assert all(np.array_equal(alone[key][0], together[key][number]) for key in together)


def masks(samples: Samples, epoch: int) -> dict[tuple[int, ...], tuple[int, ...]]:
    """Which targets each text of an epoch has, by the text."""
    batch = samples.batch(epoch * len(samples), len(samples))
    found = {}
    for inputs, targets in zip(batch["inputs"], batch["targets"], strict=True):
        clean = np.where(targets == IGNORED, inputs, targets)
        # A random replacement is undone by its target; a kept token needs no undoing.
        found[tuple(clean.tolist())] = tuple(np.flatnonzero(targets != IGNORED).tolist())
    return found


def test_dynamic_masks_change_with_the_epoch_and_static_ones_do_not(made: Made) -> None:
    dynamic, static = (
        made.samples(objective="masked", noise={"dynamic": dynamic}) for dynamic in (True, False)
    )
    first, second = masks(static, 0), masks(static, 1)
    assert first == second
    first, second = masks(dynamic, 0), masks(dynamic, 1)
    assert first.keys() == second.keys()
    assert sum(first[text] != second[text] for text in first) > 0.9 * len(first)


def test_the_other_text_of_a_pair_is_of_another_document(made: Made) -> None:
    samples = made.samples(objective="next_sentence")
    stream = TokenStream(made.shards, "train")
    window, everything = samples.setup.window, stream.read(np.array([0]), len(stream))[0]
    document = np.cumsum(everything == stream.eod) - (everything == stream.eod)
    random = np.random.default_rng(0)
    found = 0
    for place in range(len(samples)):
        other = samples._other(place, random)
        assert len(other) == window
        views = np.lib.stride_tricks.sliding_window_view(everything, window)
        starts = np.flatnonzero((views == other).all(axis=1))
        own = set(document[place * window : (place + 1) * window].tolist())
        found += any(not own & set(document[s : s + window].tolist()) for s in starts)
    assert found == len(samples)


def test_heldout_windows_lie_as_in_the_stream(made: Made) -> None:
    samples = made.samples("heldout", objective="masked")
    batches = list(samples.in_order(4))
    assert sum(len(batch["inputs"]) for batch in batches) == len(samples)
    again = next(iter(samples.in_order(1)))
    assert np.array_equal(again["inputs"][0], batches[0]["inputs"][0])


def test_a_tokenizer_without_the_objectives_tokens_is_refused(tmp_path: Path) -> None:
    plain = Made(tmp_path, kinds=())
    with pytest.raises(BadInput, match=r"no token '<\|class\|>'.*--rebuild tokenizer"):
        plain.metrics("masked", "encoder", tokens=1_000)


@pytest.mark.parametrize(
    ("model", "training", "message"),
    [
        (
            {"family": "encoder"},
            {},
            "causal, which model.family decoder learns, and model.family is",
        ),
        ({}, {"objective": "masked"}, "learns causal, prefix, permuted, span_corruption"),
        ({"family": "encoder"}, {"objective": "next_sentence", "context": 4}, "no room"),
        ({"preset": "falcon-7b"}, {"objective": "permuted", "context": 64}, None),
        ({"preset": "mistral-7b"}, {"objective": "permuted", "context": 64}, "window 4096"),
    ],
)
def test_what_makes_no_sense_is_refused(
    model: dict[str, Any], training: dict[str, Any], message: str | None
) -> None:
    check: Callable[[], None] = lambda: check_objective(  # noqa: E731
        ModelSettings(**model), ObjectiveSettings(**training)
    )
    if message is None:
        check()
        return
    with pytest.raises(BadInput, match=message):
        check()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"noise": {"rate": 0.2}}, "noise.rate: causal has none; it is for permuted, masked"),
        ({"objective": "masked", "noise": {"span": 4}}, "noise.span: masked has none"),
        ({"objective": "maskd"}, "objective"),
    ],
)
def test_noise_that_nothing_uses_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ObjectiveSettings(**settings)


def test_rates_are_the_objectives_own_unless_given() -> None:
    assert ObjectiveSettings(objective="text_infilling").rates.rate == 0.3
    given = ObjectiveSettings(objective="span_corruption", noise={"rate": 0.5, "span": 8})
    assert (given.rates.rate, given.rates.span) == (0.5, 8)


def test_t5_reads_568_tokens_in_rows_of_512() -> None:
    """The lengths of T5's own code; its target of 114 has no closing sentinel."""
    rates = ObjectiveSettings(objective="span_corruption").rates
    assert window("span_corruption", "encoder_decoder", 512, rates) == 568
    assert target_length("span_corruption", 512, rates) == 115


def test_sentinels_follow_context_and_span_length() -> None:
    counts = []
    for context, noise in ((128, {}), (512, {}), (512, {"span": 1.0}), (512, {"rate": 0.5})):
        about = ObjectiveSettings(objective="span_corruption", context=context, noise=noise)
        counts.append(
            len(special_tokens("span_corruption", "encoder_decoder", context, about.rates))
        )
    assert counts == [8, 29, 78, 128]
