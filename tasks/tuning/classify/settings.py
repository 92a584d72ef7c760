"""Settings of stage `classify`: the rows, their fields, and the training."""

from typing import Annotated

from pydantic import Field

from tasks.tuning.class_weights import ClassWeights
from tasks.tuning.files import ROWS
from tasks.tuning.settings import SequenceSettings


class ClassifySettings(SequenceSettings):
    """Fine-tuning to name the class of a text, or all that hold."""

    data: Annotated[str, ROWS] = Field(
        "python://stdlib",
        description="the embedded corpus, or a file of rows: .jsonl, .csv or .tsv (also "
        "compressed)",
    )
    label: str = Field(
        "label", description="the field of a row that holds the class, or a list of classes"
    )
    class_weights: ClassWeights = None
    classes: int = Field(4, ge=2, description="embedded corpus: packages to tell apart")
    rows_per_class: int = Field(400, ge=2, description="embedded corpus: snippets of each package")
