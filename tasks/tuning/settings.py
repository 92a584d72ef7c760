"""Settings that all tuning stages share: how much of the network is trained, and until when."""

from typing import Literal

from pydantic import Field

from cluster.settings import Settings
from tasks.training.settings import TrainSettings

Trained = Literal["full", "head", "last", "lora"]
MatrixName = Literal["query", "key", "value", "out", "feedforward"]


class LoraSettings(Settings):
    """Low-rank adapters (Hu et al. 2021), of `train: lora`."""

    rank: int = Field(8, ge=1, description="inner size of each adapter")
    alpha: float = Field(16.0, gt=0, description="what is learned counts alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="of what goes into the adapters")
    matrices: tuple[MatrixName, ...] = Field(
        ("query", "key", "value", "out", "feedforward"),
        min_length=1,
        description="which of every layer have adapters; where a model has several in one matrix, "
        "that has one if any of them is named",
    )


class TuningSettings(TrainSettings):
    """What every tuning has in common."""

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
