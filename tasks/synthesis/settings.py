"""Settings of stages `synthesize` and `grade`: which model is asked, for what, and how much."""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from cluster.settings import Aside, Gate, Limit, Settings, nearest
from tasks.synthesis.templates import STYLES
from tasks.tokens.origins import MODEL

SOURCE = "synthetic-"
"""What the `source` of a made row begins with; behind it stands the kind."""
Into = Literal["pretrain", "instruct", "both"]


class AskedSettings(Settings):
    """The model that is asked, and how much it may be asked."""

    model_config = ConfigDict(serialize_by_alias=True)  # `from` is no name in Python

    model: str | None = Field(
        None, description="the endpoint's name of the model that is asked; or give `from`"
    )
    origin: Annotated[str | None, MODEL] = Field(
        None,
        alias="from",
        description="a model folder or hf://org/name@revision, asked in-process; or give `model`",
    )
    budget_usd: Annotated[float | None, Limit()] = Field(
        None, gt=0, description="what the endpoint may cost, at placement.judge_usd"
    )
    budget_requests: Annotated[int | None, Limit()] = Field(
        None, ge=1, description="requests to the endpoint at most, those of earlier attempts too"
    )
    budget_tokens: Annotated[int | None, Limit()] = Field(
        None, ge=1, description="tokens to and from the endpoint at most, likewise"
    )
    max_failed: Annotated[float, Gate()] = Field(
        0.01, ge=0, le=1, description="share of requests without any reply above which it fails"
    )

    @model_validator(mode="after")
    def _one_model(self) -> "AskedSettings":
        if (self.model is None) == (self.origin is None):
            raise ValueError("name the model to ask: either `model`, an endpoint's, or `from`")
        if self.origin and self.budgets:
            raise ValueError(
                f"{', '.join(self.budgets)} is for `model`, an endpoint's; `from` costs nothing"
            )
        return self

    @property
    def budgets(self) -> dict[str, float]:
        """The budgets that are set, by field."""
        every = {
            "budget_usd": self.budget_usd,
            "budget_requests": self.budget_requests,
            "budget_tokens": self.budget_tokens,
        }
        return {name: value for name, value in every.items() if value is not None}


class ShareSettings(Settings):
    """How much training sees of the texts of a kind."""

    weight: Annotated[float, Aside()] = Field(1.0, gt=0, description="share of the training tokens")
    max_epochs: Annotated[float | None, Aside()] = Field(
        None, gt=0, description="most repetitions in training"
    )


class RephraseSettings(ShareSettings):
    """The same content in other words (WRAP, Maini et al. 2024; Nemotron-CC, Su et al. 2024)."""

    styles: tuple[str, ...] = Field(
        ("wikipedia",),
        min_length=1,
        description=f"of {', '.join(STYLES)}; or in words of your own: as a dialogue of two pupils",
    )
    shortest: float = Field(0.2, ge=0, description="least characters over those of the passage")
    longest: float = Field(3.0, gt=0, description="most characters over those of the passage")

    @field_validator("styles")
    @classmethod
    def _known(cls, styles: tuple[str, ...]) -> tuple[str, ...]:
        for style in styles:
            if style not in STYLES and " " not in style.strip():
                raise ValueError(f"unknown style '{style}': {nearest(style, STYLES)}")
        return styles


class PairSettings(ShareSettings):
    """Rows that ask and answer."""

    check: Literal["model", "rules"] = Field(
        "rules", description="model asks it once more whether the answer is right"
    )
    max_similarity: float = Field(
        0.7,
        gt=0,
        le=1,
        description="ROUGE-L with an earlier question or instruction from which on one is dropped",
    )


class QuestionSettings(PairSettings):
    """Questions with answers from a passage (Nemotron-CC's diverse question-answer pairs)."""

    pairs: int = Field(4, ge=1, description="pairs from a passage")
    check: Literal["model", "rules"] = Field(
        "rules", description="model asks it once more whether the answer is right and in the text"
    )
    into: Annotated[Into, Aside()] = Field(
        "pretrain", description="what learns from them: pretraining, `instruct`, or both"
    )


class InstructionSettings(PairSettings):
    """Instructions about a passage, answered and checked (Self-Instruct, Wang et al. 2023)."""

    each: int = Field(1, ge=1, description="instructions from a passage, each for another task")
    check: Literal["model", "rules"] = Field(
        "model", description="model asks it once more whether the answer is right and complete"
    )
    into: Annotated[Into, Aside()] = Field(
        "instruct", description="what learns from them: pretraining, `instruct`, or both"
    )


class SynthesizeSettings(AskedSettings):
    """Texts that a model makes from the clean text, as a source beside it."""

    documents: int | None = Field(
        1000, ge=1, description="documents that texts are made from, drawn evenly; null is all"
    )
    passages: int = Field(4, ge=1, description="passages of a document at most, from its start")
    passage_characters: int = Field(
        1500, ge=100, description="characters of a passage at most, about 300 words"
    )
    max_tokens: int = Field(512, ge=1, description="of a reply, thoughts included")
    temperature: float = Field(0.7, ge=0, description="divides the logits; 0 is greedy")
    top_p: float = Field(
        0.9, gt=0, le=1, description="sample among the fewest tokens that hold this probability"
    )
    same_language: bool = Field(
        False, description="drop texts in another language than their passage; extra `language`"
    )
    rephrase: RephraseSettings | None = None
    questions: QuestionSettings | None = None
    instructions: InstructionSettings | None = None

    @model_validator(mode="after")
    def _something(self) -> "SynthesizeSettings":
        if not self.kinds:
            raise ValueError("say what to make: rephrase, questions or instructions; {} will do")
        return self

    @property
    def kinds(self) -> "dict[str, RephraseSettings | QuestionSettings | InstructionSettings]":
        """What is made, by the name of its section."""
        every: dict[str, Any] = {
            "rephrase": self.rephrase,
            "questions": self.questions,
            "instructions": self.instructions,
        }
        return {name: kind for name, kind in every.items() if kind is not None}

    @property
    def most_alike(self) -> dict[str, float]:
        """The likeness from which on a pair is dropped, by kind."""
        found: dict[str, float] = {}
        if self.questions:
            found["questions"] = self.questions.max_similarity
        if self.instructions:
            found["instructions"] = self.instructions.max_similarity
        return found

    def sources_of(self, stage: str) -> dict[str, ShareSettings]:
        """What a stage learns from, `pretrain` or `instruct`, by the `source` of its rows."""
        kinds, found = self.kinds, dict[str, ShareSettings]()
        for name in kinds:
            kind = kinds[name]
            into = "pretrain" if isinstance(kind, RephraseSettings) else kind.into
            if into in (stage, "both"):
                found[SOURCE + name] = kind
        return found


class GradeSettings(AskedSettings):
    """Grades of documents, from 0 to 5, that teach `filters.quality` (FineWeb-Edu, Penedo et al.
    2024, section 4).
    """

    documents: int = Field(
        500, ge=1, description="documents to grade, drawn evenly from those the rules keep"
    )
    characters: int = Field(3000, ge=100, description="of a document that the model is shown")
    good: int = Field(3, ge=1, le=5, description="least grade of a document worth keeping")
    rubric: str | None = Field(
        None, description="what each of the five points is for; null is educational value"
    )
