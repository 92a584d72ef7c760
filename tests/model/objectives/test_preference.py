"""Losses on preferences: those of TRL on one batch, and what a micro-batch may not change."""

import pytest
import torch
from torch import Tensor

from benchmarks.preference_losses import LOSSES, PAIRS, batch, network, ours, reference, rows
from model.objectives.preference import PreferenceLM, PreferenceLoss, log1mexp, log_probs

BETA = 0.2
# Printed by `benchmarks/preference_losses.py` with TRL 1.16.0, policy and reference in both orders.
TRL = {
    (0, 1): {"dpo": 0.6939597, "ipo": 6.8606663, "kto": 0.5533260, "orpo": 4.7515903},
    (1, 0): {"dpo": 0.7826154, "ipo": 6.0468678, "kto": 0.4663635, "orpo": 4.8068590},
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("seeds", TRL)
def test_a_loss_is_that_of_trl_on_the_same_batch(
    loss: PreferenceLoss, seeds: tuple[int, int]
) -> None:
    policy, other = map(network, seeds)
    assert ours(loss, policy, other, BETA) == pytest.approx(TRL[seeds][loss], abs=1e-5)


def pairs() -> dict[str, Tensor]:
    return {name: tensor.view(PAIRS, 2, -1) for name, tensor in batch(*rows()).items()}


@pytest.mark.parametrize("loss", ["dpo", "ipo", "orpo"])
def test_the_mean_over_micro_batches_is_the_loss_of_the_batch(loss: PreferenceLoss) -> None:
    module = PreferenceLM(network(0), loss, BETA)
    scored = reference(network(1), batch(*rows())).view(PAIRS, 2)
    share = torch.full((PAIRS,), PAIRS / 60)
    more = {"token_share": share} if loss == "orpo" else {"reference": scored}
    whole = module(**pairs(), **more)
    told = dict(module.told)
    parts, figures = [], []
    for half in (slice(0, 1), slice(1, None)):
        given = {name: tensor[half] for name, tensor in (pairs() | more).items()}
        parts.append(module(**given) * len(given["inputs"]) / PAIRS)
        figures.append(module.told["reward_margin"] * len(given["inputs"]) / PAIRS)
    assert torch.stack(parts).sum().item() == pytest.approx(whole.item(), rel=1e-5)
    assert torch.stack(figures).sum().item() == pytest.approx(
        told["reward_margin"].item(), abs=1e-6
    )


def test_log_probabilities_are_those_of_the_logits_and_have_their_gradient() -> None:
    found = network(0)
    made = batch(*rows())
    hidden = found(made["inputs"], made["documents"], made["positions"])
    log_probs(found, hidden, made["answers"]).pow(2).sum().backward()
    gradients = [p.grad.clone() for p in found.parameters() if p.grad is not None]
    found.zero_grad()
    kept = made["answers"] != -100
    hidden = found(made["inputs"], made["documents"], made["positions"])
    all_NTV = found.logits(hidden).log_softmax(-1)
    plain = all_NTV.gather(-1, made["answers"].clamp(min=0)[..., None])[..., 0] * kept
    plain.sum(-1).pow(2).sum().backward()
    after = [p.grad for p in found.parameters() if p.grad is not None]
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(gradients, after, strict=True))


def test_rewards_are_told_as_they_are_ordered() -> None:
    policy = network(0)
    module = PreferenceLM(policy, "dpo", BETA)
    mine = reference(policy, batch(*rows())).view(PAIRS, 2)
    module(**pairs(), reference=mine - torch.tensor([3.0, 1.0]))
    assert module.told["reward_accuracy"].item() == 1
    assert module.told["reward_margin"].item() == pytest.approx(BETA * 2, abs=1e-5)


@pytest.mark.parametrize("x", [-1e-6, -0.1, -0.6931, -0.7, -5.0, -90.0])
def test_log1mexp_is_exact_near_both_ends(x: float) -> None:
    value = torch.tensor(x, requires_grad=True)
    found = log1mexp(value)
    found.backward()
    exact = torch.log(-torch.expm1(torch.tensor(x, dtype=torch.float64)))
    assert found.item() == pytest.approx(exact.item(), rel=1e-5, abs=1e-30)
    assert value.grad is not None and value.grad.isfinite()
