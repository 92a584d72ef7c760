"""The base of every settings class: frozen, typed, and unforgiving about unknown keys."""

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict


class Settings(BaseModel):
    """One section of a recipe. Every field has a default or is required, and states its unit."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def identity(self) -> dict[str, Any]:
        """The values that make up a fingerprint, as plain JSON types."""
        return self.model_dump(mode="json")


class Record(Settings):
    """What was written earlier, perhaps by another version: keys it does not know are kept."""

    model_config = ConfigDict(extra="allow")


def nearest(word: str, choices: Iterable[str]) -> str:
    """A hint for a mistyped word: the nearest choice if one is close, else all of them."""
    choices = sorted(choices)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"choose from {', '.join(choices)}"
