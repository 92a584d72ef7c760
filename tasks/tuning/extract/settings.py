"""Settings of stage `extract`: the rows, their fields, and the training."""

from pydantic import Field

from tasks.tuning.settings import ReadingSettings


class ExtractSettings(ReadingSettings):
    """Fine-tuning to find the answer to a question in a text."""

    context: str = Field("context", description="the field of a row that holds the text")
    question: str = Field("question", description="the field of a row that holds the question")
    answers: str = Field(
        "answers",
        description="the field with the answers, each with `text` and `start` (or `answer_start`); "
        "none where the text does not answer. A file of SQuAD's own form is read as it is",
    )
    length: int = Field(
        256, ge=8, description="tokens of a row at most; longer texts become several rows"
    )
    stride: int = Field(64, ge=0, description="tokens that a row of a text shares with the next")
    answer_length: int = Field(30, ge=1, description="tokens of an answer at most")
