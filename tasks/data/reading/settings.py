"""Settings of stage `read`: what is read, from which fields, and how much of it may be bad."""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import Field, field_validator

from cluster.settings import Aside, Gate, Settings

Format = Literal[
    "txt", "lines", "html", "warc", "wet", "jsonl", "json", "csv", "tsv", "parquet", "arrow"
]


class LicenseRules(Settings):
    """Which licences a source's rows may have; `unknown` stands for none. Names are compared whole,
    in any case; of a row that names several each has to pass.
    """

    allow: tuple[str, ...] | None = Field(
        None, description="licences that rows may have, all others may not; null is any"
    )
    deny: tuple[str, ...] = Field((), description="licences that rows may not have")


class TableSettings(Settings):
    """How a file of rows in columns, `.csv` or `.tsv`, is written."""

    header: tuple[str, ...] | None = Field(
        None,
        min_length=1,
        description="csv, tsv: names of the columns where the first line is a row already; null "
        "takes them from there",
    )
    quotes: bool = Field(True, description="csv, tsv: whether a field may stand in quotes")

    @field_validator("header")
    @classmethod
    def _each_once(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if value and len(set(value)) < len(value):
            raise ValueError(f"a column is named twice: {', '.join(value)}")
        return value


class SourceSettings(TableSettings):
    """One source of text: where it is, which fields hold what, and its share of training.

    A field inside another is named with dots, `meta.license`. Its identity is how it is read: what
    is in it, and its share, count elsewhere.
    """

    path: Annotated[str, Aside()] = Field(
        description="file, glob, directory, archive, URL, hf://org/name@revision, python://stdlib; "
        "`{date}` in it is the day of the run"
    )
    format: Format | None = Field(
        None, description="how to read it whatever its suffix; `lines`: a text per line"
    )
    encoding: str | None = Field(
        None,
        description="encoding of files of text and rows, as Python names it, such as latin-1; "
        "auto detects that of each file; null is UTF-8",
    )
    on_damaged: Literal["fail", "skip"] = Field(
        "fail",
        description="what becomes of a file or archive that is cut or damaged: skip leaves it out "
        "as a whole, counted as damaged_file; every file is read twice for it",
    )
    text: str = Field("text", description="the field or column that holds the text")
    id: str | None = Field(None, description="the field that names a row; null names it by place")
    license: str | None = Field(None, description="SPDX name, carried with every row")
    license_field: str | None = Field(
        None, description="the field with a row's own license; `license` where that is empty"
    )
    licenses: LicenseRules | None = Field(
        None, description="rows of other licences are left out, counted by reason"
    )
    label: str | None = Field(
        None, description="the field with a row's class, carried along; no name of the source"
    )
    rows: Annotated[int | None, Gate()] = Field(
        None, ge=0, description="how many rows it has, good and bad; any other number fails the run"
    )
    weight: Annotated[float, Aside()] = Field(1.0, gt=0, description="share of the training tokens")
    max_epochs: Annotated[float | None, Aside()] = Field(
        None, gt=0, description="most repetitions in training"
    )

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str | None) -> str | None:
        try:
            "".encode(value if value not in (None, "auto") else "utf-8")
        except LookupError as error:
            raise ValueError(f"{error}; name one of Python, such as cp1252, or auto") from None
        return value

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields it takes, the text first, each once."""
        named = (self.text, self.id, self.license_field, self.label)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def lacking(self, name: str, found: Iterable[str]) -> str:
        """That a file has no such field: which key names it, and what there is instead."""
        keys = [key for key in ("id", "license_field", "label") if getattr(self, key) == name]
        of = "`text` of a source, `fields` of an evaluation set"
        asked = of if name == self.text else f"`{keys[0]}` of the source"
        return f"no column '{name}' ({asked}); it has: {', '.join(found) or 'none'}"


class ReadingSettings(Settings):
    """How much of the sources may be unusable."""

    max_bad_rate: Annotated[float, Gate()] = Field(
        0.01, ge=0, le=1, description="largest share of malformed rows; more fails the run"
    )
