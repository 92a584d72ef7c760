"""How `config.json` says a field of ours: by a key, in other words, or by what other keys imply."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from model.config import ModelConfig

File = dict[str, Any]
"""What a `config.json` holds."""
_REQUIRED = object()


@dataclass(frozen=True)
class Entry:
    """One field of ours in the other's file: the keys that say it, and how they are read."""

    write: Callable[[Any, ModelConfig], File]
    read: Callable[[File], Any]
    values: tuple[Any, ...] | None = None
    """The only values it can say; None is any."""


def key(name: str, *same: str, spread: tuple[str, ...] = (), missing: Any = _REQUIRED) -> Entry:
    """A field that is the key `name`. The keys `same` must agree; `spread` are only written.

    `missing` is what a file without it (or with null) means, or a function of that file.
    """

    def write(value: Any, config: ModelConfig) -> File:
        return dict.fromkeys((name, *same, *spread), value)

    def read(file: File) -> Any:
        value = file.get(name)
        for other in same:
            if file.get(other, value) != value:
                raise ValueError(
                    f"{name} is {value!r} and {other} {file[other]!r}; they must agree"
                )
        if value is not None:
            return value
        if missing is _REQUIRED:
            raise KeyError(name)
        return missing(file) if callable(missing) else missing

    return Entry(write, read)


def words(name: str, *same: str, missing: Any = _REQUIRED, **theirs: Any) -> Entry:
    """A field whose values have other names there, given as ours=theirs.

    The keys `same` must agree; `missing` is their word in a file without them.
    """

    def write(value: Any, config: ModelConfig) -> File:
        return dict.fromkeys((name, *same), theirs[value])

    def read(file: File) -> Any:
        said = [file.get(each, missing) for each in (name, *same)]
        if _REQUIRED in said:
            raise KeyError(name)
        for ours, word in theirs.items():
            if all(each == word for each in said):
                return ours
        found, allowed = " and ".join(map(repr, said)), ", ".join(map(str, theirs.values()))
        raise ValueError(f"{' and '.join((name, *same))} is {found}; it must be one of {allowed}")

    return Entry(write, read, tuple(theirs))


def follows(read: Callable[[File], Any]) -> Entry:
    """A field that other keys imply."""
    return Entry(lambda value, config: {}, read)


def quotient(whole: str, parts: str) -> Entry:
    """A field that is one key divided by another; not a whole number where they do not divide."""

    def read(file: File) -> float:
        share, rest = divmod(file[whole], file[parts])
        return file[whole] / file[parts] if rest else share

    return follows(read)
