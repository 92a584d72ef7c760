"""The base of every settings class: frozen, typed, and unforgiving about unknown keys.

Settings are plain data. What a field means for the identity of what is made from it stands in its
type, as `Annotated[str, Content(hash_of)]`; a field without a mark counts by its value:

    Content   a name: what is behind it counts, found once and in one place, by `contents`
    Gate      a tolerance: it may refuse an artifact, and changes nothing in it
    Limit     counts only where it was reached: with none, or a higher one, nothing was given up
    Aside     how or where the work is done, or what stands among a stage's inputs already
"""

import difflib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from types import MappingProxyType
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.fields import FieldInfo

from cluster.url_secrets import hidden


@dataclass(frozen=True)
class Content:
    """Marks a field that names a file, a source, code, a model: `of` finds what stands for it.

    With `each`, the field is a list of such names. None stays None.
    """

    of: Callable[[Any], Any]
    each: bool = False


@dataclass(frozen=True)
class Gate:
    """Marks a tolerance, which the stage's `gate` holds against what was recorded."""


@dataclass(frozen=True)
class Limit:
    """Marks a limit of the stage's own settings after which a row's work is given up.

    A stage records how many rows reached it, as `facts["reached"][field]`, where any did.
    """


@dataclass(frozen=True)
class Aside:
    """Marks what is no part of what is made."""


Contents = Mapping[tuple[Content, Hashable], Any]
"""What stands for each name in some settings: by the mark of its field, and the name."""
NONE: Contents = MappingProxyType({})


class Settings(BaseModel):
    """One section of a recipe. Every field has a default or is required, and states its unit."""

    # Defaults are validated too: 10 and 10.0 must not be two identities.
    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, validate_default=True
    )

    @model_validator(mode="before")
    @classmethod
    def _without_passwords(cls, values: Any) -> Any:
        """Put marks for the secrets in URLs: settings are written into manifests and records."""
        return values if issubclass(cls, Record) else _hidden(values)

    def identity(self, found: Contents = NONE) -> dict[str, Any]:
        """The values that make up a fingerprint, as plain JSON types.

        `found` has what every name in the settings stands for (`contents`); nothing is read here.
        """
        return {
            field.alias or name: _identity(getattr(self, name), content_of(field.metadata), found)
            for name, field in type(self).model_fields.items()
            if not any(isinstance(mark, Gate | Aside) for mark in field.metadata)
        }


def contents(
    *values: Any, names: Iterable[tuple[Content, Hashable]] = (), known: Contents = NONE
) -> Contents:
    """What stands for some names, for each name in the settings among some values, and in those
    settings that names stand for; what is `known` is not looked for again.

    Raises BadInput for a name that nothing is behind.
    """
    found, queue = dict(known), [*names, *_names(values)]
    for mark, name in queue:  # which grows meanwhile
        if (mark, name) not in found:
            found[mark, name] = mark.of(name)
            queue += _names(found[mark, name])
    return found


def keys(settings: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a class of settings by the keys that a recipe has for them."""
    return {field.alias or name: field for name, field in settings.model_fields.items()}


def said(settings: type[BaseModel], values: Mapping[str, Any]) -> set[str]:
    """The keys that plain values set to anything but their defaults."""
    known = {key: field.get_default() for key, field in keys(settings).items()}
    return {
        key
        for key, value in values.items()
        if (tuple(value) if isinstance(value, list) else value) != known.get(key, ...)
    }


def limits(settings: Any) -> list[str]:
    """The fields of settings that are limits."""
    fields = type(settings).model_fields.items() if isinstance(settings, Settings) else ()
    return [name for name, field in fields if any(isinstance(m, Limit) for m in field.metadata)]


def content_of(marks: Iterable[Any]) -> Content | None:
    """The mark of a field that is a name."""
    return next((mark for mark in marks if isinstance(mark, Content)), None)


def _names(value: Any) -> Iterator[tuple[Content, Hashable]]:
    """Every name in settings or a list of them, with its mark."""
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _names(inner)
    if not isinstance(value, Settings):
        return
    for name, field in type(value).model_fields.items():
        inner, mark = getattr(value, name), content_of(field.metadata)
        if mark is None:
            yield from _names(inner)
        elif inner is not None:
            yield from ((mark, one) for one in (inner if mark.each else [inner]))


def _identity(value: Any, mark: Content | None, found: Contents) -> Any:
    if mark is None or value is None:
        return plain(value, found)
    if mark.each:
        return [plain(found[mark, one], found) for one in value]
    return plain(found[mark, value], found)


def plain(value: Any, found: Contents = NONE) -> Any:
    """A value as plain JSON types, settings in it by their identity."""
    if isinstance(value, Settings):
        return value.identity(found)
    if isinstance(value, list | tuple):
        return [plain(inner, found) for inner in value]
    if isinstance(value, dict):
        return {key: plain(inner, found) for key, inner in value.items()}
    return str(value) if isinstance(value, PurePath) else value


def _hidden(value: Any) -> Any:
    if isinstance(value, str):
        return hidden(value)
    if isinstance(value, list | tuple):
        return type(value)(map(_hidden, value))
    if isinstance(value, dict):
        return {key: _hidden(inner) for key, inner in value.items()}
    return value


def texts(value: Any) -> Iterator[str]:
    """Every text among plain JSON values, but for keys."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


class Record(Settings):
    """What was written earlier, perhaps by another version: keys it does not know are kept."""

    model_config = ConfigDict(extra="allow")


def nearest(word: str, choices: Iterable[str]) -> str:
    """A hint for a mistyped word: the nearest choice if one is close, else all of them."""
    choices = sorted(choices)
    close = difflib.get_close_matches(word, choices, n=1, cutoff=0.5)
    return f"did you mean '{close[0]}'?" if close else f"choose from {', '.join(choices)}"
