"""Parameter groups: each kind of parameter with its own peak learning rate and weight decay.

    groups = parameter_groups(module, learning_rate=6e-4, weight_decay=0.1)
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98))

By itself one rate is everyone's, as in published recipes. Kinds may have shares of it (`scales`;
weights have the size that such shares made, so a network that was trained at some keeps them), and
matrices and heads a rate that falls with the width from a `base_width` on: Adam moves every
number by about its learning rate a step, a matrix sums over its inputs, so what a step does to its
output grows with their number. An embedding is looked up, not summed over, and keeps its rate at
every width (Yang et al. 2022, Tensor Programs V, table 3: muP). So one setting found on a narrow
network holds on a wide one. What muP asks for beside the rates, a smaller LM head at first and
scores over the head dimension, comes with `config.mup_base_width`.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from torch import nn
from torch.nn import Parameter

from model.blocks import Block
from model.config import MATRIX_KINDS, ParameterKind
from model.recurrent import RecurrentLayer
from model.stack import Stack
from model.transformer import LanguageModel

Group = dict[str, Any]
NARROWED: tuple[ParameterKind, ...] = ("matrices", "head")
"""Kinds whose rate falls with the width, where any does."""
PLACED = ("position_embedding", "relative_embedding")
"""What learned positions are called."""
BEHIND = ("norm.", "head", "pooler", "multi_token")
"""What comes behind the layers of a stack."""


def parameter_groups(
    module: nn.Module,
    learning_rate: float,
    weight_decay: float,
    *,
    scales: Mapping[str, float | None] | None = None,
    base_width: int | None = None,
    decayed: Collection[ParameterKind] = MATRIX_KINDS,
    layer_decay: float = 1.0,
) -> list[Group]:
    """The trainable parameters of a network (or of what holds one) in groups for an optimizer.

    - `matrices` inside the blocks, and the one that embeddings go through;
    - `head`, the LM head (or the embedding it is tied to) and the heads of other tasks;
    - `embeddings` of tokens;
    - `positions`, learned ones;
    - `vectors`, gains and biases.

    A group's peak rate is `learning_rate`, times its scale (None: that of the training before, or
    1), and for matrices and head times base width / width, with the base width of muP if none is
    given. Only the `decayed` kinds decay (decoupled, Loshchilov and Hutter 2019). With
    `layer_decay` each layer has that share of the rate of the one above it, by groups of their own,
    `matrices/2` of the last layer but one (Howard and Ruder 2018, ULMFiT; Clark et al. 2020,
    ELECTRA). Each group has `name`, `params`, `lr` (its peak) and `weight_decay`; empty groups are
    left out.
    """
    narrow = _narrowing(module, base_width)
    network = _network(module)
    shares = dict(network.rate_shares or {}) if network else {}
    shares |= {kind: share for kind, share in (scales or {}).items() if share is not None}
    depths = _depths(module) if layer_decay < 1 else {}
    members: dict[tuple[ParameterKind, int], list[Parameter]] = {}
    for kind, parameter in _kinds(module):
        members.setdefault((kind, depths.get(parameter, 0)), []).append(parameter)
    order = get_args(ParameterKind)
    return [
        {
            "name": f"{kind}/{depth}" if depth else kind,
            "params": members[kind, depth],
            "lr": learning_rate
            * shares.get(kind, 1.0)
            * (narrow if kind in NARROWED else 1.0)
            * layer_decay**depth,
            "weight_decay": weight_decay if kind in decayed else 0.0,
        }
        for kind, depth in sorted(members, key=lambda group: (order.index(group[0]), group[1]))
    ]


def shares_of(
    network: LanguageModel, groups: Sequence[Group], learning_rate: float
) -> dict[str, float]:
    """The share of a learning rate that each kind has, of the groups of a network: `rate_shares`.
    Embeddings have what those of tokens had, as the LM head that they were tied to may be gone.
    """
    shares = {group["name"]: round(group["lr"] / learning_rate, 9) for group in groups}
    table = network.embedding.weight
    among = next(g["name"] for g in groups if any(p is table for p in g["params"]))
    return shares | {"embeddings": shares[among]}


def freeze(parameters: Iterable[Parameter]) -> None:
    """Let parameters stay as they are built: untrained, and given again where a training goes on.

    (What an objective has no gradient for is untrained too, but drawn when training begins.)
    """
    for parameter in parameters:
        parameter.requires_grad_(False)
        parameter.given = True  # pyrefly: ignore[missing-attribute]


def is_given(parameter: Any) -> bool:
    """Whether a parameter is frozen."""
    return getattr(parameter, "given", False)


def _depths(module: nn.Module) -> dict[Parameter, int]:
    """How far below its stack's top each parameter is: 1 in the last layer, below the first one
    embeddings. What comes behind the layers has 0 and is left out.
    """
    depths: dict[Parameter, int] = {}
    for stack in (m for m in module.modules() if isinstance(m, Stack)):
        above = {p for n, p in stack.named_parameters() if n.startswith(BEHIND)}
        layers = len(stack.blocks)
        depths |= {p: layers + 1 for p in stack.parameters() if p not in above}
        for layer, block in enumerate(stack.blocks):
            depths |= dict.fromkeys(block.parameters(), layers - layer)
    for network in (m for m in module.modules() if isinstance(m, LanguageModel)):
        lowest = max(depths.values(), default=0)
        depths |= dict.fromkeys(network.embedding.parameters(), lowest)
    return depths


def _narrowing(module: nn.Module, base_width: int | None) -> float:
    """Base width over the width of the network that is trained."""
    if (network := _network(module)) is None:
        return 1.0
    base = base_width or network.config.mup_base_width
    return base / network.config.width if base else 1.0


def _network(module: nn.Module) -> LanguageModel | None:
    """The network that is trained; one that only helps an objective comes behind it."""
    return next((m for m in module.modules() if isinstance(m, LanguageModel)), None)


def _kinds(module: nn.Module) -> Iterator[tuple[ParameterKind, Parameter]]:
    """Every trainable parameter once, with the name of its group."""
    parts = list(module.modules())
    # By identity: a parameter that is tied has several names.
    in_blocks = {
        id(p) for m in parts if isinstance(m, Block | RecurrentLayer) for p in m.parameters()
    }
    in_blocks |= {
        id(p) for n, p in module.named_parameters() if n.endswith("embedding_projection.weight")
    }
    placed = {id(m.weight) for n, m in module.named_modules() if n.endswith(PLACED)}
    looked_up = {id(m.weight) for m in parts if isinstance(m, nn.Embedding)}
    heads = (m for m in parts if isinstance(m, LanguageModel) and not m.headless)
    looked_up -= {id(m.head_weight) for m in heads}
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
