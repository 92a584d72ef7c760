"""What is wrong with a recipe, in words: the key, its value, what is allowed, the nearest key."""

import difflib
import types
import typing
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel

from cluster.settings import keys, nearest

MOVED = {
    "pretrain.micro_batch_tokens": "placement.micro_batch_tokens",
    "placement.sequence_workers": "placement.context_parallel",
    "placement.tensor_workers": "placement.tensor_parallel",
    "placement.recompute": "placement.activation_checkpointing",
}
"""Keys of earlier recipes, and what they are called now."""


def explain(fault: Any, recipe: type[BaseModel]) -> str:
    """One validation fault in words, with the nearest key for an unknown one."""
    place = ".".join(str(part) for part in fault["loc"])
    if place in MOVED:
        return f"'{place}' is `{MOVED[place]}` now; write its value there"
    if fault["type"] == "extra_forbidden":
        *section, key = fault["loc"]
        mistyped = difflib.get_close_matches(str(key), _keys(recipe, section), n=1, cutoff=0.8)
        hint = None if mistyped else _below(recipe, key, section)
        return f"unknown key '{place}': {hint or nearest(str(key), _keys(recipe, section))}"
    if fault["type"] == "missing":
        return f"'{place}' is missing"
    if fault["type"] == "value_error":  # a rule of ours, which names the keys it is about
        return ": ".join(filter(None, (place, str(fault["ctx"]["error"]))))
    given = "null" if fault["input"] is None else repr(fault["input"])
    if fault["type"] == "model_type":
        section = ", ".join(_keys(recipe, fault["loc"]))
        return f"{place} = {given}: it has settings, {section}; left out, all have their defaults"
    return f"{place} = {given}: {fault['msg'][0].lower()}{fault['msg'][1:]}"


def _below(recipe: type[BaseModel], key: str | int, location: Sequence[str | int]) -> str | None:
    """A hint for a key that stands one section further down."""
    for name, field in _at(recipe, location).model_fields.items():
        section = _section(field.annotation)
        if section and key in keys(section):
            return f"did you mean '{'.'.join(map(str, [*location, name, key]))}'?"
    return None


def _keys(recipe: type[BaseModel], location: Sequence[str | int]) -> list[str]:
    """The keys that the section at a location may have."""
    return list(keys(_at(recipe, location)))


def _at(recipe: type[BaseModel], location: Sequence[str | int]) -> Any:
    section: Any = recipe
    for part in location:
        if isinstance(part, str) and part in section.model_fields:
            section = _section(section.model_fields[part].annotation)
    return section


def _section(annotation: Any) -> Any:
    """The settings class inside an annotation such as `SweepSettings | None` or `tuple[X, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    if isinstance(annotation, types.UnionType) or typing.get_origin(annotation):
        for inner in typing.get_args(annotation):
            if (found := _section(inner)) is not None:
                return found
    return None
