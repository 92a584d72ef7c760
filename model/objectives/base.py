"""What all objectives are made of: the module that holds a network, and its head's predictions.

Letters: B rows, T positions, N of a batch together, K of them with a target, D width, V vocabulary.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.encoder_decoder import EncoderDecoder
from model.objectives.losses import ChunkedCrossEntropy, chunks
from model.objectives.rows import IGNORED
from model.transformer import LanguageModel, Transformer

Network = Transformer | EncoderDecoder


class Scored(NamedTuple):
    """Targets `[K]` with the loss of each, and whether the likeliest answer is the right one."""

    targets: Tensor
    losses: Tensor
    hits: Tensor


class Objective(nn.Module):
    """A network and what it is to minimise: `objective(**batch)` is the mean loss of a batch."""

    UNUSED: tuple[str, ...] = ()
    """Parts of the network that this objective gives no gradient; they are not trained."""

    takes_begins = True
    """Whether a batch may say where documents begin (`model.documents`)."""

    takes_places = False
    """Whether a batch may say where its targets are (`model.objectives.places`)."""

    z_loss: float = 0.0
    """Coefficient of the z-loss of the LM head's predictions (`losses.ChunkedCrossEntropy`)."""

    label_smoothing: float = 0.0
    """Share of each target that is spread over all tokens, in training."""

    told: Mapping[str, Tensor] = MappingProxyType({})
    """Figures of the last batch, means as its loss is; `z_loss` is a part of that loss."""

    scored: Callable[..., dict[str, Scored]]
    """Of a batch, every target with its loss, in order, by kind; the objective's own kind first."""

    answers: Callable[..., dict[str, Tensor]]
    """Of a batch, the right answers `[K]` by kind, as `scored` has them."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        for name in self.UNUSED:
            if (part := getattr(network, name, None)) is not None:
                part.requires_grad_(False)

    def token_loss(self, hidden_ND: Tensor, targets_N: Tensor) -> Tensor:
        """Mean loss of the network's own LM head, z-loss included."""
        smoothing = self.label_smoothing if self.training else 0.0
        loss, penalty = token_loss(self.network, hidden_ND, targets_N, self.z_loss, smoothing)
        if self.z_loss:
            self.told = {"z_loss": penalty}
        return loss


def hidden_states(
    network: Network,
    inputs: Tensor,
    documents: Tensor | None = None,
    positions: Tensor | None = None,
    *,
    decoder_inputs: Tensor | None = None,
    prefix: Tensor | None = None,
    segments: Tensor | None = None,
    order: Tensor | None = None,
    begins: Tensor | None = None,
) -> Tensor:
    """The network's final states `[B, T, D]` of a batch, in an encoder-decoder the decoder's."""
    if decoder_inputs is not None:
        return network(inputs, decoder_inputs, documents, positions_BS=positions, begins_N=begins)
    seen = None if prefix is None else prefix.bool()
    if network.config.segments < 2:  # RoBERTa: two texts are of one kind
        segments = None
    return network(
        inputs,
        documents,
        positions,
        prefix_BT=seen,
        segments_BT=segments,
        order_BT=order,
        begins_N=begins,
    )


def balance_loss(module: nn.Module) -> Tensor | float:
    """What experts add to the loss of a training step; 0 without experts."""
    found = [
        loss
        for network in module.children()
        if isinstance(network, LanguageModel) and (loss := network.balance_loss()) is not None
    ]
    return torch.stack(found).sum() if found and module.training else 0.0


def token_loss(
    network: Network,
    hidden_ND: Tensor,
    targets_N: Tensor,
    z_loss: float = 0.0,
    smoothing: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Mean loss of the LM head's predictions over targets that are not -100, and the part of it
    that z-loss is.
    """
    total, penalty = ChunkedCrossEntropy.apply(
        network.head_input(hidden_ND),
        network.head_weight,
        network.head_bias,
        targets_N,
        network.config.logit_softcap,
        z_loss,
        smoothing,
        torch.is_grad_enabled(),
    )
    count = (targets_N != IGNORED).sum()
    if network.context_group is not None:
        # The mean over the processes is then that over the targets of all of them.
        count = network.context_group.mean(count)
    return total / count.clamp(min=1), penalty / count.clamp(min=1)


def at_targets(
    hidden_BTD: Tensor, targets: Tensor, places: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Hidden states `[K, D]` and targets `[K]` where there is a target; with `places`
    (`model.objectives.places`) no device is asked where that is.
    """
    if places is not None:
        hidden_ND = hidden_BTD.flatten(0, -2)
        return hidden_ND.index_select(0, places), targets.flatten().index_select(0, places)
    kept = targets != IGNORED
    return hidden_BTD[kept], targets[kept]


def scored_tokens(network: Network, hidden_KD: Tensor, targets_K: Tensor) -> Scored:
    """Predictions of the LM head, a chunk at a time."""
    parts = [
        scored_classes(network.logits(hidden_KD[rows]).float(), targets_K[rows])
        for rows in chunks(len(targets_K), network.config.vocab_size, targets_K.device)
    ]
    if not parts:
        return Scored(targets_K, hidden_KD.new_zeros(0), targets_K.bool())
    return Scored(*(torch.cat(column) for column in zip(*parts, strict=True)))


def scored_classes(scores_KV: Tensor, targets_K: Tensor) -> Scored:
    """Predictions by logits over classes."""
    losses_K = F.cross_entropy(scores_KV, targets_K, reduction="none")
    return Scored(targets_K, losses_K, scores_KV.argmax(-1) == targets_K)


def scored_bits(scores_K: Tensor, labels_K: Tensor) -> Scored:
    """Predictions of yes (1) or no (0) by the logit of yes."""
    losses_K = F.binary_cross_entropy_with_logits(
        scores_K, labels_K.to(scores_K.dtype), reduction="none"
    )
    return Scored(labels_K, losses_K, (scores_K > 0).long() == labels_K)
