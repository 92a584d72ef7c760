"""Settings of stage `label`: the rows, their fields or columns, and the training."""

from typing import Annotated

from pydantic import Field

from tasks.tuning.class_weights import ClassWeights
from tasks.tuning.files import COLUMNS
from tasks.tuning.settings import ReadingSettings


class LabelSettings(ReadingSettings):
    """Fine-tuning to tag every word of a sentence: kinds of words, or spans by B-, I- and O."""

    data: Annotated[str, COLUMNS] = Field(
        description="a file of rows with lists of words and of tags (.jsonl), or one with a word "
        "and its tag a line (.conllu, .conll, .txt; also compressed)"
    )
    heldout: Annotated[str | None, COLUMNS] = Field(
        None, description="such a file to measure on; null holds out a share of `data`"
    )
    tokens: str = Field("tokens", description="the field of a row that holds the words")
    tags: str = Field("tags", description="the field of a row that holds their tags")
    column: int | None = Field(
        None,
        ge=1,
        description="the column of the tags, counted from 1; null is the last one, of a .conllu "
        "the universal part of speech",
    )
    class_weights: ClassWeights = None
    length: int = Field(
        128, ge=2, description="tokens of a row at most; longer sentences become several rows"
    )
