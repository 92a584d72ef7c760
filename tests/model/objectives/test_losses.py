"""The chunked loss is the plain loss, bit for tolerance, with the plain gradients."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from model.config import ModelConfig
from model.objectives import losses
from model.objectives.losses import ChunkedCrossEntropy, chunks
from model.objectives.modules import CausalLM, with_objective
from model.shapes import from_depth
from model.transformer import Transformer

SMALL = from_depth(2, vocab_size=31, context=16, width=32, heads=2)
VARIANTS = {
    "untied": SMALL,
    "tied": replace(SMALL, tie_embeddings=True),
    "softcap": replace(SMALL, logit_softcap=2.0),
    "masked_head": replace(
        SMALL, head_transform=True, tie_embeddings=True, logit_scale=0.5, activation="gelu"
    ),
}


def batch() -> dict[str, torch.Tensor]:
    random = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 31, (3, 17), generator=random)
    targets = tokens[:, 1:].clone()
    targets[0, 3:6] = -100
    documents = torch.tensor([[1] * 6 + [2] * 10] * 3)
    positions = torch.tensor([[*range(6), *range(10)]] * 3)
    return {
        "inputs": tokens[:, :-1],
        "targets": targets,
        "documents": documents,
        "positions": positions,
    }


def randomised(config: ModelConfig) -> Transformer:
    """A network in which no matrix is zero, as some are at first."""
    torch.manual_seed(0)
    network = Transformer(config).double()
    for parameter in network.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.1)
    return network


def plain(network: Transformer, inputs, targets, documents, positions) -> torch.Tensor:
    logits = network.logits(network(inputs, documents, positions))
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@pytest.fixture
def small_chunks(monkeypatch):
    monkeypatch.setattr(losses, "CHUNK_ELEMENTS", 31 * 7)


def plain_penalty(network: Transformer, inputs, targets, documents, positions) -> torch.Tensor:
    logits = network.logits(network(inputs, documents, positions))
    return logits.logsumexp(-1)[targets != -100].square().mean()


@pytest.mark.parametrize("z_loss", [0.0, 0.3])
@pytest.mark.parametrize("config", VARIANTS.values(), ids=VARIANTS)
def test_loss_and_gradients_are_those_of_the_plain_loss(config, z_loss, small_chunks):
    network = randomised(config)
    entropy, penalty = plain(network, **batch()), z_loss * plain_penalty(network, **batch())
    (entropy + penalty).backward()
    gradients = [p.grad.clone() for p in network.parameters()]
    network.zero_grad()
    objective = with_objective(network, "causal", z_loss)
    loss = objective(**batch())
    (3 * loss).backward()
    assert loss.item() == pytest.approx((entropy + penalty).item(), abs=1e-12)
    told = objective.told.get("z_loss", torch.zeros(()))
    assert told.item() == pytest.approx(penalty.item(), abs=1e-12)
    for parameter, gradient in zip(network.parameters(), gradients, strict=True):
        assert torch.allclose(parameter.grad, 3 * gradient, atol=1e-10)


@pytest.mark.parametrize(("cap", "z_loss"), [(None, 0.0), (1.5, 0.0), (None, 0.1), (1.5, 0.1)])
def test_the_gradient_is_the_numerical_one(cap, z_loss, small_chunks):
    random = torch.Generator().manual_seed(2)
    hidden = torch.randn(9, 5, generator=random, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(31, 5, generator=random, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(31, generator=random, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 30, 4, -100, 4, 7, 2, -100, 9])
    assert torch.autograd.gradcheck(
        lambda h, w, b: ChunkedCrossEntropy.apply(h, w, b, targets, cap, z_loss, 0.0, True)[0],
        (hidden, weight, bias),
    )
    assert torch.autograd.gradcheck(
        lambda h, w: ChunkedCrossEntropy.apply(h, w, None, targets, cap, z_loss, 0.0, True)[0],
        (hidden, weight),
    )


def test_a_smoothed_loss_is_pytorchs(small_chunks):
    random = torch.Generator().manual_seed(3)
    hidden = torch.randn(9, 5, generator=random, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(31, 5, generator=random, dtype=torch.float64, requires_grad=True)
    targets = torch.tensor([0, 30, 4, -100, 4, 7, 2, -100, 9])

    def smoothed(h, w):
        return ChunkedCrossEntropy.apply(h, w, None, targets, None, 0.0, 0.2, True)[0]

    expected = torch.nn.functional.cross_entropy(
        hidden @ weight.T, targets, label_smoothing=0.2, reduction="sum"
    )
    assert smoothed(hidden, weight).item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.autograd.gradcheck(smoothed, (hidden, weight))


def test_token_losses_add_up_to_the_loss(small_chunks):
    network = Transformer(SMALL)
    losses = CausalLM(network).token_losses(**batch())
    assert losses.shape == (3, 16) and not losses.requires_grad
    assert (losses[0, 3:6] == 0).all() and (losses[1:] > 0).all()
    mean = losses.sum() / (3 * 16 - 3)
    assert mean.item() == pytest.approx(CausalLM(network)(**batch()).item(), rel=1e-5)


def test_without_gradients_the_loss_is_the_same():
    objective = CausalLM(Transformer(SMALL))
    with torch.no_grad():
        loss = objective(**batch())
    assert not loss.requires_grad
    assert loss.item() == pytest.approx(objective(**batch()).item(), rel=1e-6)


def test_a_batch_without_targets_has_loss_zero_and_no_gradient():
    network = Transformer(SMALL)
    loss = CausalLM(network)(torch.zeros(1, 4, dtype=torch.long), torch.full((1, 4), -100))
    loss.backward()
    assert loss.item() == 0
    assert all((p.grad == 0).all() for p in network.parameters())


def test_bf16_autocast_stays_close_to_fp32():
    network = randomised(SMALL).float()
    exact = CausalLM(network)(**batch())
    exact.backward()
    expected = network.head.weight.grad.clone()
    network.zero_grad()
    with torch.autocast("cpu", torch.bfloat16):
        loss = CausalLM(network)(**batch())
    loss.backward()
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(exact.item(), rel=1e-2)
    assert torch.allclose(network.head.weight.grad, expected, atol=2e-2 * expected.abs().max())


def test_bf16_weights_train_too():
    network = Transformer(SMALL).bfloat16()
    loss = CausalLM(network)(**batch())
    loss.backward()
    assert loss.dtype == torch.float32
    assert {p.grad.dtype for p in network.parameters()} == {torch.bfloat16}


@given(count=st.integers(0, 5000), vocab=st.integers(1, 10_000_000))
@settings(deadline=None)
def test_chunks_cover_every_position_once_and_fit(count, vocab):
    slices = list(chunks(count, vocab, torch.device("cpu")))
    assert [i for rows in slices for i in range(rows.start, rows.stop)] == list(range(count))
    largest = max((rows.stop - rows.start for rows in slices), default=0)
    assert largest == min(count, 1) or largest * vocab <= losses.CHUNK_ELEMENTS


def test_it_learns_a_repeated_sequence():
    torch.manual_seed(0)
    objective = CausalLM(Transformer(SMALL))
    optimizer = torch.optim.AdamW(objective.parameters(), lr=1e-2)
    tokens = torch.arange(17)[None] % 5
    for _ in range(60):
        loss = objective(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.05
