"""Attention of one new token a row to the keys and values of a cache, on a CPU.

    mixed_BH1E = attend(config, q_BH1E, k_BKSE, v_BKSE, sight, training=False)

Keys and values are read from memory once a step, and no library reads them as fast as it could: of
eight rows `scaled_dot_product_attention` takes up to twice the time.

Letters: B rows, K key-value heads, G queries of each, H all queries, S positions, E head dimension.
"""

import torch
from torch import Tensor

from model import attention
from model.config import ModelConfig
from model.generation import team
from model.masks import Sight

ALONE = 2**13
"""As many numbers of keys are read by one thread as soon as by all."""


def attend(
    config: ModelConfig,
    q_BHTE: Tensor,
    k_BKSE: Tensor,
    v_BKSE: Tensor,
    sight: Sight,
    training: bool,
) -> Tensor:
    """`model.attention.attend` but for the last bits; without gradients for one query a row."""
    fits = q_BHTE.shape[2] == 1 and config.attention_softcap is None
    if not (fits and _lies_by_head(k_BKSE) and _lies_by_head(v_BKSE)):
        return attention.attend(config, q_BHTE, k_BKSE, v_BKSE, sight, training)
    scores_BH1S = _bias(sight.mask, q_BHTE, k_BKSE.shape[2])
    compiling = torch.compiler.is_compiling()
    mix = torch.ops.headrace.one_query if compiling else _one_query
    q_BH1E = (q_BHTE * config.score_scale).contiguous()
    mixed: Tensor = mix(q_BH1E, k_BKSE, v_BKSE, scores_BH1S)
    return mixed


def _lies_by_head(x_BKSE: Tensor) -> bool:
    """Whether each head's vectors follow one another, and heads lie equally far apart."""
    batch, head, position, inner = x_BKSE.stride()
    kv_heads, width = x_BKSE.shape[1], x_BKSE.shape[3]
    fp32 = x_BKSE.dtype == torch.float32 and x_BKSE.device.type == "cpu"
    return fp32 and (batch, position, inner) == (kv_heads * head, width, 1)


def _bias(mask: Tensor | None, q_BH1E: Tensor, keys: int) -> Tensor:
    """What is added to the scores `[B, H, 1, S]`, which the kernel writes over it."""
    bias = q_BH1E.new_zeros(*q_BH1E.shape[:3], keys)
    if mask is None:
        return bias
    return bias.masked_fill_(~mask, -torch.inf) if mask.dtype == torch.bool else bias.add_(mask)


def _one_query(q_BH1E: Tensor, k_BKSE: Tensor, v_BKSE: Tensor, scores_BH1S: Tensor) -> Tensor:
    batch, kv_heads, keys, inner = k_BKSE.shape
    mixed_BH1E = torch.empty_like(q_BH1E)
    group, strides = q_BH1E.shape[1] // kv_heads, (k_BKSE.stride(1), v_BKSE.stride(1))
    sizes = batch * kv_heads, group, keys, inner, *strides
    tensors = q_BH1E, k_BKSE, v_BKSE, scores_BH1S, mixed_BH1E
    team.run("attend", sizes, *tensors, alone=batch * kv_heads * keys * inner <= ALONE)
    return mixed_BH1E


torch.library.define(
    "headrace::one_query", "(Tensor q, Tensor k, Tensor v, Tensor(a!) scores) -> Tensor"
)
torch.library.impl("headrace::one_query", "CPU", _one_query)
torch.library.register_fake("headrace::one_query", lambda q, k, v, scores: torch.empty_like(q))
