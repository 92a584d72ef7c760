"""Experts against a token-by-token restatement, and what keeps their loads even."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from model.config import ExpertConfig
from model.experts import ExpertLayer, Router
from model.shapes import from_depth
from model.transformer import Transformer

SMALL = from_depth(3, vocab_size=61, context=24, width=32, heads=4)
EXPERTS = {
    "switch": ExpertConfig(routed=4, active=1, width=16, normalise=False),
    "mixtral": ExpertConfig(routed=4, active=2, width=16),
    "deepseek-v2": ExpertConfig(
        routed=8, active=2, width=12, shared=2, groups=4, active_groups=2, scale=2.0,
        normalise=False,
    ),
    "deepseek-v3": ExpertConfig(
        routed=8, active=3, width=12, shared=1, scoring="sigmoid", groups=4, active_groups=2,
        scale=2.5, balance_loss=1e-4, balance_bias=1e-3,
    ),
}  # fmt: skip
every_kind = pytest.mark.parametrize("experts", EXPERTS.values(), ids=EXPERTS)


def build(experts: ExpertConfig, activation: str = "swiglu") -> ExpertLayer:
    torch.manual_seed(1)
    layer = ExpertLayer(replace(SMALL, activation=activation), experts).eval()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    if experts.balance_bias:
        layer.router.bias += torch.randn(experts.routed) * 0.3
    return layer


def naive(layer: ExpertLayer, experts: ExpertConfig, x_D: Tensor) -> Tensor:
    """Of one token."""
    logits_X = layer.router.gate.weight @ x_D
    sigmoid = experts.scoring == "sigmoid"
    scores = 1 / (1 + (-logits_X).exp()) if sigmoid else logits_X.exp() / logits_X.exp().sum()
    merit = scores + layer.router.bias if experts.balance_bias else scores
    merit = merit.tolist()
    size = len(merit) // experts.groups
    groups = [list(range(g * size, (g + 1) * size)) for g in range(experts.groups)]

    def worth(group: list[int]) -> float:
        return sum(sorted((merit[i] for i in group), reverse=True)[: 2 if sigmoid else 1])

    open_groups = sorted(groups, key=worth, reverse=True)[: experts.active_groups]
    allowed = sorted((i for g in open_groups for i in g), key=lambda i: merit[i], reverse=True)
    chosen = allowed[: experts.active]
    total = sum(scores[i] for i in chosen) if experts.normalise else 1
    y = torch.zeros_like(x_D)
    for i in chosen:
        gate, up = (layer.up[i] @ x_D).chunk(2)
        y = y + experts.scale * scores[i] / total * (layer.down[i] @ (F.silu(gate) * up))
    return y + layer.shared(x_D) if experts.shared else y


@every_kind
def test_value_and_gradient_are_those_of_one_token_at_a_time(experts):
    layer = build(experts)
    x = torch.randn(2, 9, 32, requires_grad=True)
    out = layer(x)
    expected = torch.stack([naive(layer, experts, token) for token in x.flatten(0, 1)]).view_as(x)
    assert torch.allclose(out, expected, atol=1e-5)
    into, towards = [x, *layer.parameters()], torch.randn_like(out)
    found = torch.autograd.grad((out * towards).sum(), into)
    right = torch.autograd.grad((expected * towards).sum(), into)
    for a, b in zip(found, right, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


def test_experts_need_no_gate():
    experts = EXPERTS["mixtral"]
    layer, x = build(experts, activation="relu"), torch.randn(1, 1, 32)
    chosen, weights = layer.router(x[0])
    expected = sum(
        w * (layer.down[i] @ (layer.up[i] @ x[0, 0]).relu())
        for i, w in zip(chosen[0].tolist(), weights[0], strict=True)
    )
    assert torch.allclose(layer(x)[0, 0], expected, atol=1e-5)


def test_the_balance_loss_is_switchs():
    experts = replace(EXPERTS["switch"], balance_loss=0.5)
    router, x = build(experts).router.train(), torch.randn(40, 32)
    router(x)
    probs = (x @ router.gate.weight.T).softmax(-1)
    share = torch.stack([(probs.argmax(1) == i).float().mean() for i in range(4)])
    expected = 0.5 * 4 * sum(f * p for f, p in zip(share, probs.mean(0), strict=True))
    assert float(router.balance_loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-5)


def test_even_loads_have_the_least_balance_loss():
    experts = ExpertConfig(routed=4, active=1, width=16, balance_loss=1.0)
    router = Router(4, experts).train()
    router.gate.weight.data = torch.eye(4) * 9
    router(torch.eye(4))
    assert float(router.balance_loss.detach()) == pytest.approx(1)
    router(torch.eye(4)[[0, 0, 0, 0]])
    assert float(router.balance_loss.detach()) > 3.9


def test_the_balance_loss_of_a_network_is_the_sum_of_its_layers_and_reaches_the_routers():
    torch.manual_seed(0)
    experts = replace(EXPERTS["mixtral"], dense_layers=1)
    network = Transformer(replace(SMALL, experts=experts))
    assert network.balance_loss() is None
    network(torch.randint(0, 61, (2, 12)))
    routers = [network.blocks[i].feedforward.inner.router for i in (1, 2)]
    assert torch.equal(network.balance_loss(), sum(r.balance_loss for r in routers))
    network.balance_loss().backward()
    assert all(r.gate.weight.grad.abs().sum() > 0 for r in routers)
    assert Transformer(SMALL).balance_loss() is None


def test_the_first_layers_are_dense():
    network = Transformer(replace(SMALL, experts=replace(EXPERTS["mixtral"], dense_layers=1)))
    kinds = [type(block.feedforward.inner).__name__ for block in network.blocks]
    assert kinds == ["FeedForward", "ExpertLayer", "ExpertLayer"]


def test_the_bias_moves_towards_idle_experts_in_training_only():
    experts = ExpertConfig(
        routed=4, active=1, width=16, scoring="sigmoid", balance_loss=0.0, balance_bias=0.1
    )
    router = Router(4, experts).eval()
    router.gate.weight.data = torch.eye(4)
    busy = torch.eye(4)[[0, 0, 0, 1]]
    router(busy)
    assert not router.bias.any()
    router.train()(busy)
    assert router.bias.tolist() == pytest.approx([-0.1, 0, 0.1, 0.1])


def test_the_bias_evens_out_loads_without_touching_the_weights():
    torch.manual_seed(0)
    experts = ExpertConfig(
        routed=8, active=2, width=16, scoring="sigmoid", balance_loss=0.0, balance_bias=0.01
    )
    router = Router(16, experts).train()
    x = torch.randn(256, 16) + 0.5

    def spread() -> float:
        load = router.eval()(x)[0].flatten().bincount(minlength=8)
        router.train()
        return float(load.max() - load.min())

    before = spread()
    for _ in range(200):
        router(x)
    assert spread() < before / 4
    chosen, weights = router(x)
    scores = router.gate(x).sigmoid().gather(1, chosen)
    assert torch.allclose(weights, scores / scores.sum(1, keepdim=True))


def test_a_pass_that_is_done_again_routes_as_the_first_and_moves_no_bias() -> None:
    experts = replace(EXPERTS["deepseek-v3"], balance_bias=0.3)
    found = []
    for again in ("none", "whole", "selective"):
        torch.manual_seed(1)
        network = Transformer(replace(SMALL, experts=experts))
        network.activation_checkpointing = again
        ids_BT = torch.randint(61, (2, 24))
        for _ in range(2):
            network(ids_BT).square().mean().backward()
        biases = [m.bias for m in network.modules() if isinstance(m, Router)]
        found.append([*biases, *(p.grad for p in network.parameters() if p.grad is not None)])
    for other in found[1:]:
        assert len(found[0]) == len(other) > 10
        for once, twice in zip(found[0], other, strict=True):
            torch.testing.assert_close(once, twice, rtol=0, atol=0)


@pytest.mark.parametrize("kind", EXPERTS)
def test_grouped_products_are_those_of_one_expert_after_the_other(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, with an expert that no token goes to."""
    torch.manual_seed(0)
    layer = ExpertLayer(SMALL, replace(EXPERTS[kind], balance_bias=0.0))
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    found = []
    for on_gpu in (False, True):
        monkeypatch.setattr("model.experts.on_gpu", lambda x, on_gpu=on_gpu: on_gpu)
        x = torch.randn(1, 5, SMALL.width, generator=torch.Generator().manual_seed(1))
        x.requires_grad_()
        layer.zero_grad()
        y = layer(x)
        y.square().sum().backward()
        found.append([y, x.grad, *(p.grad for p in layer.parameters() if p.grad is not None)])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_each_half_of_the_experts_makes_sums_to_what_all_make(
    on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One half, to which some tokens do not go; gradients of what went in, too."""
    monkeypatch.setattr("model.experts.on_gpu", lambda x: on_gpu)
    layer, x = build(EXPERTS["mixtral"]), torch.randn(9, SMALL.width, requires_grad=True)
    chosen, weights = layer.router(x.detach())
    halves = [build(EXPERTS["mixtral"]) for _ in range(2)]
    for first, half in zip((0, 2), halves, strict=True):
        half.up.data, half.down.data = (w.data[first : first + 2] for w in (layer.up, layer.down))
    assert any((chosen < 2).all(1)) or any((chosen >= 2).all(1))
    whole = layer.routed(x, chosen, weights)
    parts = [h.routed(x, chosen - first, weights) for first, h in zip((0, 2), halves, strict=True)]
    torch.testing.assert_close(sum(parts), whole, rtol=1e-5, atol=1e-6)
    (expected,) = torch.autograd.grad(whole.square().sum(), x)
    (found,) = torch.autograd.grad(sum(parts).square().sum(), x)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
