"""Predicting the tokens after the next as well (DeepSeek-V3, 2024, section 2.2, equations 21-25).

Module k joins what module k - 1 made of position i (the first: the network) with token i + k:

    h_i = block(W [norm(h_i); norm(embedding(t_(i+k)))])

and the network's own head scores token i + k + 1. Embedding and head are shared. Published sizes
leave the modules out: DeepSeek-V3's 671 billion are without its one module, of 14 billion in its
files, 11.5 of which are not the shared embedding and head.

Letters: B rows, T positions, D width.
"""

import torch
from torch import Tensor, nn

from model.blocks import Block, Context, make_norm
from model.config import ModelConfig


class MultiToken(nn.Module):
    """One module; `norm` comes between it and the head, but not between it and the next module."""

    def __init__(self, config: ModelConfig, layer: int) -> None:
        super().__init__()
        self.hidden_norm = make_norm(config)
        self.token_norm = make_norm(config)
        self.join = nn.Linear(2 * config.width, config.width, bias=False)
        self.block = Block(config, layer)
        self.norm = make_norm(config)

    def forward(self, hidden_BTD: Tensor, tokens_BTD: Tensor, context: Context) -> Tensor:
        """The states of the next depth, `[B, T, D]`, from those of the last and later tokens."""
        both_BTX = torch.cat((self.hidden_norm(hidden_BTD), self.token_norm(tokens_BTD)), -1)
        return self.block(self.join(both_BTX), context)


def further_targets(
    targets_BT: Tensor, documents_BT: Tensor | None, k: int, ignored: int
) -> Tensor:
    """The targets `k` tokens on: `ignored` where the row or the document ends before."""
    ends_BT = torch.zeros_like(targets_BT, dtype=torch.bool)
    ends_BT[:, -k:] = True
    if documents_BT is not None:
        ends_BT = ends_BT | (documents_BT != documents_BT.roll(-k, 1))
    return targets_BT.roll(-k, 1).masked_fill(ends_BT, ignored)
