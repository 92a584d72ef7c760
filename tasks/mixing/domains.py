"""Held-out loss by source: each token of the held-out stream belongs to the source of its document.

losses, tokens = losses_by_source(model, shards, 50_000, "cpu")
"""

import numpy as np
import torch

from cluster.artifact import Artifact
from cluster.errors import BadInput
from tasks.evaluation.heldout.loss import BATCH_TOKENS, load_subject
from tasks.tokens.loader import windows
from tasks.tokens.shards.documents import documents_by_source
from tasks.training.micro_batches import on_device


def losses_by_source(
    model: Artifact, shards: Artifact, most: int, device: str
) -> tuple[dict[str, float], dict[str, int]]:
    """Nats a token of each source, and the tokens that were scored: its first ones, up to about
    `most`. Raises BadInput for a model of another objective, and for a source of which nothing is
    held out.
    """
    subject = load_subject(model, shards)
    if subject.settings.objective != "causal":
        raise BadInput("losses by source are of causal models: leave out pretrain.objective")
    documents = documents_by_source(shards, "heldout")
    code_N = source_codes(list(documents.values()))
    nats_K, tokens_K = np.zeros(len(documents)), np.zeros(len(documents), np.int64)
    module, context = subject.module.to(device), subject.settings.context
    rows, first = max(1, BATCH_TOKENS // context), 1
    with torch.no_grad():
        for batch in windows(shards, "heldout", context, rows):
            size = int((batch["targets"] >= 0).sum())
            here_N = code_N[first : first + size]
            first += size
            if (tokens_K[np.unique(here_N)] >= most).all():
                continue
            scored = module.scored(**on_device(batch, module, device))["tokens"]
            loss_N = scored.losses.double().cpu().numpy()
            nats_K += np.bincount(here_N, loss_N, len(documents))
            tokens_K += np.bincount(here_N, minlength=len(documents))
    names = list(documents)
    if not tokens_K.all() or len(tokens_K) < 2:
        raise BadInput(
            f"held-out text is of {', '.join(names)} alone; every source needs some: raise "
            "shards.heldout_share, or give more text"
        )
    return (
        dict(zip(names, (nats_K / tokens_K).tolist(), strict=True)),
        dict(zip(names, tokens_K.tolist(), strict=True)),
    )


def source_codes(places: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The number of the source [N] of each token, from starts and lengths of each's documents."""
    size = max(int(start_D[-1] + length_D[-1]) for start_D, length_D in places)
    code_N = np.zeros(size, np.int64)
    for code, (start_D, length_D) in enumerate(places):
        ends = np.zeros(size + 1, np.int64)
        np.add.at(ends, start_D, 1)
        np.add.at(ends, start_D + length_D, -1)
        code_N[np.cumsum(ends[:-1]) > 0] = code
    return code_N
