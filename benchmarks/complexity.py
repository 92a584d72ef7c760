"""Time and memory of recurrent, convolutional and attention layers by the length of the text.

    uv run python benchmarks/complexity.py [--lengths 256 512 1024 2048] [--width 64] [--rounds 3]

Each layer reads one text of that length, forward and backward, in fp32 on one thread. Seconds are
the least over rounds. Memory is what is kept for the backward pass, each piece of storage counted
once, in MB. Of both an exponent is fitted over the longer half of the lengths: y = c n^a, least
squares on logarithms. Beside them stands the exponent in table 1 of Vaswani et al. 2017, which
counts operations of the layer alone, at lengths beyond the width.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from model.attention import Attention
from model.config import ModelConfig
from model.masks import self_sight
from model.shapes import from_depth

KERNEL, WINDOW = 3, 64
LENGTHS = (256, 512, 1024, 2048, 4096)
Layer = Callable[[Tensor], Tensor]


def main() -> None:
    """Print seconds and kept megabytes by length, and the exponents."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    lengths = "".join(f"{n:>16,}" for n in options.lengths)
    print(f"{'layer':25}{lengths}   n^ of time, of memory, in the paper")
    for name, (make, table) in LAYERS.items():
        layer = make(options.width)
        found = [measure(layer, n, options.width, options.rounds) for n in options.lengths]
        seconds, kept = zip(*found, strict=True)
        cells = "".join(f"{1000 * s:9.2f}ms{m / 1e6:5.1f}" for s, m in found)
        powers = [exponent(options.lengths, values) for values in (seconds, kept)]
        print(f"{name:25}{cells}   {powers[0]:4.2f} {powers[1]:4.2f}  {table}", flush=True)


def measure(layer: Layer, length: int, width: int, rounds: int) -> tuple[float, int]:
    """Seconds of a forward and backward pass, the least, and bytes kept for the latter."""
    x_1TD = torch.randn(1, length, width, requires_grad=True)
    taken = []
    for _ in range(rounds):
        kept: dict[int, int] = {}
        begun = time.perf_counter()
        with saved_tensors_hooks(partial(_weigh, kept), lambda tensor: tensor):
            layer(x_1TD).square().sum().backward()
        taken.append(time.perf_counter() - begun)
    return min(taken), sum(kept.values())


def _weigh(kept: dict[int, int], tensor: Tensor) -> Tensor:
    storage = tensor.untyped_storage()
    kept[storage.data_ptr()] = storage.nbytes()
    return tensor


def exponent(lengths: Sequence[int], values: Sequence[float]) -> float:
    """a of y = c n^a over the longer half of the lengths, at least two of them."""
    last = max(2, (len(lengths) + 1) // 2)
    logs = np.log(lengths[-last:]), np.log(values[-last:])
    return float(np.polyfit(*logs, 1)[0])


def shape(width: int) -> ModelConfig:
    """An encoder's layer with heads of 16 or so."""
    return from_depth(1, vocab_size=2, context=1, width=width, family="encoder")


def fused(width: int) -> Layer:
    """Self-attention by PyTorch's kernel, which keeps no scores."""
    layer = Attention(shape(width))
    return lambda x: layer(x, self_sight(x.shape[1], x.shape[1], x.device, causal=False))


def written_out(width: int) -> Layer:
    """Self-attention with every score in memory, as the formula has it."""
    layer = Attention(replace(shape(width), attention_softcap=50.0))
    return lambda x: layer(x, self_sight(x.shape[1], x.shape[1], x.device, causal=False))


def windowed(width: int) -> Layer:
    """Attention to the tokens of the own and the previous block of `WINDOW` alone."""
    layer = Attention(shape(width))

    def read(x_1TD: Tensor) -> Tensor:
        blocks = x_1TD.view(-1, WINDOW, x_1TD.shape[-1])
        pairs = torch.cat((blocks.roll(1, 0), blocks), 1)
        sight = self_sight(2 * WINDOW, 2 * WINDOW, x_1TD.device, window=WINDOW)
        return layer(pairs, sight)[:, WINDOW:].reshape(x_1TD.shape)

    return read


def recurrent(kind: type[nn.RNNBase], width: int) -> Layer:
    """One layer of the library's kernel."""
    layer = kind(width, width, batch_first=True)
    return lambda x: layer(x)[0]


def convolutional(width: int) -> Layer:
    """A convolution over three neighbours."""
    layer = nn.Conv1d(width, width, KERNEL, padding=KERNEL // 2)
    return lambda x: layer(x.mT).mT


LAYERS: dict[str, tuple[Callable[[int], Layer], str]] = {
    "recurrent, RNN": (partial(recurrent, nn.RNN), "1"),
    "recurrent, LSTM": (partial(recurrent, nn.LSTM), "1"),
    "recurrent, GRU": (partial(recurrent, nn.GRU), "1"),
    "convolution": (convolutional, "1"),
    "attention, fused": (fused, "2"),
    "attention, written out": (written_out, "2"),
    "attention, blocks": (windowed, "1"),
}
"""What makes each layer, and its exponent of n in the paper."""


if __name__ == "__main__":
    main()
