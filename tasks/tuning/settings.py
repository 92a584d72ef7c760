"""Settings that all tuning stages share, such as how much of the network is trained, and those of
all tasks with a head.
"""

from typing import Annotated, Literal

from pydantic import Field

from cluster.settings import Settings
from model.head_config import Layers, Pooling
from tasks.data.reading.settings import TableSettings
from tasks.training.settings import OptimizerSettings, TrainSettings
from tasks.tuning.files import ROWS

Trained = Literal["full", "head", "last", "lora"]
MatrixName = Literal["query", "key", "value", "out", "feedforward"]


class LoraSettings(Settings):
    """Low-rank adapters (Hu et al. 2021), of `train: lora`."""

    rank: int = Field(8, ge=1, description="inner size of each adapter")
    alpha: float = Field(16.0, gt=0, description="what is learned counts alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="of what goes into the adapters")
    bits: Literal[4] | None = Field(
        None,
        description="keep frozen matrices that have adapters in so many bits (QLoRA); null as they "
        "are",
    )
    matrices: tuple[MatrixName, ...] = Field(
        ("query", "key", "value", "out", "feedforward"),
        min_length=1,
        description="which of every layer have adapters; where a model has several in one matrix, "
        "that has one if any of them is named",
    )


class EarlyStoppingSettings(Settings):
    """When tuning ends before its last step: rows of the training data are held apart, and the
    weights are in the end those with the lowest loss on them.
    """

    share: float = Field(0.1, gt=0, lt=1, description="share of the training rows held apart")
    looks: int = Field(10, ge=1, description="how often in a whole training they are measured")
    patience: int = Field(3, ge=1, description="looks without a lower loss after which it ends")


class TuningSettings(TrainSettings):
    """What every tuning has in common: how much of the model it trains, and when it may end."""

    train: Trained = Field(
        "full",
        description="what of the model is trained: all of it; only the task's new head, on a "
        "frozen body; with it the last layers; or low-rank adapters of a frozen body",
    )
    last_layers: int = Field(
        1, ge=1, description="with `train: last`: so many layers, of each stack"
    )
    lora: LoraSettings = LoraSettings()
    layer_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        description="learning rate of each layer over that of the one above it; 1 is the same for "
        "all, embeddings come below the first layer",
    )
    dropout: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="of the network while it is tuned; null is what its config says",
    )
    early_stopping: EarlyStoppingSettings | None = None


class HeadSettings(TuningSettings):
    """Fine-tuning of a network with a head for a task."""

    optimizer: OptimizerSettings = OptimizerSettings(learning_rate=2e-3, schedule="linear")
    data: Annotated[str, ROWS] = Field(
        description="a file of rows: .jsonl, .csv or .tsv (also compressed)"
    )
    heldout: Annotated[str | None, ROWS] = Field(
        None, description="such a file to measure on; null holds out a share of `data`"
    )
    heldout_share: float = Field(0.25, gt=0, lt=1, description="share of rows measured on")
    length: int = Field(96, ge=1, description="tokens of a row at most; longer texts are cut")
    epochs: float = Field(2.0, gt=0, description="passes over the training rows")
    batch_rows: int = Field(16, ge=1, description="rows of one optimizer step")


class ReadingSettings(HeadSettings):
    """Fine-tuning with a new head, that may read all layers."""

    read_layers: Layers = Field(
        "last",
        description="whose states the head reads: the last layer's, or weighted, the mean of all "
        "layers and the embeddings by learned weights (ELMo), with `train: head` of a frozen model",
    )


class SequenceSettings(ReadingSettings, TableSettings):
    """What is said of a whole text, or of a pair."""

    text: str = Field("text", description="the field of a row that holds the text")
    second: str | None = Field(
        None, description="the field of the second text, where rows are pairs; null is none"
    )
    pooling: Pooling | None = Field(
        None,
        description="what of a text is read: its first token, the mean of all, or the last; null "
        "is an encoder's first (the mean of a recurrent one), a decoder's last",
    )
