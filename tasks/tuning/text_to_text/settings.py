"""Settings of the stages `translate` and `summarise`: the rows, the training, and the measuring."""

from typing import Annotated

from pydantic import Field

from tasks.data.reading.settings import TableSettings
from tasks.training.settings import OptimizerSettings
from tasks.tuning.files import ROWS
from tasks.tuning.settings import TuningSettings

SHARES = 4
"""Pieces of equal rows that the batch of a step is cut into: as many workers can share it."""


class PairsSettings(TableSettings):
    """A file of texts, and of what is to be written for them."""

    data: Annotated[str, ROWS] = Field(
        description="a file of rows: .jsonl, .csv or .tsv (also compressed); python://stdlib has "
        "statements (`code`) and their syntax in words (`tree`)"
    )
    source: str = Field("source", description="the field of a row that holds the text to read")
    target: str = Field(
        "target", description="the field that holds the text to write, or a list of such texts"
    )
    prefix: str = Field(
        "", description='put before every source, such as "translate German to English: "'
    )


class TextToTextSettings(TuningSettings, PairsSettings):
    """Fine-tuning to write one text for another."""

    optimizer: OptimizerSettings = OptimizerSettings(
        learning_rate=1e-3, schedule="linear", weight_decay=0.01
    )
    also: tuple[PairsSettings, ...] = Field(
        (), description="further files to train on, told apart by their prefixes (T5)"
    )
    heldout: Annotated[str | None, ROWS] = Field(
        None, description="such a file to measure on; null holds out a share of `data`"
    )
    heldout_share: float = Field(0.05, gt=0, lt=1, description="share of rows measured on")
    suffix: str | None = Field(
        None,
        description="put behind every source; null is a line break for a decoder, which reads "
        "source and target as one text, and nothing else",
    )
    length: int = Field(
        128, ge=2, description="tokens of a source, and of a target, at most; longer ones are cut"
    )
    epochs: float = Field(10.0, gt=0, description="passes over the training rows")
    batch_tokens: int = Field(
        4_096, ge=1, description="tokens of source and target of one step, padding included"
    )
    label_smoothing: float = Field(
        0.1, ge=0, lt=1, description="share of each target that is spread over all tokens"
    )
    num_beams: int = Field(4, ge=1, description="hypotheses of beam search; 1 is greedy")
    length_penalty: float = Field(
        1.0, description="exponent on (5 + tokens) / 6, which divides a hypothesis's score"
    )
    most_measured: int | None = Field(
        None, ge=1, description="held-out rows measured on at most; null is all"
    )
