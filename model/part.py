"""A piece of a network with its costs. Arithmetic only, no PyTorch."""

from dataclasses import dataclass
from typing import Literal

Role = Literal["embedding", "body", "head", "own head"]


@dataclass(frozen=True, kw_only=True)
class Part:
    """A piece of a network, `layers` times over; the other numbers are those of one layer."""

    name: str
    role: Role = "body"
    """`own head`: an encoder's, which its published count leaves out."""
    layers: int = 1
    weights: int = 0
    """Matrix elements that a token is multiplied with."""
    vectors: int = 0
    """Parameters that cost a token next to nothing: embeddings, biases, gains."""
    idle: int = 0
    """Matrix elements of the experts that a token does not pass through."""
    shared: int = 0
    """Of `weights`, those that another part has counted: tied ones."""
    pairs: float = 0
    """Multiplications of a token with all it attends to, in scores and mixing."""
    kept: int = 0
    """Numbers a token leaves for the backward pass: an estimate, without recomputation, where
    fused attention keeps no scores."""
    wide: int = 0
    """Numbers that norms are given, of four bytes under autocast, which keeps the residual in fp32.
    """
    written_out: int = 0
    """Numbers of two bytes that an RMSNorm keeps more in half precision on a CPU, where PyTorch
    writes it out in fp32; a GPU has a kernel for it.
    """
    products: int = 0
    """Numbers that matrix products and attention make of a token: what selective activation
    checkpointing keeps (`model.recompute`).
    """
    divided: int = 0
    """Parameters that tensor parallelism divides (`model.tensor_parallel`), and with them what is
    kept.
    """

    @property
    def params(self) -> int:
        """Parameters of all its layers."""
        return self.layers * (self.weights - self.shared + self.vectors + self.idle)

    @property
    def active_params(self) -> int:
        """Those that one token uses."""
        return self.params - self.layers * self.idle

    @property
    def flops(self) -> float:
        """Forward and backward FLOPs for one token: 6 a multiplication (Kaplan et al. 2020, 2.1).

        A multiplication and an addition forward, and twice that for the gradients of both factors.
        """
        return 6 * self.layers * (self.weights + self.pairs)
