"""Who sees whom: causal, bidirectional, prefix and cross attention, windows, packed documents.

Letters: B rows, T query positions, S key positions. The queries of self-attention are the last T of
the S positions. Where attention can do without a mask it gets none: so its kernels are fastest.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sight:
    """What queries see: all keys, or (`causal`) those up to themselves, or what `mask` says.

    The mask is True where a query sees a key, or else a number to add to the score (-inf: unseen),
    broadcastable to `[B, heads, T, S]`.
    """

    mask: Tensor | None = None
    causal: bool = False

    def written_out(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """The mask, also for the plain triangle; None where all is seen."""
        return nearby(queries, keys, device) if self.causal else self.mask

    def biased(self, bias: Tensor) -> "Sight":
        """The same sight, with a bias `[H, T, S]` or `[B, H, T, S]` for what is seen."""
        queries, keys = bias.shape[-2:]
        mask = self.written_out(queries, keys, bias.device)
        bias_BHTS = bias if bias.ndim == 4 else bias[None]
        return Sight(bias_BHTS if mask is None else bias_BHTS.where(mask, -torch.inf))


def self_sight(
    queries: int,
    keys: int,
    device: torch.device,
    *,
    causal: bool = True,
    window: int | None = None,
    documents_BS: Tensor | None = None,
    prefix_BS: Tensor | None = None,
    order_BS: Tensor | None = None,
) -> Sight:
    """What each of the last `queries` of `keys` positions sees of them all.

    Itself and others of its document that are less than `window` away: those before it, and those
    after it in an encoder (not `causal`) or within a prefix (`prefix_BS` is True; Raffel et al.
    2020, section 3.2.1). Padding (document 0) sees padding: no row of the softmax may be empty.
    `order_BS` says in which order tokens are predicted (`in_order`).
    """
    window = None if window is None or window >= keys else window
    if window is None and documents_BS is None and prefix_BS is None and order_BS is None:
        if not causal or queries == 1:
            return Sight()
        if queries == keys:
            return Sight(causal=True)
    seen = nearby(queries, keys, device, causal=causal, window=window)
    if prefix_BS is not None:
        both_BTS = prefix_BS[:, -queries:, None] & prefix_BS[:, None, :]
        seen = seen | both_BTS & nearby(queries, keys, device, causal=False, window=window)
    if order_BS is not None:
        seen = seen & in_order(order_BS)
    if documents_BS is not None:
        seen = seen & (documents_BS[:, -queries:, None] == documents_BS[:, None, :])
    return Sight(seen[:, None] if seen.ndim == 3 else seen)


def in_order(order_BT: Tensor) -> Tensor:
    """Who sees whom of tokens that are predicted in an order, `[B, T, T]` (XLNet's two streams;
    Yang et al. 2019, section 2.3).

    Of a token that is predicted in the r-th place `order_BT` is r, of the query that asks for it
    -r, of all others 0. A token sees itself, those before it in the order and the others; a query
    those before it and the others. None sees a query.
    """
    keys_B1T, place_BT1 = order_BT[:, None, :], order_BT.abs()[:, :, None]
    itself = torch.eye(order_BT.shape[1], dtype=torch.bool, device=order_BT.device)
    return (keys_B1T == 0) | (keys_B1T > 0) & ((keys_B1T < place_BT1) | itself)


def cross_sight(documents_BT: Tensor | None, documents_BS: Tensor | None) -> Sight:
    """What decoder positions see of an encoder's: the document of the same number.

    Without `documents_BT` they see every document, and padding (0) not; without either, all.
    """
    if documents_BS is None:
        return Sight()
    if documents_BT is None:
        return Sight((documents_BS > 0)[:, None, None, :])
    same_BTS = documents_BT[:, :, None] == documents_BS[:, None, :]
    # A decoder document without a counterpart, such as its padding, looks at everything, lest its
    # softmax be empty.
    return Sight((same_BTS | ~same_BTS.any(-1, keepdim=True))[:, None])


def nearby(
    queries: int,
    keys: int,
    device: torch.device,
    *,
    causal: bool = True,
    window: int | None = None,
) -> Tensor:
    """The triangle `[T, S]` of the last `queries` positions, or the full square, cut to a band."""
    distance_TS = distances(queries, keys, device)
    seen_TS = distance_TS >= 0 if causal else torch.ones_like(distance_TS, dtype=torch.bool)
    return seen_TS if window is None else seen_TS & (distance_TS.abs() < window)


def distances(queries: int, keys: int, device: torch.device) -> Tensor:
    """How far back of each of the last `queries` positions each key is, `[T, S]`."""
    here_T = torch.arange(keys - queries, keys, device=device)
    return here_T[:, None] - torch.arange(keys, device=device)[None, :]


def single(documents_BT: Tensor | None) -> bool:
    """Whether every row is one document from end to end."""
    return documents_BT is None or bool((documents_BT == documents_BT[:, :1]).all())
