"""Settings of stage `shards`: how the tokens are split and stored."""

from pydantic import Field

from cluster.settings import Settings

SPLITS = ("train", "heldout")


class ShardSettings(Settings):
    """How the tokens are split and stored."""

    heldout_share: float = Field(
        0.05, gt=0, lt=1, description="share of the documents kept out of training"
    )
    train_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="share of the training documents that are kept, chosen by their text alone; "
        "the held-out ones stay the same",
    )
    shard_tokens: int = Field(
        1 << 25, ge=1, description="tokens after which a shard is full and the next one begins"
    )
