"""Parameter groups: each kind of parameter with its own peak learning rate and weight decay.

    groups = parameter_groups(module, learning_rate=3e-3, weight_decay=0.1)
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98))

Adam moves every number by about its learning rate a step. A matrix sums over its inputs, so what a
step does to its output grows with their number, and its rate must fall as 1 / width. An embedding
is looked up, not summed over, and keeps its rate at every width (Yang et al. 2022, Tensor Programs
V, table 3: muP). So one setting found on a narrow network holds on a wide one. What muP asks for
beside the rates, a smaller LM head at first and scores over the head dimension, is `config.mup`'s.
"""

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.nn import Parameter

from model.blocks import Block
from model.config import REFERENCE_WIDTH
from model.transformer import LanguageModel

Group = dict[str, Any]


def parameter_groups(
    module: nn.Module,
    learning_rate: float,
    weight_decay: float,
    *,
    head_scale: float = 2.5,
    embedding_scale: float = 15.0,
    position_scale: float = 0.5,
    vector_scale: float = 2.5,
) -> list[Group]:
    """The trainable parameters of a network (or of what holds one) in groups for an optimizer.

    At width d, with r = `learning_rate`, the groups are

    - `matrices` inside the blocks, at r 96 / d;
    - `head`, the LM head (or the embedding it is tied to) and the heads of other tasks, at
      r `head_scale` 96 / d;
    - `embeddings` of tokens, at r `embedding_scale`;
    - `positions`, learned ones, at r `position_scale`: all tokens share their order, and faster
      ones lose it;
    - `vectors`, gains and biases, at r `vector_scale`.

    Only the matrices decay (decoupled, Loshchilov and Hutter 2019). Each group has `name`,
    `params`, `lr` (its peak) and `weight_decay`; empty groups are left out. The scales were found
    by search at widths 96 and 128 with a vocabulary of 4096.
    """
    network = _network(module)
    narrow = REFERENCE_WIDTH / network.config.width
    rates = {
        "matrices": learning_rate * narrow,
        "head": learning_rate * head_scale * narrow,
        "embeddings": learning_rate * embedding_scale,
        "positions": learning_rate * position_scale,
        "vectors": learning_rate * vector_scale,
    }
    members: dict[str, list[Parameter]] = {name: [] for name in rates}
    for kind, parameter in _kinds(module):
        members[kind].append(parameter)
    return [
        {
            "name": name,
            "params": members[name],
            "lr": rate,
            "weight_decay": weight_decay if name == "matrices" else 0.0,
        }
        for name, rate in rates.items()
        if members[name]
    ]


def _kinds(module: nn.Module) -> Iterator[tuple[str, Parameter]]:
    """Every trainable parameter once, with the name of its group."""
    parts = list(module.modules())
    in_blocks = {id(p) for m in parts if isinstance(m, Block) for p in m.parameters()}
    placed = {id(m.weight) for n, m in module.named_modules() if n.endswith("position_embedding")}
    looked_up = {id(m.weight) for m in parts if isinstance(m, nn.Embedding)}
    looked_up -= {id(m.head_weight) for m in parts if isinstance(m, LanguageModel)}
    for parameter in module.parameters():
        if not parameter.requires_grad:
            continue
        if parameter.ndim < 2:
            yield "vectors", parameter
        elif id(parameter) in placed:
            yield "positions", parameter
        elif id(parameter) in looked_up:
            yield "embeddings", parameter
        else:
            yield "matrices" if id(parameter) in in_blocks else "head", parameter


def _network(module: nn.Module) -> LanguageModel:
    """The network that is trained; one that only helps an objective comes behind it."""
    return next(m for m in module.modules() if isinstance(m, LanguageModel))
