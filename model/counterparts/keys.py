"""How `config.json` says a field of ours: by a key, in other words, or by what other keys imply."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
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


def key(
    name: str,
    *same: str,
    spread: tuple[str, ...] = (),
    missing: Any = _REQUIRED,
    null: Any = _REQUIRED,
) -> Entry:
    """A field that is the key `name`. The keys `same` must agree; `spread` are only written.

    `missing` is what a file without it means, `null` one with null, which otherwise means the same;
    either may be a function of that file.
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
        meant = missing if null is _REQUIRED or name not in file else null
        if meant is _REQUIRED:
            raise KeyError(name)
        return meant(file) if callable(meant) else meant

    return Entry(write, read)


def words(name: str, *same: str, missing: Any = _REQUIRED, **theirs: Any) -> Entry:
    """A field whose values have other names there, given as ours=theirs.

    The keys `same` must agree, or say what stands at their place where a word is several;
    `missing` is their word in a file without them.
    """
    keys = (name, *same)

    def each(word: Any) -> tuple[Any, ...]:
        return word if isinstance(word, tuple) else (word,) * len(keys)

    def write(value: Any, config: ModelConfig) -> File:
        return dict(zip(keys, each(theirs[value]), strict=True))

    def read(file: File) -> Any:
        said = tuple(missing if file.get(key) is None else file[key] for key in keys)
        if _REQUIRED in said:
            raise KeyError(name)
        for ours, word in theirs.items():
            if each(word) == said:
                return ours
        found, allowed = " and ".join(map(repr, said)), ", ".join(map(str, theirs.values()))
        raise ValueError(f"{' and '.join(keys)} is {found}; it must be one of {allowed}")

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


def sizes(context: Entry, width: str, depth: str, heads: str) -> dict[str, Entry]:
    """Sizes by their keys, where heads share the width and each has keys and values of its own."""
    return {
        "vocab_size": key("vocab_size"),
        "context": context,
        "width": key(width),
        "depth": key(depth),
        "heads": key(heads),
        "kv_heads": follows(lambda file: file[heads]),
        "head_dim": quotient(width, heads),
    }


@dataclass(frozen=True)
class Counterpart:
    """A Transformers model with our blocks."""

    model_class: str
    fields: Mapping[str, Any]
    """Field of ours -> its `Entry`, or the value it always has there."""
    demands: Mapping[str, Any] = field(default_factory=dict)
    """Keys of theirs without a field here -> the value at which they do what our blocks do."""
    says: Mapping[str, Any] = field(default_factory=dict)
    """Keys that are written beside, and not read."""


# What they call our activations.
PLAIN = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "relu2": "relu2"}
GATED = {"swiglu": "silu", "geglu": "gelu_pytorch_tanh", "geglu_exact": "gelu"}
# Which parts have biases, by the keys for attention and for the feed-forward layer.
BIASES = {
    "none": (False, False), "attention": (True, False), "feedforward": (False, True),
    "all": (True, True),
}  # fmt: skip
# Said, as Transformers' default may be an id beyond the vocabulary.
NO_PADDING = {"pad_token_id": None}
ATTENTION_BIAS = words("attention_bias", missing=False, none=False, attention=True)
