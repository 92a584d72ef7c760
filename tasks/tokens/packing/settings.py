"""Settings of stage `packing`: how samples are filled, and their length."""

from typing import Literal

from pydantic import Field

from cluster.settings import Settings

PackingKind = Literal["concatenate", "best_fit", "padded"]


class PackingSettings(Settings):
    """How samples are filled."""

    kind: PackingKind = "concatenate"
    context: int = Field(ge=1, description="tokens of one sample")
