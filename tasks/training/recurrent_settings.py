"""Settings of recurrent networks: what is recurrent in `model`."""

from typing import TYPE_CHECKING

from pydantic import Field

from cluster.settings import Settings
from model.config_records import Alignment, Cell

if TYPE_CHECKING:
    from model.config import RecurrentConfig


class RecurrentSettings(Settings):
    """Recurrent layers in place of attention and feed-forward, on PyTorch's kernels."""

    cell: Cell = Field("lstm", description="rnn (Elman), gru or lstm")
    bptt: int | None = Field(
        None,
        ge=1,
        description="tokens of a document after which gradients through time are cut off: "
        "truncated back-propagation, states go on; null goes back to the document's beginning",
    )
    apart: bool = Field(
        False,
        description="of an encoder: both directions are networks of their own, each of which "
        "predicts (ELMo); its objective is then `bidirectional`",
    )
    attention: Alignment | None = Field(
        None,
        description="of an encoder_decoder: how the decoder scores the encoder's states, additive "
        "(Bahdanau), dot or general (Luong); null sees its last ones only",
    )

    def config(self) -> "RecurrentConfig":
        """The same for the network. Raises ValueError for a choice it cannot have."""
        from model.config import RecurrentConfig

        return RecurrentConfig(**self.model_dump())
