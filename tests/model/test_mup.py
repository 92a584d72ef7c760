"""Width transfer: the coordinate check of Yang et al. 2022 (appendix D.1), and what is saved."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from model import attention
from model.config import ModelConfig
from model.encoder_decoder import build
from model.hub_config import model_type
from model.initialise import without_mup
from model.objectives.modules import CausalLM
from model.optim import parameter_groups
from model.shapes import from_depth
from model.transformer import Transformer

NARROW, WIDE = 64, 512
STEPS, RATE = 5, 0.01
Groups = Callable[[nn.Module], list[dict[str, Any]]]


def by_kind(module: nn.Module) -> list[dict[str, Any]]:
    scales: Any = {"head": 2.5, "embeddings": 15, "positions": 0.5, "vectors": 2.5}
    return parameter_groups(module, RATE, 0.0, scales=scales, base_width=96)


def one_rate(module: nn.Module) -> list[dict[str, Any]]:
    return [{"params": list(module.parameters()), "lr": RATE}]


def coordinates(width: int, groups: Groups, **changes: Any) -> dict[str, float]:
    """The size (root mean square) of what a network computes after a few steps of Adam."""
    torch.manual_seed(0)
    shape = from_depth(2, vocab_size=64, context=32, width=width, heads=4)
    module = CausalLM(Transformer(replace(shape, **changes)))
    optimizer = torch.optim.Adam(groups(module), betas=(0.9, 0.98))
    tokens = torch.randint(0, 64, (8, 33), generator=torch.Generator().manual_seed(1))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    for _ in range(STEPS):
        optimizer.zero_grad()
        module(inputs, targets).backward()
        optimizer.step()
    scores: list[Tensor] = []
    attend = attention.attend

    def watched(config: Any, q: Tensor, k: Tensor, *rest: Any) -> Tensor:
        scores.append(q @ k.mT * config.score_scale)
        return attend(config, q, k, *rest)

    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "attend", watched)
        states: list[Tensor] = []
        module.network.blocks[-1].register_forward_hook(lambda *found: states.append(found[2]))
        logits = module.network.logits(module.network(inputs))
    found = {"states": states[0], "scores": torch.stack(scores), "logits": logits}
    return {name: x.square().mean().sqrt().item() for name, x in found.items()}


def growth(groups: Groups, **changes: Any) -> dict[str, float]:
    """How many times larger they are in a wide network than in a narrow one."""
    narrow, wide = (coordinates(w, groups, **changes) for w in (NARROW, WIDE))
    return {name: wide[name] / narrow[name] for name in narrow}


def test_what_a_network_computes_stays_as_large_at_every_width_with_mup() -> None:
    grown = growth(by_kind, mup_base_width=96)
    assert grown["logits"] == pytest.approx(1, abs=0.05)
    assert grown["states"] == pytest.approx(1, abs=0.25)
    assert grown["scores"] < 1


def test_without_mup_it_grows_with_the_width() -> None:
    """Scores grow by the dimension of the heads alone, all else where the rates do not fall."""
    assert growth(by_kind)["scores"] > 1.3
    grown = growth(one_rate)
    assert grown["states"] > 10 and grown["scores"] > 5 and grown["logits"] > 3


LLAMA = replace(from_depth(2, vocab_size=31, context=16, width=64, heads=2), mup_base_width=96)
T5 = replace(
    from_depth(2, vocab_size=31, context=16, width=64, heads=2, family="encoder_decoder"),
    mup_base_width=96,
)


@pytest.mark.parametrize(
    "config",
    [LLAMA, replace(LLAMA, qk_norm="head"), replace(LLAMA, bias="qkv", kv_heads=1), T5],
    ids=["llama", "qk_norm", "bias", "t5"],
)
def test_what_is_saved_computes_the_same_without_mup(config: ModelConfig) -> None:
    torch.manual_seed(0)
    network = build(config).eval()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    tokens = torch.randint(0, 31, (2, 16))
    inputs = (tokens, tokens) if config.family == "encoder_decoder" else (tokens,)
    expected = network(*inputs)
    without_mup(network)
    torch.testing.assert_close(network(*inputs), expected, rtol=1e-4, atol=1e-5)
    plain = replace(config, mup_base_width=None)
    assert network.config == plain
    assert {m.config for m in network.modules() if hasattr(m, "config")} == {plain}
    assert model_type(network.config) == model_type(plain) != "headrace"


def test_a_tied_head_cannot_learn_at_another_rate_than_its_embedding() -> None:
    with pytest.raises(ValueError, match=r"tie_embeddings is True; it must be False"):
        replace(LLAMA, tie_embeddings=True)


def test_at_the_base_width_nothing_changes() -> None:
    plain = from_depth(2, vocab_size=31, context=16, width=96)
    networks = []
    for base in (None, 96):
        torch.manual_seed(0)
        networks.append(Transformer(replace(plain, mup_base_width=base)))
    tokens = torch.randint(0, 31, (2, 16))
    assert torch.equal(networks[0](tokens), networks[1](tokens))
    assert networks[0].config.score_scale == networks[1].config.score_scale
