"""Where a token is: sinusoids, rotations, and biases on the scores of attention.

Letters: B rows, T query positions, S key positions, D width, H heads, E head dimension, R
distances.
"""

import functools
import math

import torch
from torch import Tensor, nn

from model.config import ModelConfig, Rope, RopeScaling
from model.masks import distances

Rotation = tuple[Tensor, Tensor]


def sinusoids(positions_BT: Tensor, width: int) -> Tensor:
    """p(t) = sin(t / 10000^(2k/d)), cos(...) in alternation (Vaswani et al. 2017, section 3.5).

    p(t + s) is p(t) with its k-th pair turned by the angle s / 10000^(2k/d).
    """
    pairs = torch.arange(0, width, 2, device=positions_BT.device, dtype=torch.float32)
    angles = positions_BT[..., None].float() * 10_000 ** (-pairs / width)
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)[..., :width]


def rotation(
    config: ModelConfig,
    rope: Rope,
    positions_BT: Tensor,
    dtype: torch.dtype,
    furthest_BT: Tensor | None = None,
) -> Rotation:
    """Cosine and sine of position times frequency, each `[B, T, 1, R/2]` (Su et al. 2021, eq. 15)
    of the R numbers of a head that turn.

    Angles are formed in fp32 whatever `dtype` is: bf16 cannot tell positions above 256 apart.
    """
    frequencies = rope_frequencies(config, rope, positions_BT, furthest_BT)
    angles_BT1E = (positions_BT[..., None].float() * frequencies)[..., None, :]
    cos, sin = angles_BT1E.cos(), angles_BT1E.sin()
    if rope.scaling and rope.scaling.attention_factor != 1:
        cos, sin = (z * rope.scaling.attention_factor for z in (cos, sin))
    return cos.to(dtype), sin.to(dtype)


def rotate(x_BTHE: Tensor, rotation: Rotation) -> Tensor:
    """Turn the pairs (x_i, x_{i + R/2}) of the first R numbers by their angles; the pairing is the
    Hugging Face one.
    """
    cos, sin = rotation
    half = cos.shape[-1]
    first, second = x_BTHE[..., :half], x_BTHE[..., half : 2 * half]
    turned = first * cos - second * sin, second * cos + first * sin
    return torch.cat((*turned, x_BTHE[..., 2 * half :]), -1)


def rope_frequencies(
    config: ModelConfig, rope: Rope, positions_BT: Tensor, furthest_BT: Tensor | None = None
) -> Tensor:
    """Radians a position of each pair, `[R/2]`: theta^(-2k/R), stretched as the scaling says; where
    that looks at the length of a row, `[B, 1, R/2]`, or `[B, T, R/2]` where `furthest_BT` has the
    last position of the row that each token is of, as rows lie end to end.
    """
    device, scaling = positions_BT.device, rope.scaling
    half = torch.arange(0, config.rope_dim, 2, device=device, dtype=torch.float32)
    frequencies = rope.theta ** (-half / config.rope_dim)
    if scaling is None:
        return frequencies
    if scaling.kind == "longrope":
        last = positions_BT.amax(-1, keepdim=True) if furthest_BT is None else furthest_BT
        longer = last[..., None] >= scaling.original_context
        short, long = _factors(scaling, device)
        return frequencies / long.where(longer, short)
    keep = _kept(config, rope.theta, scaling, frequencies)
    return keep * frequencies + (1 - keep) * frequencies / scaling.factor


@functools.lru_cache(maxsize=8)
def _factors(scaling: RopeScaling, device: torch.device) -> tuple[Tensor, Tensor]:
    """The short and the long factors on a device, sent once: to send them is to wait for it."""
    short, long = (
        torch.tensor(each, device=device) for each in (scaling.short_factors, scaling.long_factors)
    )
    return short, long


def _kept(config: ModelConfig, theta: float, scaling: RopeScaling, frequencies: Tensor) -> Tensor:
    """Which share of each frequency stays as it is, see `RopeScaling`."""
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    if scaling.kind == "linear":
        return torch.zeros_like(frequencies)
    if scaling.kind == "llama3":
        turns = scaling.original_context * frequencies / (2 * math.pi)
        return ((turns - low) / (high - low)).clamp(0, 1)

    def pair_that_turns(times: float) -> float:
        wavelength = scaling.original_context / (2 * math.pi * times)
        return config.rope_dim / 2 * math.log(wavelength) / math.log(theta)

    first = max(math.floor(pair_that_turns(high)), 0)
    last = min(math.ceil(pair_that_turns(low)), config.rope_dim - 1)
    pairs = torch.arange(len(frequencies), device=frequencies.device)
    return 1 - ((pairs - first) / max(last - first, 1e-3)).clamp(0, 1)


def alibi_slopes(heads: int) -> list[float]:
    """2^(-8/n), 2^(-16/n), ... for n heads; what n lacks to a power of two is taken in between.

    Press et al. 2022, section 3, and its code for other numbers of heads.
    """
    power = 2 ** int(math.log2(heads))
    slopes = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    between = [2 ** (-4 * (2 * i + 1) / power) for i in range(heads - power)]
    return slopes + between


@functools.lru_cache(maxsize=8)
def _slopes(heads: int, device: torch.device) -> Tensor:
    """The same on a device, `[H]`, sent once."""
    return torch.tensor(alibi_slopes(heads), device=device)


def alibi(heads: int, queries: int, keys: int, device: torch.device) -> Tensor:
    """Minus slope times distance, `[H, T, S]` (Press et al. 2022, section 3)."""
    return -_slopes(heads, device)[:, None, None] * distances(queries, keys, device).abs()


@functools.lru_cache(maxsize=8)
def alibi_by_distance(heads: int, length: int, device: torch.device) -> Tensor:
    """The same for every distance in a row, `[H, R]`, from 1 - T to T - 1."""
    return -_slopes(heads, device)[:, None] * every_distance(length, device).abs()


def every_distance(length: int, device: torch.device) -> Tensor:
    """How far back a key can be of a query in a row, `[R]`, from 1 - T to T - 1."""
    return torch.arange(1 - length, length, device=device)


class RelativeBias(nn.Module):
    """A learned number for each head and bucket of distances (Raffel et al. 2020, section 2.1).

    One table for all layers of a stack.
    """

    def __init__(self, config: ModelConfig, causal: bool) -> None:
        super().__init__()
        self.causal, self.furthest = causal, config.relative_distance
        self.table = nn.Embedding(config.relative_buckets, config.heads)

    def forward(self, queries: int, keys: int) -> Tensor:
        """The bias of every query and key, `[H, T, S]`."""
        return self._of(distances(queries, keys, self.table.weight.device)).permute(2, 0, 1)

    def by_distance(self, length: int) -> Tensor:
        """The bias of every distance in a row, `[H, R]`, from 1 - T to T - 1."""
        return self._of(every_distance(length, self.table.weight.device)).T

    def _of(self, distance: Tensor) -> Tensor:
        count = self.table.num_embeddings
        return self.table(relative_buckets(distance, count, self.furthest, self.causal))


def relative_buckets(distance: Tensor, buckets: int, furthest: int, causal: bool) -> Tensor:
    """The bucket of each distance back from the query.

    Half of the buckets hold one distance each; the others grow logarithmically up to `furthest`,
    and the last holds all beyond. An encoder has such buckets for each direction.
    """
    if causal:
        ahead, distance = torch.zeros_like(distance), distance.clamp(min=0)
    else:
        buckets //= 2
        ahead, distance = (distance < 0) * buckets, distance.abs()
    exact = buckets // 2
    # The log of 0 would be -inf, which no integer is; small distances are replaced below.
    growth = (distance.float().clamp(min=1) / exact).log() / math.log(furthest / exact)
    far = exact + (growth * (buckets - exact)).long()
    return ahead + distance.where(distance < exact, far.clamp(max=buckets - 1))
