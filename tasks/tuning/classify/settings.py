"""Settings of stage `classify`: the rows, their fields, and the training."""

from typing import Annotated

from pydantic import Field

from tasks.data.reading.hashes import SOURCE
from tasks.training.settings import OptimizerSettings
from tasks.tuning.settings import TuningSettings


class ClassifySettings(TuningSettings):
    """Fine-tuning to name the class of a text."""

    optimizer: OptimizerSettings = OptimizerSettings(learning_rate=2e-3, schedule="linear")
    data: Annotated[str, SOURCE] = Field(
        "python://stdlib", description="the embedded corpus, or a .jsonl file (also compressed)"
    )
    heldout: Annotated[str | None, SOURCE] = Field(
        None, description="a .jsonl file to measure on; null holds out a share of `data`"
    )
    text: str = Field("text", description="the field of a .jsonl row that holds the text")
    label: str = Field("label", description="the field of a .jsonl row that holds the class")
    classes: int = Field(4, ge=2, description="embedded corpus: packages to tell apart")
    rows_per_class: int = Field(400, ge=2, description="embedded corpus: snippets of each package")
    heldout_share: float = Field(0.25, gt=0, lt=1, description="share of rows measured on")
    length: int = Field(96, ge=1, description="tokens of a row at most; longer texts are cut")
    epochs: float = Field(2.0, gt=0, description="passes over the training rows")
    batch_rows: int = Field(16, ge=1, description="rows of one optimizer step")
