"""Parameter groups: each kind of parameter with its own peak learning rate and weight decay.

    torch.optim.AdamW(parameter_groups(module, learning_rate=4e-3, weight_decay=0.1))

Adam moves every number by about its learning rate a step. A matrix sums over its inputs, so what a
step does to its output grows with their number, and its rate must fall as 1 / width. An embedding
is looked up, not summed over, and keeps its rate at every width (Yang et al. 2021, Tensor Programs
V, table 3: muP). So one setting found on a narrow network holds on a wide one.
"""

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.nn import Parameter

from model.transformer import Transformer

REFERENCE_WIDTH = 128
"""The width at which `learning_rate` is the rate of the matrices as it stands."""

Group = dict[str, Any]


def parameter_groups(
    module: nn.Module,
    learning_rate: float,
    weight_decay: float,
    *,
    embedding_scale: float = 5.0,
    vector_scale: float = 2.0,
) -> list[Group]:
    """The trainable parameters of a network (or of what holds one) in groups for an optimizer.

    At width d, with r = `learning_rate`:

    - `matrices`, among them an LM head of its own: r 128 / d, and the only ones to decay
      (decoupled, Loshchilov and Hutter 2019);
    - `embeddings`, of tokens and positions: r `embedding_scale`, or that times 128 / d where the
      token embedding is the LM head as well;
    - `vectors`, gains and biases: r `vector_scale`.

    Each group has `name`, `params`, `lr` (its peak), `weight_decay`; empty groups are left out.
    """
    embedding, tied = _token_embedding(module)
    narrow = REFERENCE_WIDTH / embedding.embedding_dim
    rates = {
        "matrices": learning_rate * narrow,
        "embeddings": learning_rate * embedding_scale * (narrow if tied else 1.0),
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
    looked_up = {id(m.weight) for m in module.modules() if isinstance(m, nn.Embedding)}
    for parameter in module.parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) in looked_up:
            yield "embeddings", parameter
        else:
            yield "matrices" if parameter.ndim >= 2 else "vectors", parameter


def _token_embedding(module: nn.Module) -> tuple[nn.Embedding, bool]:
    """The token embedding of the network in a module, and whether it is the LM head as well."""
    networks = [m for m in module.modules() if isinstance(m, Transformer)]
    assert len(networks) == 1, f"expected one network in the module, found {len(networks)}"
    return networks[0].embedding, networks[0].config.tie_embeddings
