"""Settings of stage `redact`: what is taken out, and what takes its place."""

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from cluster.errors import BadInput
from cluster.settings import NONE, Content, Contents, Settings
from tasks.data.privacy.names import identity

Kind = Literal["email", "ip", "phone", "card", "iban", "national_id", "secret", "address", "name"]
KEY_VARIABLE = "HEADRACE_REDACT_KEY"
KEY_CHARS = 16


def _labelled_hash(path: Path) -> str:
    from tasks.data.privacy.quality import content_hash

    return content_hash(path)


def _keyed(how: str) -> str:
    """`how`, for pseudonyms with a hash of their key: another key gives another text."""
    key = f":{hashlib.sha256(pseudonym_key()).hexdigest()}" if how == "pseudonymise" else ""
    return how + key


class NameSettings(Settings):
    """The model that recognises person names."""

    model: Annotated[str, Content(identity)] = Field(
        description="folder of a Hugging Face token classification model, or the name of an "
        "installed spaCy pipeline"
    )


class RedactSettings(Settings):
    """What to take out, and what to put in its place."""

    kinds: tuple[Kind, ...] = Field(
        ("email", "ip", "phone", "card", "iban", "national_id", "secret"),
        description="what to look for; address is by rules too, name takes the model of `names`",
    )
    how: Annotated[Literal["mask", "replace", "pseudonymise"], Content(_keyed)] = Field(
        "mask",
        description="<EMAIL>; a fixed email@example.com; or <EMAIL:1f0c...>, the same for the same "
        f"value, keyed by ${KEY_VARIABLE}",
    )
    regions: tuple[str, ...] = Field(
        (),
        description="countries (ISO 3166 codes) whose telephone numbers count when written without "
        "their country code; none: 35 of the most populous and best connected",
    )
    names: NameSettings | None = Field(
        None, description="also redact the person names that this model recognises (kind name)"
    )
    labelled: Annotated[Path | None, Content(_labelled_hash)] = Field(
        None, description="labelled sentences to measure precision and recall on, besides our own"
    )

    @field_validator("regions")
    @classmethod
    def _known(cls, regions: tuple[str, ...]) -> tuple[str, ...]:
        if regions:
            from phonenumbers import SUPPORTED_REGIONS

            if unknown := [region for region in regions if region not in SUPPORTED_REGIONS]:
                raise ValueError(f"unknown region '{unknown[0]}': give ISO 3166 codes such as DE")
        return regions

    @property
    def sought(self) -> tuple[str, ...]:
        """The kinds, names included when there is a model for them."""
        named = ("name",) if self.names and "name" not in self.kinds else ()
        return (*self.kinds, *named)

    def identity(self, found: Contents = NONE) -> dict[str, Any]:
        """The kinds in whatever order they were given."""
        return super().identity(found) | {"kinds": sorted(self.sought)}


def pseudonym_key() -> bytes:
    """The key of the pseudonyms. Raises BadInput when it is absent or short enough to guess."""
    key = os.environ.get(KEY_VARIABLE, "")
    if len(key) < KEY_CHARS:
        raise BadInput(
            f"redact.how is 'pseudonymise', and ${KEY_VARIABLE} has {len(key)} characters; it "
            f"needs {KEY_CHARS} or more: export {KEY_VARIABLE}=$(openssl rand -hex 32)"
        )
    return key.encode()
