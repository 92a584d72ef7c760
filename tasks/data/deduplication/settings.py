"""Settings of stage `dedup`: which duplicates go, and how alike near ones are."""

from typing import Annotated

from pydantic import Field

from cluster.settings import Aside, Settings


class DedupSettings(Settings):
    """Which duplicates to remove, and how alike near ones are."""

    exact: bool = Field(True, description="texts equal up to white space and Unicode form")
    fuzzy: bool = Field(True, description="texts that share most of their word 5-grams")
    threshold: float = Field(0.8, gt=0, le=1, description="Jaccard similarity of near duplicates")
    bands: int = Field(14, ge=1, le=256, description="LSH bands; more find more and cost more")
    rows: int = Field(8, ge=1, le=64, description="MinHash values per band; fewer find less alike")
    lines: bool = Field(
        False, description="cut lines that an earlier document of what is kept has as well"
    )
    line_words: int = Field(8, ge=1, description="shorter lines stay, however often they are there")
    passage_words: int | None = Field(
        None,
        ge=4,
        description="cut runs of so many words that an earlier document, or the same one, has "
        "before; 50 is what is usual, null cuts none",
    )
    against: Annotated[tuple[str, ...], Aside()] = Field(
        (), description="earlier `dedup` artifacts, by name or path: what they keep is removed"
    )
