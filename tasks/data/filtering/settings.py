"""Settings of stage `filter`: a preset of rules, changes to it, and filters that learn."""

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from cluster.settings import NONE, Content, Contents, Gate, Limit, Settings, nearest
from tasks.data.filtering import custom
from tasks.data.filtering.rules import LINE_RULES, PRESETS, RULES
from tasks.data.reading.hashes import SOURCE, remembered_hash


class LanguageSettings(Settings):
    """Keep documents in some languages (needs the extra `language`)."""

    keep: tuple[str, ...] = Field(min_length=1, description="ISO 639-1 codes, such as en")
    min_probability: float = Field(
        0.0, ge=0, le=1, description="how sure the likeliest language must be"
    )
    accuracy: Literal["high", "low"] = Field(
        "high", description="low: a tenth of the memory, an eighth of the time, for long texts"
    )


class PerplexitySettings(Settings):
    """Keep documents that an n-gram model of a reference text finds likely."""

    reference: Annotated[str, SOURCE] = Field(
        description="source of text to be like: file, glob, directory, URL"
    )
    text: str = Field("text", description="the field of the reference that holds the text")
    order: int = Field(4, ge=0, le=6, description="bytes of context of the model")
    max_bits_per_byte: float = Field(gt=0, description="most that a document may cost")


class QualitySettings(Settings):
    """Keep documents that a classifier, fitted on labelled rows, finds good."""

    labelled: Annotated[str | None, SOURCE] = Field(
        None, description="source of labelled rows; null learns from what stage `grade` graded"
    )
    text: str = Field("text", description="the field that holds the text")
    label: str = Field("label", description="the field that is 1 for good rows and 0 for others")
    min_probability: float = Field(0.5, ge=0, le=1, description="least probability of being good")
    folds: int = Field(10, ge=2, description="folds of the cross-validation")
    repeats: int = Field(5, ge=1, description="cross-validations with other folds")


class BadWordSettings(Settings):
    """Drop documents with a word of a list (Raffel et al. 2020, section 2.2)."""

    lists: Annotated[tuple[str, ...], Content(remembered_hash, each=True)] = Field(
        min_length=1, description="files of one word or phrase a line"
    )
    max_count: int = Field(0, ge=0, description="occurrences that are still kept")


FUNCTIONS = Content(custom.identity, each=True)


class FilterSettings(Settings):
    """A preset of rules, changes to it, and further filters."""

    preset: Literal["basic", "code", "web"] = Field(
        "basic", description="rules to begin with; web has those of Gopher, C4 and FineWeb"
    )
    limits: dict[str, float | None] = Field(
        {}, description="limits by rule: changes one of the preset, adds a rule, null drops one"
    )
    bad_words: BadWordSettings | None = None
    perplexity: PerplexitySettings | None = None
    quality: QualitySettings | None = None
    languages: LanguageSettings | None = None
    custom: Annotated[tuple[str, ...], FUNCTIONS] = Field(
        (), description="functions of your own, each as my_filters.py:my_function"
    )
    custom_seconds: Annotated[float, Limit()] = Field(
        10, gt=0, description="seconds that a function of your own may take for a document"
    )
    max_failed_rate: Annotated[float, Gate()] = Field(
        0.001,
        ge=0,
        le=1,
        description="largest share of documents that a filter may fail on; "
        "a single such document never fails the run",
    )

    @field_validator("limits")
    @classmethod
    def _known(cls, limits: dict[str, float | None]) -> dict[str, float | None]:
        for name in limits:
            if name not in RULES and name not in LINE_RULES:
                raise ValueError(f"unknown rule '{name}': {nearest(name, [*RULES, *LINE_RULES])}")
        return limits

    @model_validator(mode="before")
    @classmethod
    def _of_reading(cls, values: Any) -> Any:
        if isinstance(values, dict) and "max_bad_rate" in values:
            raise ValueError(
                f"max_bad_rate is a setting of reading: write read.max_bad_rate, "
                f"{values['max_bad_rate']}, instead"
            )
        return values

    @property
    def rules(self) -> dict[str, float]:
        """The limits in force, by rule, in the order they are tried."""
        merged = PRESETS[self.preset] | self.limits
        return {name: limit for name, limit in merged.items() if limit is not None}

    def identity(self, found: Contents = NONE) -> dict[str, Any]:
        """The time that functions of one's own have counts where there are any."""
        values = super().identity(found)
        return values if self.custom else {k: v for k, v in values.items() if k != "custom_seconds"}
