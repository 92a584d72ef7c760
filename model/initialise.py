"""The weights a network starts from."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from model.attention import Attention, CrossAttention
from model.cells import initialise_kernel
from model.config import ModelConfig
from model.experts import ExpertLayer
from model.positions import sinusoids
from model.sharded import whole


@torch.no_grad()
def initialise(network: nn.Module) -> None:
    """Draw the weights, from PyTorch's global generator.

    Embeddings and the head N(0, .02), but embeddings that are scaled by sqrt(width) and meet
    sinusoids N(0, 1 / width), lest these drown them (Vaswani et al. 2017, released code). Matrices
    N(0, 1 / fan-in), so that a layer's output is the size of its input at any width; except those
    that write to the residual stream, which start at zero. Every block is then the identity at
    first, and depth does not drown the tokens before the branches have learnt something (Zhang et
    al. 2019, Fixup; Bachlechner et al. 2021, ReZero).

    Learned positions start as sinusoids of that size, between which a shift is one linear map. From
    random ones a masked LM, which knows a token by its neighbours only, takes thousands of steps to
    find out who they are.

    With muP the head starts as N(0, .02 x base width / width): each step adds to a token's score as
    much at every width, and so must the start (Yang et al. 2022, table 3; by lemma J.1 the same as
    table 8's multiplier 1 / width on the output).
    """
    config = network.config
    assert isinstance(config, ModelConfig)
    head_std = 0.02 * (config.mup_base_width / config.width if config.mup_base_width else 1.0)
    queries = {m.qkv: m for m in network.modules() if isinstance(m, Attention)}
    for name, module in network.named_modules():
        if module is network:
            continue
        with whole(module):
            _draw(name, module, config, head_std)
            if module in queries:
                _even_scores(queries[module])
    with whole(network):
        for name, parameter in network.named_parameters(recurse=False):
            if name == "query_embedding":
                nn.init.normal_(parameter, std=0.02)
            else:
                nn.init.zeros_(parameter)


def _draw(name: str, module: Any, config: ModelConfig, head_std: float) -> None:
    """Set a module's own weights and buffers, not those of the modules in it."""
    if name.endswith("position_embedding"):
        rows_1T = torch.arange(len(module.weight), device=module.weight.device)[None]
        module.weight.copy_(0.02 * math.sqrt(2) * sinusoids(rows_1T, module.weight.shape[1])[0])
    elif name == "head":
        nn.init.normal_(module.weight, std=head_std)
    elif isinstance(module, nn.Embedding):
        drowned = config.scale_embedding and config.positions == "sinusoidal"
        nn.init.normal_(module.weight, std=config.width**-0.5 if drowned else 0.02)
    elif isinstance(module, nn.Linear):
        if name.endswith(("out", ".down")):
            nn.init.zeros_(module.weight)
        else:
            nn.init.normal_(module.weight, std=1 / math.sqrt(module.in_features))
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.RNNBase):
        initialise_kernel(module)
    elif isinstance(module, ExpertLayer):
        nn.init.normal_(module.up, std=1 / math.sqrt(module.up.shape[-1]))
        nn.init.zeros_(module.down)
    elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
        module.reset_parameters()
    else:
        for parameter in module.parameters(recurse=False):
            nn.init.zeros_(parameter)


def _even_scores(attention: Attention) -> None:
    """Give scores variance 1 whatever their scale, by the size of the queries (T5, unscaled)."""
    config = attention.config
    if config.attention_scale is not None and not config.mup_base_width:
        rows = config.heads * config.head_dim
        attention.qkv.weight[:rows] /= config.attention_scale * math.sqrt(config.head_dim)


@torch.no_grad()
def without_mup(network: nn.Module) -> None:
    """Turn a network trained with muP into the same one without, which other libraries know: what
    sets its scores apart goes into the queries.
    """
    for module in network.modules():
        config = getattr(module, "config", None)
        if not isinstance(config, ModelConfig) or not config.mup_base_width:
            continue
        plain = replace(config, mup_base_width=None)
        module.config = plain  # pyrefly: ignore[bad-argument-type]
        ratio, rows = config.score_scale / plain.score_scale, config.heads * config.head_dim
        if isinstance(module, Attention) and config.qk_norm != "none":
            # A norm undoes whatever size the projection before it has.
            module.q_norm.weight.mul_(ratio)
        elif isinstance(module, Attention):
            for parameter in module.qkv.parameters():
                parameter[:rows].mul_(ratio)
        elif isinstance(module, CrossAttention):
            for parameter in module.query.parameters():
                parameter.mul_(ratio)
