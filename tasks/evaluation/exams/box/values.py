"""Plain values as JSON, by their kinds, and nothing that would run when it is read.

A number, text, boolean or None is itself; everything else is a list that begins with its kind. An
object of a class that derives from a plain one crosses as what it is of that. Needs the standard
library only.
"""

import builtins
import collections
import datetime
import decimal
import fractions
import json
from collections.abc import Callable
from typing import Any

Name = Callable[[Any], list[Any]]
"""Turns an object that is no plain value into the list that stands for it on the wire (`name`), or
such a list into the object (`named`).
"""
ITSELF = (type(None), bool, int, float, str)
MANY = {kind.__name__: kind for kind in (list, tuple, set, frozenset, collections.deque)}
PAIRS = {kind.__name__: kind for kind in (collections.Counter, collections.OrderedDict, dict)}
WRITTEN: dict[str, tuple[type, Callable[[Any], Any], Callable[..., Any]]] = {
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "bytearray": (bytearray, bytearray.hex, bytearray.fromhex),
    "complex": (complex, str, complex),
    "Decimal": (decimal.Decimal, str, decimal.Decimal),
    "Fraction": (fractions.Fraction, str, fractions.Fraction),
    "datetime": (datetime.datetime, str, datetime.datetime.fromisoformat),
    "date": (datetime.date, str, datetime.date.fromisoformat),
    "time": (datetime.time, str, datetime.time.fromisoformat),
    "timedelta": (
        datetime.timedelta,
        lambda value: [value.days, value.seconds, value.microseconds],
        lambda parts: datetime.timedelta(*parts),
    ),
    "range": (range, lambda r: [r.start, r.stop, r.step], lambda parts: range(*parts)),
    "slice": (slice, lambda s: [s.start, s.stop, s.step], lambda parts: slice(*parts)),
}
CHANGED = (list, dict, set, bytearray, collections.deque)


def written(value: Any, name: Name) -> str:
    """A value as a line of JSON."""
    return json.dumps(_encoded(value, name))


def read(text: str | bytes, named: Name) -> Any:
    """The value that a line stands for. Raises ValueError for a line that stands for none."""
    return _decoded(json.loads(text), named)


def update(old: Any, new: Any) -> None:
    """Give a list, or its like, the content of another."""
    if isinstance(old, list | bytearray):
        old[:] = new
    elif isinstance(old, dict | set):
        old.clear()
        old.update(new)
    elif isinstance(old, collections.deque):
        old.clear()
        old.extend(new)


def _encoded(value: Any, name: Name) -> Any:
    if type(value) in ITSELF:
        return value
    if isinstance(value, type):
        known = getattr(builtins, value.__name__, None) is value
        return ["class", value.__name__] if known else name(value)
    for base in (int, float, str):
        if isinstance(value, base):
            return base(value)
    for kind, of in MANY.items():
        if isinstance(value, of):
            return [kind, *(_encoded(one, name) for one in value)]
    for kind, of in PAIRS.items():
        if isinstance(value, of):
            return [kind, *([_encoded(k, name), _encoded(v, name)] for k, v in value.items())]
    for kind, (of, write, _) in WRITTEN.items():
        if isinstance(value, of):
            return [kind, write(value)]
    return name(value)


def _decoded(found: Any, named: Name) -> Any:
    if not isinstance(found, list):
        if isinstance(found, dict):
            raise ValueError("a value on the wire is no mapping")
        return found
    kind, *rest = found
    if kind in MANY:
        return MANY[kind](_decoded(one, named) for one in rest)
    if kind in PAIRS:
        pairs = {_decoded(key, named): _decoded(one, named) for key, one in rest}
        return PAIRS[kind](pairs)
    if kind in WRITTEN:
        return WRITTEN[kind][2](rest[0])
    if kind == "class":
        found = getattr(builtins, rest[0])
        if not isinstance(found, type):
            raise ValueError(f"{rest[0]} is no class")
        return found
    return named(found)
