"""Networks with their objectives: losses by hand, gradients everywhere, rows on their own."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensorMode

from model.config import ExpertConfig, ModelConfig, RecurrentConfig
from model.encoder_decoder import build
from model.objectives.base import Objective, at_targets, hidden_states
from model.objectives.catalog import OBJECTIVES
from model.objectives.detection import ReplacedTokenDetection, sample_at
from model.objectives.lengths import Rates
from model.objectives.modules import CausalLM, own_parameters, with_objective
from model.objectives.places import PLACES, places_of
from model.objectives.rows import Vocabulary
from model.objectives.transforms import Setup
from model.presets import preset
from model.shapes import from_depth, resized
from tasks.training.micro_batches import placed

CONTEXT, WORDS = 32, 1000
ALL = [(name, family) for name, about in OBJECTIVES.items() for family in about.families]


def config_of(family: str, name: str = "", **changes: Any) -> ModelConfig:
    """Of a network that learns the objective of this name, where not all of the family do."""
    sizes = {"vocab_size": WORDS, "context": CONTEXT, "width": 32, "family": family}
    if name == "bidirectional":
        return from_depth(2, **sizes, recurrent=RecurrentConfig(cell="gru", apart=True))
    return replace(from_depth(2, **sizes, heads=2), **changes)


def objective(name: str, config: ModelConfig) -> Objective:
    """A network in which no matrix is zero, as some are at first, with its objective."""
    torch.manual_seed(0)
    module = with_objective(build(config), name)
    for parameter in module.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.05)
    return module.eval()


def batch_of(
    vocabulary: Vocabulary, name: str, family: str, rows: int = 3, first: int = 0
) -> dict[str, torch.Tensor]:
    if name == "causal":
        keys = range(first, first + rows)
        words = vocabulary.ordinary_N
        tokens = np.stack([np.random.default_rng(k).choice(words, CONTEXT + 1) for k in keys])
        arrays = {"inputs": tokens[:, :-1], "targets": tokens[:, 1:]}
    else:
        rates = Rates(rate=OBJECTIVES[name].rate or Rates.rate)
        setup = Setup(name, family, CONTEXT, vocabulary, rates)
        made = []
        for key in range(first, first + rows):
            random = np.random.Generator(np.random.Philox(key=[0, key]))
            tokens, other = random.choice(vocabulary.ordinary_N, (2, setup.window))
            made.append(setup.row(tokens, random, other))
        arrays = setup.batch(made)
    return {key: torch.from_numpy(value) for key, value in arrays.items()}


@pytest.mark.parametrize(("name", "family"), ALL)
def test_every_trained_parameter_gets_a_gradient(
    vocabulary: Vocabulary, name: str, family: str
) -> None:
    """What gets none is marked as not trained: a checkpoint asks every other for its moments."""
    module = objective(name, config_of(family, name))
    module(**batch_of(vocabulary, name, family)).backward()
    for parameter_name, parameter in module.named_parameters():
        assert (parameter.grad is not None) == parameter.requires_grad, parameter_name


@pytest.mark.parametrize(("name", "family"), ALL)
def test_the_loss_is_that_of_its_scored_targets(
    vocabulary: Vocabulary, name: str, family: str
) -> None:
    module, batch = objective(name, config_of(family, name)), batch_of(vocabulary, name, family)
    scored = module.scored(**batch)
    weights = {"replaced": ReplacedTokenDetection.WEIGHT}
    total = sum(weights.get(kind, 1.0) * part.losses.mean() for kind, part in scored.items())
    assert module(**batch).item() == pytest.approx(float(total), rel=1e-5)
    answers = module.answers(**batch)
    assert answers.keys() == scored.keys()
    assert all(torch.equal(answers[kind], part.targets) for kind, part in scored.items())


@pytest.mark.parametrize(("name", "family"), ALL)
def test_places_of_targets_change_nothing_and_no_device_is_asked_for_them(
    vocabulary: Vocabulary, name: str, family: str
) -> None:
    """A step on a GPU that had to count its targets would wait, and compile for each number."""
    module = objective(name, config_of(family, name))
    batch = batch_of(vocabulary, name, family)
    found = placed(batch, module)
    assert (found is batch) == (not module.takes_places)
    if not module.takes_places:
        return
    assert len(found[PLACES]) in (64, batch["targets"].numel())
    losses, gradients = [], []
    for given in (batch, found):
        loss = module(**given)
        losses.append(loss.item())
        trained = [p for p in module.parameters() if p.requires_grad]
        gradients.append(torch.autograd.grad(loss, trained))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        with pytest.raises(DynamicOutputShapeException):
            at_targets(torch.empty(3, CONTEXT, 32), fake.from_tensor(batch["targets"]))
        at_targets(torch.empty(3, CONTEXT, 32), *(found[k] for k in ("targets", PLACES)))


def test_every_position_may_have_a_target_and_none() -> None:
    full, none = np.arange(200)[None], np.full((1, 200), -100)
    assert places_of(full).tolist() == list(range(200))
    assert places_of(none).tolist() == [0] * 64
    mixed = np.where(np.arange(200) % 3 == 0, 7, -100)
    assert places_of(mixed[None]).tolist() == [*range(0, 200, 3), *[1] * (128 - 67)]


@pytest.mark.parametrize(("name", "family"), ALL)
def test_a_row_is_scored_alike_alone_and_in_company(
    vocabulary: Vocabulary, name: str, family: str
) -> None:
    module = objective(name, config_of(family, name))
    both = module.scored(**batch_of(vocabulary, name, family, rows=2))
    one = [module.scored(**batch_of(vocabulary, name, family, 1, first)) for first in (0, 1)]
    for kind, part in both.items():
        alone = torch.cat([found[kind].losses for found in one])
        assert torch.allclose(part.losses, alone, atol=1e-5)


def test_masked_lm_is_cross_entropy_at_the_hidden_tokens(vocabulary: Vocabulary) -> None:
    module = objective("masked", config_of("encoder"))
    batch = batch_of(vocabulary, "masked", "encoder")
    targets = batch.pop("targets")
    logits = module.network.logits(hidden_states(module.network, **batch))
    expected = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert module(**batch, targets=targets).item() == pytest.approx(expected.item(), rel=1e-5)


def test_a_prefix_is_seen_both_ways_and_the_rest_is_not(vocabulary: Vocabulary) -> None:
    module = objective("prefix", config_of("decoder"))
    batch = batch_of(vocabulary, "prefix", "decoder", rows=1)
    prefix = int(batch["prefix"].sum())
    del batch["targets"]
    before = hidden_states(module.network, **batch)
    for place in (prefix - 1, prefix + 1):
        inputs = batch["inputs"].clone()
        inputs[0, place] += 1
        after = hidden_states(module.network, **{**batch, "inputs": inputs})
        changed = (before - after).abs().amax(-1)[0] > 1e-9
        assert changed[0] == (place < prefix)
        assert not changed[prefix:place].any()


def test_samples_follow_their_draws() -> None:
    probs = torch.tensor([[0.2, 0.5, 0.3]]).repeat(6, 1)
    draws = torch.tensor([0.0, 0.19, 0.21, 0.69, 0.71, 0.9999999])
    assert sample_at(probs, draws).tolist() == [0, 0, 1, 1, 2, 2]


def test_electra_asks_for_every_real_token_and_knows_a_lucky_guess(
    vocabulary: Vocabulary,
) -> None:
    module = objective("replaced_token_detection", config_of("encoder"))
    batch = batch_of(vocabulary, "replaced_token_detection", "encoder")
    scored = module.scored(**batch)["replaced"]
    assert len(scored.targets) == int((batch["documents"] > 0).sum())
    hidden = int((batch["targets"] != -100).sum())
    assert 0 < int(scored.targets.sum()) <= hidden
    # A generator that always fills in the right token replaces nothing.
    right = batch["targets"].clamp(min=0)
    assert not module._replaced(
        torch.where(batch["targets"] == -100, 0, right), batch["targets"]
    ).any()


def test_the_generator_shares_the_embeddings(vocabulary: Vocabulary) -> None:
    module = objective("replaced_token_detection", config_of("encoder"))
    assert module.generator.embedding is module.network.embedding
    assert module.generator.position_embedding is module.network.position_embedding
    assert not any("embedding.weight" in name for name in own_parameters(module))


def test_two_texts_are_compared_by_their_class_vectors(vocabulary: Vocabulary) -> None:
    """Each text is encoded as if it were alone."""
    module = objective("sentence_comparison", config_of("encoder"))
    batch = batch_of(vocabulary, "sentence_comparison", "encoder", rows=1)
    vectors = []
    for document in (1, 2):
        tokens = batch["inputs"][batch["documents"] == document][None]
        vectors.append(module.network(tokens)[:, 0])
    score = module.scale * F.cosine_similarity(*vectors) + module.offset
    found = module.scored(**batch)["pairs"]
    expected = F.binary_cross_entropy_with_logits(score, batch["labels"].float())
    assert found.losses.item() == pytest.approx(expected.item(), rel=1e-4)


def test_tokens_after_the_next_and_the_balance_of_experts_join_the_loss(
    vocabulary: Vocabulary,
) -> None:
    batch = batch_of(vocabulary, "causal", "decoder")
    plain = objective("causal", config_of("decoder", multi_token=2))
    alone = plain.scored(**batch)["tokens"].losses.mean().item()
    assert plain(**batch).item() == pytest.approx(alone * (1 + CausalLM.FURTHER), rel=0.05)
    experts = ExpertConfig(routed=4, active=2, width=16, balance_loss=0.5)
    module = objective("causal", config_of("decoder", experts=experts)).train()
    balance = module(**batch) - module.scored(**batch)["tokens"].losses.mean()
    assert balance.item() == pytest.approx(module.network.balance_loss().item(), rel=1e-4)
    assert balance.item() >= 0.9  # 0.5 a layer when loads are even


def test_a_network_with_one_kind_of_segment_takes_two_texts(vocabulary: Vocabulary) -> None:
    config = replace(config_of("encoder"), segments=1, pooler=False)
    module = objective("next_sentence", config)
    assert torch.isfinite(module(**batch_of(vocabulary, "next_sentence", "encoder")))


@pytest.mark.parametrize(
    ("name", "learned"),
    [
        ("distilbert-base-uncased", "masked"),
        ("albert-base-v2", "sentence_order"),
        ("electra-small-discriminator", "replaced_token_detection"),
        ("deberta-v3-base", "masked"),
        ("deberta-v3-base", "replaced_token_detection"),
        ("xlnet-base-cased", "permuted"),
        ("xlnet-base-cased", "masked"),
        ("xlnet-base-cased", "replaced_token_detection"),
    ],
)
def test_all_of_a_published_network_is_trained_but_what_an_objective_does_without(
    vocabulary: Vocabulary, name: str, learned: str
) -> None:
    shape = resized(preset(name), depth=2, width=32, heads=2)
    module = objective(learned, replace(shape, vocab_size=WORDS, context=CONTEXT))
    module(**batch_of(vocabulary, learned, "encoder")).backward()
    untrained = {n.split(".")[1] for n, p in module.named_parameters() if p.grad is None}
    assert untrained == {
        n.split(".")[1] for n, p in module.named_parameters() if not p.requires_grad
    }
    assert untrained <= {"pooler", "head_transform", "head_bias", "query_embedding"}
    assert learned != "permuted" or not untrained


@pytest.mark.parametrize("name", ["roberta-base", "t5-small", "bart-base", "bert-base-uncased"])
def test_published_shapes_learn_their_family_objective(vocabulary: Vocabulary, name: str) -> None:
    sizes = {"vocab_size": WORDS, "context": CONTEXT, "width": 32, "heads": 2, "kv_heads": 2}
    shape = preset(name)
    small = {**sizes, "head_dim": 16, "ffn_width": 64, "depth": 1}
    if shape.family == "encoder_decoder":
        small["encoder_depth"] = 1
    config = replace(shape, **small)
    learned = "masked" if shape.family == "encoder" else "text_infilling"
    module = objective(learned, config)
    assert torch.isfinite(module(**batch_of(vocabulary, learned, shape.family)))
