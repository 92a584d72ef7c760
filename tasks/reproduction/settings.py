"""Settings of stages `refit` and `reproduce`: a published law, as data.

    fits        how its runs are fitted, by name; or the law as stated, where it names no columns
    arms        sweeps of one's own, by name: what each sets otherwise than the recipe
    claims      what the paper says, and which figure of the fits and of the arms answers it

A figure is named by its path, as `huber.E` or `matched.optimum.all.a` (`ours`), or as a difference
of two, `one.a - other.a`.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from cluster.settings import Aside, Settings
from tasks.data.reading.hashes import FILE

Form = Literal["chinchilla", "tied", "kaplan", "repeated", "power"]
Plot = Literal["parabolas", "runs", "optima", "ladder", "worth", "exponents"]
Rows = dict[str, tuple[str, ...]]
"""Rows of a table: the texts that may stand in each of some columns."""


class FitOf(Settings):
    """One fit of the published runs; without `columns`, the law as the paper states it."""

    form: Form = Field("chinchilla", description="law that is fitted, as of `headrace fit`")
    loss: Literal["huber", "lad", "squares"] | None = Field(
        None, description="loss of the residuals; null is the form's own"
    )
    columns: dict[str, str] = Field(
        {},
        description="the file's names by ours; `error` is the standard error of log y, as a weight",
    )
    where: Rows = Field({}, description="the rows that are fitted, by column; empty is all")
    without: Rows = Field({}, description="the rows that are left out, by column")
    leave_out: int = Field(0, ge=0, description="so many highest losses are left out")
    bootstrap: int = Field(200, ge=0, description="resamples of the runs behind errors and bands")
    foretells: dict[str, Rows] = Field(
        {}, description="rows whose loss the fit is to foretell, by name"
    )
    values: dict[str, float] = Field(
        {}, description="parameters as stated, by name; the others are fitted"
    )
    near: dict[str, float] = Field(
        {}, description="where the fit of these others begins; empty is many places"
    )
    at: tuple[float, ...] = Field((), description="a place whose loss is told, as of --predict")


class Claim(Settings):
    """A figure that a paper states, and what is held against it."""

    claim: str = Field(description="what it is, in words")
    published: float | None = Field(None, description="the figure; null: the paper has none")
    band: tuple[float, float] | None = Field(None, description="its band, as published")
    refitted: str | None = Field(None, description="path of the figure of the published runs")
    ours: str | None = Field(None, description="path of the figure of our own sweeps")
    universal: bool = Field(
        True, description="whether it is to hold for any text and scale, as an exponent is"
    )


class RefitSettings(Settings):
    """The published runs, and how they are fitted."""

    runs: Annotated[str | None, FILE] = Field(
        None, description="CSV file of the published runs; null: what has no runs is left open"
    )
    fits: dict[str, FitOf] = Field({}, description="fits by name")


class ReproduceSettings(RefitSettings):
    """A published law put to the test."""

    paper: str = Field(description="who says it, where")
    says: str = Field(description="what it says, in a sentence or two")
    runs_from: str = Field("", description="where the published runs are to be had")
    arms: dict[str, dict[str, Any]] = Field(
        {"sweep": {}}, min_length=1, description="own sweeps: fields by dotted key that each sets"
    )
    claims: tuple[Claim, ...] = Field((), description="what is claimed, in the order of the page")
    plots: tuple[Plot, ...] = Field((), description="kinds of plot, in the order of the page")
    scale: Annotated[float, Aside()] = Field(
        1.0,
        gt=0,
        description="compute of the sweeps over that of the recipe's own; --time sets it",
    )
    seconds: Annotated[float | None, Aside()] = Field(
        None, gt=0, description="the time that was asked for, which the scale was found for"
    )

    def refit(self) -> RefitSettings:
        """What the published runs alone say."""
        return RefitSettings(runs=self.runs, fits=self.fits)
