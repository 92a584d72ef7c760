"""Heads for other tasks than the next token, on top of a pretrained network.

    module = Headed(network, Head("sequence", outputs=2, pooling="first"))
    loss = module(inputs, documents, positions, labels=classes)
    scores_BC = module.scores(inputs, documents, positions)

A head says something of a whole row (a class, several, a number), of each token (a tag), or where a
span of tokens begins and ends. Letters: B rows, T positions, D width, C outputs.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from model.encoder_decoder import EncoderDecoder
from model.head_config import Head
from model.transformer import Transformer

NO_LABEL = -100
"""Of a token about which nothing is said."""


class Headed(nn.Module):
    """Scores W z + b, z being the state of a token or what stands for all of them.

    W starts at zero: at first every class is equally likely, and the first gradients that reach the
    pretrained network are already those of a head that has begun to learn. The network loses its LM
    head. One that reads the first token has a pooler, made here where there was none (Devlin et al.
    2019); W on the last token has no b, as in Transformers. Both halves of an encoder-decoder read
    the text, and the states are its decoder's (BART: Lewis et al. 2020, section 3.1).
    """

    class_weights: Tensor | None = None
    """What the loss of each class counts, `[C]`, of mean 1 over all rows; None is 1 for each."""

    def __init__(self, network: Transformer | EncoderDecoder, head: Head) -> None:
        super().__init__()
        self.head = head
        self.network = prepare(network, pooler=head.kind == "sequence" and head.pooling == "first")
        biased = not (head.kind == "sequence" and head.pooling == "last")
        self.classifier = nn.Linear(network.config.width, head.outputs, bias=biased)
        for parameter in self.classifier.parameters():
            nn.init.zeros_(parameter)
        if head.layers == "weighted":
            self.mix = nn.Parameter(torch.zeros(network.config.depth + 1))
            self.gain = nn.Parameter(torch.ones(1))

    def forward(
        self,
        inputs: Tensor,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
        *,
        labels: Tensor,
    ) -> Tensor:
        """The mean loss, in nats where it is one of classes. `labels` are classes `[B]`, for each
        class whether it holds `[B, C]`, or numbers `[B, C]`; of tokens `[B, T]`, -100 for none; of
        spans the first and last place `[B, 2]`.
        """
        scores = self.scores(inputs, documents, positions, segments).float()
        weights = None if self.class_weights is None else self.class_weights.to(scores.device)
        if self.head.kind == "span":
            if documents is not None:
                scores = scores.masked_fill(documents[:, :, None] == 0, -torch.inf)
            return F.cross_entropy(scores, labels)
        if self.head.kind == "token":
            chosen = labels != NO_LABEL
            total = F.cross_entropy(scores[chosen], labels[chosen], weights, reduction="sum")
            return total / chosen.sum()
        if weights is None:
            return LOSSES[self.head.problem](scores, labels)
        if self.head.problem == "single_label_classification":
            # Over the rows, not their weights: micro-batches then add up to the batch.
            return F.cross_entropy(scores, labels, weights, reduction="sum") / len(labels)
        return F.binary_cross_entropy_with_logits(scores, labels, weights)

    def scores(
        self,
        inputs: Tensor,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """Logits, `[B, C]` of rows, `[B, T, C]` of tokens and spans. One text a row; where
        `documents` is 0 there is padding.
        """
        return self.score(self.states(inputs, documents, positions, segments), documents)

    def states(
        self,
        inputs: Tensor,
        documents: Tensor | None = None,
        positions: Tensor | None = None,
        segments: Tensor | None = None,
    ) -> Tensor:
        """The network's final states, or the weighted mean of all layers', `[B, T, D]`."""
        if self.head.layers == "last":
            return self._run(inputs, documents, positions, segments)
        network, states = self.network, list[Tensor]()
        stack = network.decoder if isinstance(network, EncoderDecoder) else network
        hooks = [
            stack.blocks[0].register_forward_pre_hook(lambda _, given: states.append(given[0])),
            *(
                block.register_forward_hook(lambda _, __, made: states.append(stack.norm(made)))
                for block in dict.fromkeys(stack.blocks)
            ),
        ]
        try:
            self._run(inputs, documents, positions, segments)
        finally:
            for hook in hooks:
                hook.remove()
        first, layers = states[0], states[-network.config.depth :]
        shares = self.mix.softmax(0)
        return self.gain * (shares[:, None, None, None] * torch.stack([first, *layers])).sum(0)

    def _run(
        self,
        inputs: Tensor,
        documents: Tensor | None,
        positions: Tensor | None,
        segments: Tensor | None,
    ) -> Tensor:
        if isinstance(self.network, EncoderDecoder):
            laid = (documents, documents, positions, positions)
            return self.network(inputs, inputs, *laid)
        return self.network(inputs, documents, positions, segments_BT=segments)

    def score(self, hidden_BTD: Tensor, documents: Tensor | None) -> Tensor:
        """The logits of final states."""
        whole = self.head.kind == "sequence"
        z = self._pooled(hidden_BTD, documents) if whole else hidden_BTD
        return self.classifier(F.dropout(z, self.network.config.dropout, self.training))

    def _pooled(self, hidden_BTD: Tensor, documents_BT: Tensor | None) -> Tensor:
        """What stands for each row, `[B, D]`."""
        if self.head.pooling == "first":
            assert isinstance(self.network, Transformer)
            return self.network.pool(hidden_BTD)
        if documents_BT is None:
            documents_BT = torch.ones(hidden_BTD.shape[:2], device=hidden_BTD.device)
        if self.head.pooling == "last":
            at_B = last_tokens(documents_BT)
            return hidden_BTD[torch.arange(len(at_B), device=at_B.device), at_B]
        real_BT1 = (documents_BT > 0)[:, :, None].to(hidden_BTD.dtype)
        return (hidden_BTD * real_BT1).sum(1) / real_BT1.sum(1).clamp_min(1)


LOSSES = {
    "single_label_classification": F.cross_entropy,
    "multi_label_classification": F.binary_cross_entropy_with_logits,
    "regression": F.mse_loss,
}


def prepare(network: Transformer | EncoderDecoder, *, pooler: bool) -> Transformer | EncoderDecoder:
    """The network without its LM head, and with a pooler or without, in place.

    With muP the LM head stays, unused: no such network is tied.
    """
    config = network.config
    if pooler and not config.pooler and isinstance(network, Transformer):
        network.pooler = nn.Linear(config.width, config.width)
        nn.init.normal_(network.pooler.weight, std=config.width**-0.5)
        nn.init.zeros_(network.pooler.bias)
    tied = config.mup_base_width is None
    gone = ["head_transform"] * config.head_transform + ["pooler"] * (config.pooler > pooler)
    gone += ["head"] * (tied and not config.tie_embeddings)
    gone += ["detector"] * config.detector
    gone += ["multi_token"] * bool(config.multi_token)
    for name in gone:
        delattr(network, name)
    network.head_bias, network.headless = None, True
    if config.query_embedding:
        assert isinstance(network, Transformer)
        network.query_embedding.requires_grad_(False)
    network.config = replace(
        config,
        tie_embeddings=tied,
        head_transform=False,
        head_bias=False,
        detector=False,
        pooler=pooler,
        multi_token=0,
    )
    return network


def last_tokens(documents_BT: Tensor) -> Tensor:
    """Position of the last token of each row that is not padding, `[B]`."""
    positions_T = torch.arange(documents_BT.shape[1], device=documents_BT.device)
    return (positions_T * (documents_BT > 0)).argmax(1)
