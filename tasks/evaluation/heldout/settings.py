"""Settings of stage `evaluate`."""

from pydantic import Field

from cluster.settings import Settings


class HeldoutSettings(Settings):
    """How much held-out text is scored."""

    max_tokens: int = Field(
        200_000, ge=1, description="held-out tokens to predict, from the first document on"
    )
    unigram_targets: int = Field(
        1 << 18, ge=1, description="training targets the unigram baseline is counted on, at most"
    )
    baseline_order: int = Field(
        3, ge=0, le=7, description="bytes of context of the Witten-Bell baseline"
    )
    baseline_bytes: int = Field(
        1 << 28, ge=1, description="bytes of seen text the baseline learns from, at most"
    )
