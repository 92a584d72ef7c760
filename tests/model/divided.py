"""Compares networks that two processes have together with the whole ones.

python -m tests.model.divided FOLDER RANK
"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from model.config import ExpertConfig, ModelConfig
from model.encoder_decoder import EncoderDecoder, build
from model.shapes import from_depth
from model.tensor_parallel import Split, Team, divide, splits

SMALL = from_depth(2, vocab_size=31, context=12, width=32, heads=4, kv_heads=2)
ENCODER = from_depth(2, vocab_size=31, context=12, width=32, heads=4, family="encoder")
BOTH = from_depth(2, vocab_size=31, context=12, width=32, heads=4, family="encoder_decoder")
SHAPES = {
    "decoder": replace(SMALL, qk_norm="head", bias="qkv", attention_softcap=20.0),
    "narrow": replace(SMALL, head_dim=4, residual="parallel", activation="relu2", window=3),
    "mup": replace(SMALL, mup_base_width=96, norm_placement="sandwich"),
    "encoder": ENCODER,
    "encoder-decoder": replace(
        BOTH, positions="learned", bias="all", activation="gelu", qk_norm="head", encoder_depth=1
    ),
    "experts": replace(SMALL, experts=ExpertConfig(routed=4, active=2, width=16, shared=1)),
    "idle experts": replace(
        SMALL,
        experts=ExpertConfig(
            routed=4,
            active=1,
            width=16,
            groups=2,
            active_groups=1,
            scoring="sigmoid",
            normalise=False,
        ),
    ),
}


def main(folder: Path, rank: int) -> None:
    store = dist.FileStore(str(folder / "store"), 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
    team = Team(dist.group.WORLD, rank, 2)
    found = {name: compare(config, team) for name, config in SHAPES.items()}
    found["dropout"] = draws(team)
    (folder / f"{rank}.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def compare(config: ModelConfig, team: Team) -> dict[str, float]:
    """How far the divided network is from the whole: its states, gradients and parameters."""
    whole, divided = (network(config) for _ in range(2))
    found = splits(divided)
    divide(divided, team)
    states = [trained(module) for module in (whole, divided)]
    gradients, parameters = 0.0, 0.0
    for (name, p), q in zip(whole.named_parameters(), divided.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        parameters = max(parameters, far(p, joined(name, q, found, team)))
        if p.grad is not None and q.grad is not None:
            gradients = max(gradients, far(p.grad, joined(name, q.grad, found, team)))
    return {"states": far(*states), "gradients": gradients, "parameters": parameters}


def draws(team: Team) -> dict[str, float]:
    """How far processes with dropout are from each other, after their heads have had their own."""
    module = network(replace(SHAPES["decoder"], dropout=0.2))
    divide(module, team)
    states = trained(module)
    first, second = team.gather(states)
    return {"states": far(first, second), "without": far(states, trained(module.eval()))}


def network(config: ModelConfig) -> nn.Module:
    torch.manual_seed(3)
    module = build(config)
    for parameter in module.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return module


def trained(module: nn.Module) -> Tensor:
    """The states of made-up tokens, after a backward pass of a function of them."""
    torch.manual_seed(4)
    tokens = torch.randint(31, (2, 2, 12))
    documents = torch.tensor([[1] * 7 + [2] * 5] * 2)
    if isinstance(module, EncoderDecoder):
        states = module(tokens[0], tokens[1], documents, documents)
    else:
        states = module(tokens[0], documents)
    weights = torch.linspace(-1, 1, states.numel()).sin().view_as(states)
    (states * weights).sum().backward()
    return states.detach()


def joined(name: str, own: Tensor, found: dict[str, Split], team: Team) -> Tensor:
    return found[name].join(team.gather(own)) if name in found else own


def far(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / a.abs().max().clamp(min=1e-6))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
