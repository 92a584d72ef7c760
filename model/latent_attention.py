"""Multi-head latent attention: the keys and values of all heads from one short vector a token.

DeepSeek-V2 (2024), section 2.1, equations 9-19. The latent c and one rotated key r, which the heads
share, are all that the cache holds:

    c = norm(W_DKV x)    r = rotate(W_KR x)    key = [W_UK c, r]    value = W_UV c

Letters: B rows, T query positions, S key positions, D width, H heads, E head dimension, made of
P numbers without position and R rotated ones, V value dimension, L rank of the latent.
"""

import torch
from torch import Tensor, nn

from model.attention import attend
from model.cache import LayerCache
from model.config import ModelConfig
from model.masks import Sight
from model.norms import RMSNorm
from model.positions import Rotation, rotate
from model.ragged import RaggedLayer, attend_past
from model.sights import Seen


class LatentAttention(nn.Module):
    """Multi-head self-attention through latents."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        latent = config.latent
        assert latent is not None
        self.config, self.latent = config, latent
        self.plain_dim = config.head_dim - latent.rope_dim
        queries = config.heads * config.head_dim
        values = config.heads * latent.value_dim
        if latent.query_rank is None:
            self.query = nn.Linear(config.width, queries, bias=False)
        else:
            self.query_compress = nn.Linear(config.width, latent.query_rank, bias=False)
            self.query_norm = RMSNorm(latent.query_rank, config.norm_epsilon)
            self.query = nn.Linear(latent.query_rank, queries, bias=False)
        self.kv_compress = nn.Linear(config.width, latent.kv_rank + latent.rope_dim, bias=False)
        self.kv_norm = RMSNorm(latent.kv_rank, config.norm_epsilon)
        self.kv = nn.Linear(latent.kv_rank, config.heads * self.plain_dim + values, bias=False)
        self.out = nn.Linear(values, config.width, bias=False)

    def forward(
        self,
        x_BTD: Tensor,
        sight: Seen | list[Sight],
        rotation: Rotation | None = None,
        past: LayerCache | RaggedLayer | None = None,
    ) -> Tensor:
        """Mix values of the tokens that are seen into each token, `[B, T, D]`.

        `past` holds the latents of tokens already read, and takes those of these.
        """
        assert rotation is not None, "latent attention has rotary positions"
        q_BTHE = self._queries(x_BTD, rotation)
        c_BTL, r_BTR = self.kv_compress(x_BTD).split(
            [self.latent.kv_rank, self.latent.rope_dim], -1
        )
        r_BT1R = rotate(r_BTR[:, :, None], rotation)
        new_BT1M = torch.cat((self.kv_norm(c_BTL)[:, :, None], r_BT1R), -1)
        return self.out(attend_past(self._mix, past, sight, q_BTHE, new_BT1M).flatten(2))

    def _mix(self, q_BTHE: Tensor, sight: Seen, seen_B1SM: Tensor) -> Tensor:
        """The mixed values of every head, `[B, T, H, V]`."""
        # A whole prompt's latents are expanded once for all queries.
        whole = seen_B1SM.shape[2] == q_BTHE.shape[1]
        return (self._mix_values if whole else self._mix_latents)(q_BTHE, sight, seen_B1SM)

    def _queries(self, x_BTD: Tensor, rotation: Rotation) -> Tensor:
        if self.latent.query_rank is not None:
            x_BTD = self.query_norm(self.query_compress(x_BTD))
        q_BTHE = self.query(x_BTD).unflatten(-1, (-1, self.config.head_dim))
        plain_BTHP, turning_BTHR = q_BTHE.split([self.plain_dim, self.latent.rope_dim], -1)
        return torch.cat((plain_BTHP, rotate(turning_BTHR, rotation)), -1)

    def _mix_values(self, q_BTHE: Tensor, sight: Seen, seen_B1SM: Tensor) -> Tensor:
        """Attention with the latents expanded to the keys and values of every head."""
        c_BTL, r_BTR = seen_B1SM[:, 0].split([self.latent.kv_rank, self.latent.rope_dim], -1)
        kv_BTHX = self.kv(c_BTL).unflatten(-1, (self.config.heads, -1))
        k_BTHP, v_BTHV = kv_BTHX.split([self.plain_dim, self.latent.value_dim], -1)
        r_BTHR = r_BTR[:, :, None].expand(-1, -1, self.config.heads, -1)
        k_BTHE = torch.cat((k_BTHP, r_BTHR), -1)
        q_BHTE, k_BHTE, v_BHTV = (z.transpose(1, 2) for z in (q_BTHE, k_BTHE, v_BTHV))
        return attend(self.config, q_BHTE, k_BHTE, v_BHTV, sight, self.training).transpose(1, 2)

    def _mix_latents(self, q_BTHE: Tensor, sight: Seen, seen_B1SM: Tensor) -> Tensor:
        """The same from the latents `[c, r]` as they lie in the cache, which is read once.

        q . W_UK c = (W_UK' q) . c, so the query goes to the latent instead of the latents to keys,
        and W_UV meets the mixed latents: one key-value head for all queries.
        """
        weight_HXL = self.kv.weight.unflatten(0, (self.config.heads, -1))
        up_HPL, up_HVL = weight_HXL.split([self.plain_dim, self.latent.value_dim], 1)
        plain_BTHP, turned_BTHR = q_BTHE.split([self.plain_dim, self.latent.rope_dim], -1)
        latent_BTHL = torch.einsum("bthp,hpl->bthl", plain_BTHP, up_HPL)
        q_BHTM = torch.cat((latent_BTHL, turned_BTHR), -1).transpose(1, 2)
        c_B1SL = seen_B1SM[..., : self.latent.kv_rank]
        mixed_BHTL = attend(self.config, q_BHTM, seen_B1SM, c_B1SL, sight, self.training)
        return torch.einsum("bhtl,hvl->bthv", mixed_BHTL, up_HVL)
