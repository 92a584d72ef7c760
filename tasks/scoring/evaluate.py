"""The held-out score of a pretrained model: loss, bits per byte, and the baseline to beat."""

import logging

from pydantic import Field

from cluster.artifact import Artifact
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft

log = logging.getLogger("headrace.evaluate")


class HeldoutSettings(Settings):
    """How much held-out text is scored."""

    max_tokens: int = Field(
        200_000, ge=1, description="held-out tokens to predict, from the first document on"
    )
    baseline_order: int = Field(
        3, ge=0, le=7, description="bytes of context of the Witten-Bell baseline"
    )
    baseline_bytes: int = Field(
        1 << 28, ge=1, description="bytes of seen text the baseline learns from, at most"
    )


@stage(version=1)
def evaluate(model: Artifact, shards: Artifact, settings: HeldoutSettings, draft: Draft) -> None:
    """Predict every held-out token once, up to a number of tokens.

    Metrics: `heldout_loss` (nats a token), `perplexity`, `bits_per_byte` = nats of all predicted
    tokens, ends of documents included, / (ln 2 x their UTF-8 bytes), and
    `bits_per_byte_witten_bell`, on the same bytes, of a byte model of the text this model has seen.
    """
    from tasks.scoring import heldout

    device = "cuda" if draft.placement.gpus else "cpu"
    score = heldout.score_heldout(
        model, shards, settings.max_tokens, device, lambda n: draft.progress(*n, "tokens")
    )
    seen = heldout.seen_text(model, shards, settings.baseline_bytes)
    draft.metrics = {
        **score.metrics(),
        "bits_per_byte_witten_bell": heldout.witten_bell(seen, score, settings.baseline_order),
    }
    draft.tokens = score.tokens
    draft.facts = {
        "tokens": score.tokens,
        "bytes": len(score.text),
        "witten_bell": {"order": settings.baseline_order, "trained_on_bytes": len(seen)},
    }
    log.info("held-out bits per byte: %.4f", draft.metrics["bits_per_byte"])
