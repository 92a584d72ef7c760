"""Held-out loss of a network, token by token, and the text to compare a byte model on."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from cluster.artifact import Artifact
from cluster.errors import BadInput
from model import hub
from model.objectives import IGNORED, CausalLM
from tasks.scoring.witten_bell import witten_bell_bits_per_byte
from tasks.tokens.encoder import load
from tasks.tokens.loader import Loader, windows

BATCH_TOKENS = 4096


@dataclass(frozen=True)
class HeldoutScore:
    """Summed loss in nats of `tokens` predicted tokens, and the bytes those tokens stand for."""

    nats: float
    tokens: int
    text: bytes

    def metrics(self) -> dict[str, float]:
        """`heldout_loss` in nats a token, `perplexity`, `bits_per_byte`."""
        loss = self.nats / self.tokens
        return {
            "heldout_loss": loss,
            "perplexity": math.exp(min(loss, 700.0)),
            "bits_per_byte": self.nats / (math.log(2) * len(self.text)),
        }


def score_heldout(
    model: Artifact,
    shards: Artifact,
    max_tokens: int,
    device: str = "cpu",
    progress: Callable[[tuple[int, int]], None] = lambda done: None,
) -> HeldoutScore:
    """Predict the held-out stream in order, each token once, until `max_tokens` are predicted.

    Raises BadInput when model and shards do not share a tokenizer.
    """
    encoder = load(model)
    if encoder.sha256 != shards.manifest.facts["tokenizer_sha256"]:
        raise BadInput(
            f"{model.name} and {shards.name} have different tokenizers; evaluate a model on "
            "shards made with its own tokenizer"
        )
    objective = CausalLM(hub.load(model.path)).eval().to(device)
    context = objective.network.config.context
    nats, tokens, text = 0.0, 0, []
    for batch in windows(shards, "heldout", context, max(1, BATCH_TOKENS // context)):
        targets = torch.from_numpy(batch["targets"]).flatten()
        kept = (targets != IGNORED).nonzero().flatten()[: max_tokens - tokens]
        tensors = {name: torch.from_numpy(array).to(device) for name, array in batch.items()}
        losses = objective.token_losses(**tensors).flatten().double().cpu()
        nats += float(losses[kept].sum())
        tokens += len(kept)
        text.append(encoder.decode_bytes(targets[kept].tolist()))
        progress((tokens, max_tokens))
        if tokens == max_tokens:
            break
    return HeldoutScore(nats, tokens, b"".join(text))


def seen_text(model: Artifact, shards: Artifact, max_bytes: int) -> bytes:
    """The training text a pretrained model has seen, up to about `max_bytes` of it."""
    facts = model.manifest.facts
    loader = Loader(shards, "train", facts["context"], facts["seed"])
    per_sample = facts["context"] * shards.manifest.facts["bytes_per_token"]
    samples = min(facts["samples_seen"], max(1, int(max_bytes / per_sample)))
    return loader.bytes_seen(samples, load(model))


def witten_bell(seen: bytes, score: HeldoutScore, order: int) -> float:
    """Bits per byte of the Witten-Bell model of the seen text, on the bytes that were scored."""
    return witten_bell_bits_per_byte(seen, score.text, order)
