"""Settings of stage `judge`: who judges, what, and by which criteria."""

from typing import Annotated

from pydantic import Field, model_validator

from cluster.settings import Gate, Settings
from tasks.evaluation.judging.criteria import Criterion, named


class JudgeSettings(Settings):
    """By what the answers are judged, and by whom."""

    model: str | None = Field(
        None, description="the endpoint's name of the judge; null judges with the tuned model"
    )
    criteria: tuple[str | Criterion, ...] = Field(
        ("correctness", "fluency", "relevance"),
        description="of G-Eval: shipped names, questions in words, or {name, definition, scale}",
    )
    scale: tuple[int, int] = Field(
        (1, 5), description="lowest and highest rating of G-Eval, where a criterion has no own"
    )
    rows: int = Field(16, ge=1, description="answers to judge, from the first on")
    qag: bool = Field(True, description="whether to ask closed questions too")
    questions: int = Field(3, ge=1, description="closed questions to each text")
    samples: int = Field(
        1, ge=1, description="replies per rating where the endpoint has no log-probabilities"
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description="of every reply of an endpoint, thoughts included; null: what each question "
        "needs, 16 for a rating",
    )
    max_unscored: Annotated[float, Gate()] = Field(
        0.5, ge=0, le=1, description="share of unscored rows above which the stage fails"
    )

    @model_validator(mode="after")
    def _known(self) -> "JudgeSettings":
        names = [criterion.name for criterion in self.chosen()]
        if len(set(names)) < len(names):
            raise ValueError(f"criteria {names}: scores are kept by name; give each its own")
        if self.scale[0] >= self.scale[1]:
            raise ValueError(f"scale {self.scale}: the lowest rating comes first")
        return self

    def chosen(self) -> "list[Criterion]":
        """The criteria in full. Raises BadInput for a mistyped name."""
        return [c if isinstance(c, Criterion) else named(c) for c in self.criteria]
