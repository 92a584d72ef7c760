"""Settings of stage `instruct`: the pairs, and the training."""

from typing import Annotated

from pydantic import Field

from tasks.data.reading.hashes import SOURCE
from tasks.training.settings import OptimizerSettings
from tasks.tuning.settings import TuningSettings


class InstructSettings(TuningSettings):
    """Instruction tuning: answers are learned, prompts are read."""

    optimizer: OptimizerSettings = OptimizerSettings(learning_rate=2e-3, schedule="cosine")
    data: Annotated[str | None, SOURCE] = Field(
        "python://stdlib",
        description="the embedded corpus, or a .jsonl file (also compressed) of instructions with "
        "responses (Alpaca, Dolly) or of conversations (OpenAI's messages, ShareGPT); null learns "
        "from what `synthesize` makes alone",
    )
    heldout: Annotated[str | None, SOURCE] = Field(
        None, description="a .jsonl file to measure on; null holds out a share of `data`"
    )
    heldout_share: float = Field(0.05, gt=0, lt=1, description="share of rows measured on")
    tokens: int = Field(150_000, ge=1, description="training tokens, prompts and padding included")
    batch_tokens: int = Field(1_024, ge=1, description="tokens of one optimizer step")
