"""The heavy pieces of a step: attention of packed documents, the LM head, a matrix product."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from gpu_parts.sizes import Found, Sizes, packed, seen, timed
from model.attention import attend
from model.config import ModelConfig
from model.documents import begins_of
from model.masks import self_sight
from model.objectives.losses import ChunkedCrossEntropy
from model.sights import Blocks, Lengths, Seen


def kernels(sizes: Sizes) -> Found:
    """Time and accuracy of each, by shape."""
    product = {"product": {"tflops": _product(sizes)}}
    shapes = sizes.shapes.items()
    return {name: attention(config, sizes) | head(config, sizes) for name, config in shapes} | (
        product
    )


def attention(config: ModelConfig, sizes: Sizes) -> Found:
    """Forward and backward of one layer's attention, in each way, on two rows of documents."""
    rows, device = 2, torch.device(sizes.device)
    documents_BT = packed(config, 0, rows)["documents"]
    ways = sights(config, torch.from_numpy(documents_BT), device)
    torch.manual_seed(0)
    heads = (config.heads, config.kv_heads, config.kv_heads)
    shape = config.context, config.head_dim
    parts = [torch.randn(rows, n, *shape, device=device) for n in heads]
    exact = both_ways(partial(attend, config, sight=ways["mask"], training=True), parts)
    flops = 12 * config.heads * config.head_dim * rows * config.context * seen(documents_BT)
    halves = [part.bfloat16() for part in parts]
    found: Found = {}
    for name in ways if sizes.on_gpu else ("mask",):  # a CPU has no backward pass of the others
        call = partial(both_ways, partial(attend, config, sight=ways[name], training=True), halves)
        pairs = zip(call(), exact, strict=True)
        apart = [float((a.float() - b).norm() / b.norm()) for a, b in pairs]
        seconds = timed(call, sizes.device)
        found[name] = {
            "ms": round(1e3 * seconds, 3),
            "tflops": round(flops / seconds / 1e12, 1),
            "error": round(max(apart), 5),
        }
    return {"attention": found}


def sights(config: ModelConfig, documents_BT: Tensor, device: torch.device) -> dict[str, Seen]:
    """Each way to say who sees whom."""
    context, begins = config.context, begins_of(documents_BT.numpy())
    assert begins is not None
    documents_BT = documents_BT.to(device)
    return {
        "mask": self_sight(context, context, device, documents_BS=documents_BT),
        "flex": Blocks.of(context, device, causal=True, documents_BT=documents_BT),
        "varlen": Lengths(torch.from_numpy(begins).to(device), (-1, 0)),
    }


def both_ways(call: Callable[..., Tensor], parts: list[Tensor]) -> list[Tensor]:
    """A value and the gradients of its inputs."""
    leaves = [part.detach().requires_grad_() for part in parts]
    out = call(*leaves)
    out.backward(out.detach())
    return [out.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def head(config: ModelConfig, sizes: Sizes) -> Found:
    """The LM head with its loss, forward and backward."""
    count, width, vocabulary = sizes.positions, config.width, config.vocab_size
    device = sizes.device
    hidden = torch.randn(count, width, device=device, dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(vocabulary, width, device=device, requires_grad=True)
    targets = torch.randint(vocabulary, (count,), device=device)

    def loss() -> None:
        with torch.autocast(device, torch.bfloat16):
            args = (hidden, weight, None, targets, None, 0.0, 0.0, True)
            ChunkedCrossEntropy.apply(*args)[0].backward()

    seconds = timed(loss, device)
    rate = 6 * count * width * vocabulary / seconds
    return {"head": {"ms": round(1e3 * seconds, 3), "tflops": round(rate / 1e12, 1)}}


def _product(sizes: Sizes) -> float:
    """TFLOP/s of a product in bf16: what the others are to be held against."""
    a = torch.randn(sizes.product, sizes.product, device=sizes.device, dtype=torch.bfloat16)
    return round(2 * sizes.product**3 / timed(lambda: a @ a, sizes.device) / 1e12, 1)
