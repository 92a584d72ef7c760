"""Every kind of attention against a naive restatement, value and gradient, and through a cache."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from model.attention import Attention, CrossAttention
from model.cache import LayerCache
from model.config import LatentConfig, ModelConfig, RopeScaling
from model.latent_attention import LatentAttention
from model.masks import Sight, self_sight
from model.positions import rotate, rotation
from model.shapes import from_depth

CPU = torch.device("cpu")
SMALL = from_depth(2, vocab_size=61, context=24, width=32, heads=4)
LATENT = LatentConfig(kv_rank=12, query_rank=10, rope_dim=4, value_dim=6)
SELF = {
    "heads": SMALL,
    "grouped": replace(SMALL, kv_heads=2),
    "one key-value head": replace(SMALL, kv_heads=1, bias="all"),
    "window": replace(SMALL, window=3),
    "grouped window": replace(SMALL, kv_heads=2, window=4),
    "softcap": replace(SMALL, kv_heads=2, attention_softcap=0.7),
    "query-key norm": replace(SMALL, kv_heads=2, qk_norm="head", bias="qkv"),
    "norm over all heads": replace(SMALL, kv_heads=2, qk_norm="all", bias="attention"),
    "some numbers turn": replace(SMALL, rotary_dim=6),
    "an odd number turns": replace(SMALL, rotary_dim=3, head_dim=7),
    "scaled": replace(SMALL, attention_scale=1.0, positions="relative"),
    "stretched": replace(SMALL, rope_scaling=RopeScaling(kind="linear", factor=3.0)),
    "latent": replace(SMALL, head_dim=9, latent=LATENT),
    "latent window": replace(SMALL, head_dim=9, latent=replace(LATENT, query_rank=None), window=3),
}
every_kind = pytest.mark.parametrize("config", SELF.values(), ids=SELF)


def build(config: ModelConfig) -> Attention | LatentAttention:
    torch.manual_seed(0)
    attention = (LatentAttention if config.latent else Attention)(config)
    for parameter in attention.parameters():
        mean = 1.0 if parameter.ndim == 1 else 0.0
        torch.nn.init.normal_(parameter, mean=mean, std=0.2)
    return attention


def turning(config: ModelConfig, start: int, stop: int) -> tuple[Tensor, Tensor] | None:
    places = torch.arange(start, stop)[None]
    rope = config.layer_rope(0)
    return rope and rotation(config, rope, places, torch.float32)


def rms(x: Tensor, gain: Tensor, epsilon: float) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + epsilon).sqrt() * gain


def turned(config: ModelConfig, x_E: Tensor, place: int) -> Tensor:
    turn = turning(config, place, place + 1)
    return x_E if turn is None else rotate(x_E[None, None, None], turn)[0, 0, 0]


def naive(config: ModelConfig, attention: Attention | LatentAttention, x_TD: Tensor) -> Tensor:
    """One query and one head at a time."""
    heads = (_latent_heads if config.latent else _heads)(config, attention, x_TD)
    scale = config.attention_scale or 1 / math.sqrt(config.head_dim)
    rows = []
    for t in range(len(x_TD)):
        first = 0 if config.window is None else max(0, t - config.window + 1)
        mixed = []
        for queries, keys, values in heads:
            scores = torch.stack([queries[t] @ keys[s] * scale for s in range(first, t + 1)])
            if config.attention_softcap:
                scores = config.attention_softcap * torch.tanh(scores / config.attention_softcap)
            weights = scores.exp() / scores.exp().sum()
            mixed.append(sum(w * values[first + i] for i, w in enumerate(weights)))
        rows.append(attention.out(torch.cat(mixed)))
    return torch.stack(rows)


def _heads(
    config: ModelConfig, attention: Attention, x_TD: Tensor
) -> list[tuple[list[Tensor], list[Tensor], Tensor]]:
    """Queries, keys and values of each head."""
    size, found = config.head_dim, []
    weight, bias = attention.qkv.weight, attention.qkv.bias
    for head in range(config.heads):
        of_kv = head * config.kv_heads // config.heads
        parts = []
        for at in (head, config.heads + of_kv, config.heads + config.kv_heads + of_kv):
            rows = slice(at * size, (at + 1) * size)
            parts.append(x_TD @ weight[rows].T + (0 if bias is None else bias[rows]))
        q, k, v = parts
        if config.qk_norm == "all":
            q = _of_all(config, x_TD, attention, "q", head)
            k = _of_all(config, x_TD, attention, "k", of_kv)
        if config.qk_norm == "head":
            q = rms(q, attention.q_norm.weight, config.norm_epsilon)
            k = rms(k, attention.k_norm.weight, config.norm_epsilon)
        q, k = ([turned(config, row, t) for t, row in enumerate(z)] for z in (q, k))
        found.append((q, k, v))
    return found


def _of_all(
    config: ModelConfig, x_TD: Tensor, attention: Attention, which: str, head: int
) -> Tensor:
    """One head of queries or keys that are normed together."""
    first, count = {"q": (0, config.heads), "k": (config.heads, config.kv_heads)}[which]
    rows = slice(first * config.head_dim, (first + count) * config.head_dim)
    gain = attention.get_parameter(f"{which}_norm.weight")
    all_TX = x_TD @ attention.qkv.weight[rows].T + attention.qkv.bias[rows]
    return rms(all_TX, gain, config.norm_epsilon).split(config.head_dim, -1)[head]


def _latent_heads(
    config: ModelConfig, attention: LatentAttention, x_TD: Tensor
) -> list[tuple[list[Tensor], list[Tensor], Tensor]]:
    """DeepSeek-V2, equations 9 to 17, with keys and values made of the latents."""
    latent, found = config.latent, []
    plain = config.head_dim - latent.rope_dim
    c_q = x_TD
    if latent.query_rank is not None:
        c_q = x_TD @ attention.query_compress.weight.T
        c_q = rms(c_q, attention.query_norm.weight, config.norm_epsilon)
    down = attention.kv_compress.weight
    c_kv = x_TD @ down[: latent.kv_rank].T
    c_kv = rms(c_kv, attention.kv_norm.weight, config.norm_epsilon)
    k_rope = [turned(config, row, t) for t, row in enumerate(x_TD @ down[latent.kv_rank :].T)]
    for head in range(config.heads):
        of_q = attention.query.weight[head * config.head_dim : (head + 1) * config.head_dim]
        step = plain + latent.value_dim
        of_kv = attention.kv.weight[head * step : (head + 1) * step]
        q_plain, q_rope = c_q @ of_q[:plain].T, c_q @ of_q[plain:].T
        q = [
            torch.cat((a, turned(config, b, t)))
            for t, (a, b) in enumerate(zip(q_plain, q_rope, strict=True))
        ]
        k = [torch.cat((a, b)) for a, b in zip(c_kv @ of_kv[:plain].T, k_rope, strict=True)]
        found.append((q, k, c_kv @ of_kv[plain:].T))
    return found


@every_kind
def test_value_and_gradient_are_those_of_a_naive_restatement(config):
    attention = build(config)
    x = torch.randn(2, 9, 32, requires_grad=True)
    out = attention(x, self_sight(9, 9, CPU, window=config.window), turning(config, 0, 9))
    expected = torch.stack([naive(config, attention, row) for row in x])
    assert torch.allclose(out, expected, atol=1e-5)
    into = [x, *attention.parameters()]
    towards = torch.randn_like(out)
    found = torch.autograd.grad((out * towards).sum(), into)
    right = torch.autograd.grad((expected * towards).sum(), into)
    for a, b in zip(found, right, strict=True):
        assert torch.allclose(a, b, atol=1e-5)


@every_kind
@pytest.mark.parametrize("cuts", [(4, 1, 1, 3), (1,) * 9, (7, 2)])
@torch.no_grad()
def test_reading_through_a_cache_gives_the_same(config, cuts):
    attention, x = build(config), torch.randn(2, 9, 32)
    whole = attention(x, self_sight(9, 9, CPU, window=config.window), turning(config, 0, 9))
    past, parts, start = LayerCache(), [], 0
    for size in cuts:
        stop = start + size
        sight = self_sight(size, stop, CPU, window=config.window)
        parts.append(attention(x[:, start:stop], sight, turning(config, start, stop), past))
        start = stop
    assert torch.allclose(torch.cat(parts, 1), whole, atol=1e-5)


def test_latents_are_all_that_is_kept_of_a_token():
    config = SELF["latent"]
    past = LayerCache()
    build(config)(torch.randn(1, 5, 32), Sight(causal=True), turning(config, 0, 5), past)
    (latents,) = past.buffers
    assert latents.shape == (1, 1, 5, LATENT.kv_rank + LATENT.rope_dim)


def test_a_biased_sight_adds_to_the_scores_of_each_head():
    config = replace(SMALL, kv_heads=2, positions="alibi")
    attention, x = build(config), torch.randn(1, 6, 32)
    bias = torch.randn(4, 6, 6)
    heads = _heads(config, attention, x[0])
    mixed = []
    for (q, k, v), bias_TS in zip(heads, bias, strict=True):
        scores = torch.stack(q) @ torch.stack(k).T / math.sqrt(8) + bias_TS
        mixed.append(
            scores.tril().masked_fill(~torch.ones(6, 6).tril().bool(), -math.inf).softmax(-1) @ v
        )
    expected = attention.out(torch.cat(mixed, -1))
    sight = Sight(causal=True).biased(bias)
    assert torch.allclose(attention(x, sight)[0], expected, atol=1e-5)
    last = Sight().biased(bias[:, -1:])
    past = LayerCache()
    attention(x[:, :-1], Sight(causal=True), None, past)
    assert torch.allclose(attention(x[:, -1:], last, None, past)[0], expected[-1:], atol=1e-5)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_cross_attention_is_a_naive_restatement_and_keeps_its_memory(kv_heads):
    config = replace(SMALL, kv_heads=kv_heads, bias="all")
    torch.manual_seed(0)
    attention = CrossAttention(config)
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    x, memory = torch.randn(2, 3, 32), torch.randn(2, 5, 32)
    heads = []
    k, v = attention.kv(memory).chunk(2, -1)
    for head in range(4):
        at = head * kv_heads // 4
        q = attention.query(x)[..., head * 8 : head * 8 + 8]
        k_of, v_of = (z[..., at * 8 : at * 8 + 8] for z in (k, v))
        heads.append((q @ k_of.mT / math.sqrt(8)).softmax(-1) @ v_of)
    expected = attention.out(torch.cat(heads, -1))
    assert torch.allclose(attention(x, memory, Sight()), expected, atol=1e-5)
    past = LayerCache()
    steps = [attention(x[:, t : t + 1], memory, Sight(), past) for t in range(3)]
    assert torch.allclose(torch.cat(steps, 1), expected, atol=1e-5)
    assert torch.allclose(attention(x, memory * 0, Sight(), past), expected, atol=1e-5)


def test_a_cache_grows_and_selects_rows():
    past, all_keys = LayerCache(room=2), torch.arange(24.0).view(2, 1, 4, 3)
    for t in range(4):
        keys, values = past.append(all_keys[:, :, t : t + 1], -all_keys[:, :, t : t + 1])
    assert torch.equal(keys, all_keys)
    assert torch.equal(values, -all_keys)
    past.select(torch.tensor([1, 1, 0]))
    keys, _ = past.append(torch.zeros(3, 1, 1, 3), torch.zeros(3, 1, 1, 3))
    assert torch.equal(keys[:, :, :4], all_keys[[1, 1, 0]])
    assert not keys[:, :, 4].any()
