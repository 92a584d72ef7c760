"""Settings of stage `dense`: the rows, the network, and its training."""

from typing import Annotated

from pydantic import Field

from cluster.settings import Aside
from model.config_records import DenseActivation, DenseLoss
from tasks.training.settings import OptimizerSettings, TrainSettings
from tasks.tuning.files import ROWS


class DenseSettings(TrainSettings):
    """A feed-forward network on the mean of the vectors of a text's words."""

    name: Annotated[str, Aside()] = Field(
        "network", pattern=r"^[a-z0-9_]+$", description="what the stage is called behind `dense/`"
    )
    optimizer: OptimizerSettings = OptimizerSettings(
        learning_rate=3e-3, schedule="constant", weight_decay=0.0
    )
    loss: DenseLoss = Field(
        "cross_entropy",
        description="cross_entropy: the likelihood of classes; mse: that of numbers, taken as the "
        "output and Gaussian noise of one variance",
    )
    hidden: tuple[int, ...] = Field((64,), description="outputs of each hidden layer")
    activation: DenseActivation = Field("relu", description="between layers")
    epochs: float = Field(10.0, gt=0, description="passes over the training rows")
    batch_rows: int = Field(32, ge=1, description="rows of one optimizer step")
    data: Annotated[str, ROWS] = Field(
        "python://stdlib",
        description="a file of rows: .jsonl, .csv or .tsv (also compressed); or the embedded "
        "corpus: packages of functions as classes, log2 of their words as numbers",
    )
    heldout: Annotated[str | None, ROWS] = Field(
        None, description="such a file to measure on; null holds out a share of `data`"
    )
    heldout_share: float = Field(0.25, gt=0, lt=1, description="share of rows measured on")
    text: str = Field("text", description="the field of a row that holds the text")
    label: str = Field("label", description="the field of a row that holds its class or number")
    classes: int = Field(4, ge=2, description="embedded corpus: packages to tell apart")
    rows_per_class: int = Field(400, ge=2, description="embedded corpus: snippets of each package")
