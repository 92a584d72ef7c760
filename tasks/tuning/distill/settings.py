"""Settings of stage `distill`: the teacher, the student, and what is learnt of what."""

from typing import Annotated

from pydantic import Field, model_validator

from tasks.data.reading.settings import TableSettings
from tasks.tokens.origins import MODEL
from tasks.tuning.settings import HeadSettings


class DistillSettings(HeadSettings, TableSettings):
    """Distillation: a model learns from a larger one, to write or to name classes as that does."""

    teacher: Annotated[str | None, MODEL] = Field(
        None,
        description="a model folder, or hf://org/name@revision, of the same tokenizer: a language "
        "model, or a classifier; null is the model itself, of which `layers` make a student",
    )
    layers: int | None = Field(
        None,
        ge=1,
        description="the student has so many layers of the model, evenly spread; null is the whole "
        "model",
    )
    text: str = Field("text", description="the field of a row that holds the text")
    label: str = Field(
        "label", description="of a classifier: the field of the class; rows may be without"
    )
    temperature: float = Field(
        2.0, gt=0, description="scores are divided by it before they are compared"
    )
    soft: float = Field(5.0, ge=0, description="what the teacher's scores count in the loss")
    hard: float = Field(2.0, ge=0, description="what the right answers count")
    hidden: float | None = Field(
        None,
        ge=0,
        description="what the cosine to the teacher's final states counts; null is 1 where both "
        "are as wide, else 0",
    )

    @model_validator(mode="after")
    def _a_teacher_and_another(self) -> "DistillSettings":
        if self.teacher is None and self.layers is None:
            raise ValueError("name a `teacher`, or how many `layers` of the model its student has")
        if not self.soft and not self.hidden:
            raise ValueError("soft and hidden are both 0, so that the teacher would teach nothing")
        return self
