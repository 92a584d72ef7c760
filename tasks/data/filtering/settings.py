"""Settings of the filters that learn from files or models, beside the rules' limits."""

from typing import Annotated, Literal

from pydantic import Field

from cluster.settings import Content, Settings
from tasks.data.reading.hashes import SOURCE, source_hash


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

    labelled: Annotated[str, SOURCE] = Field(description="source of labelled rows")
    text: str = Field("text", description="the field that holds the text")
    label: str = Field("label", description="the field that is 1 for good rows and 0 for others")
    min_probability: float = Field(0.5, ge=0, le=1, description="least probability of being good")
    folds: int = Field(10, ge=2, description="folds of the cross-validation")
    repeats: int = Field(5, ge=1, description="cross-validations with other folds")


class BadWordSettings(Settings):
    """Drop documents with a word of a list (Raffel et al. 2020, section 2.2)."""

    lists: Annotated[tuple[str, ...], Content(source_hash, each=True)] = Field(
        min_length=1, description="files of one word or phrase a line"
    )
    max_count: int = Field(0, ge=0, description="occurrences that are still kept")
