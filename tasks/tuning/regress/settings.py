"""Settings of stage `regress`: the rows, their fields, and the training."""

from pydantic import Field

from tasks.tuning.settings import SequenceSettings


class RegressSettings(SequenceSettings):
    """Fine-tuning to give a text, or a pair, a number."""

    value: str = Field("value", description="the field of a row that holds the number")
