"""RMSNorm, the norm of most decoders since LLaMA."""

import torch
from torch import Tensor, nn


class RMSNorm(nn.RMSNorm):
    """x / sqrt(mean(x^2) + epsilon) * gain (Zhang and Sennrich 2019, equation 4).

    Without gradients it is written out: for a few tokens on a CPU PyTorch's takes twice as long.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Each vector of the last dimension, scaled to a root mean square of 1."""
        if torch.is_grad_enabled() or x.dtype != torch.float32:
            return super().forward(x)
        assert self.eps is not None
        # The sum of squares without a tensor of squares; in place, as no backward pass needs it.
        square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_()
        return (x * square.div_(x.shape[-1]).add_(self.eps).rsqrt_()).mul_(self.weight)
