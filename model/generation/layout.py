"""How weights lie in memory, so that a CPU reads them as fast as it can for a few tokens."""

import torch
from torch import Tensor, nn

from model.encoder_decoder import EncoderDecoder
from model.transformer import Transformer


def lay_out(network: Transformer | EncoderDecoder) -> None:
    """Store the fp32 matrices that have more outputs than inputs by column, if on a CPU.

    A token's time is that of reading every weight once. The product of a few rows with such a
    matrix walks memory in one sweep when a column, the weights of one input, lies together; stored
    by row it takes up to twice as long. Values, shapes and parameters stay what they are.
    """
    linears = [module for module in network.modules() if isinstance(module, nn.Linear)]
    for weight in [network.head_weight, *(linear.weight for linear in linears)]:
        wide = weight.shape[0] > weight.shape[1] and weight.is_contiguous()
        if wide and weight.dtype == torch.float32 and weight.device.type == "cpu":
            _store_by_column(weight)


@torch.inference_mode(False)
def _store_by_column(weight: Tensor) -> None:
    """Tensors made in inference mode could never be trained again, hence its absence.

    Rows that lie a multiple of 4 KiB apart would share a few places of the cache, so those are
    stored with a gap between them.
    """
    outputs, inputs = weight.shape
    gap = 0 if outputs % 1024 else 16
    stored = weight.new_empty(inputs, outputs + gap)[:, :outputs]
    weight.data = stored.copy_(weight.data.t()).t()
