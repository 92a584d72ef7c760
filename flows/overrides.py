"""Values that are set over those of a recipe: `--set a.b=value`, before it is validated."""

from typing import Any

from cluster.errors import BadInput
from flows.yaml_values import read_yaml


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set one dotted key, `a.b=value`, in place; list items by number, the value is YAML."""
    key, value = read_override(override)
    assign(values, key, value, f"--set {override}")


def read_override(override: str) -> tuple[str, Any]:
    """The dotted key and the value of `a.b=value`, which is YAML. Raises BadInput for another
    form.
    """
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise BadInput(f"--set {override}: write it as key=value, for example model.depth=6")
    return key.strip(), read_yaml(text, f"--set {override}")


def assign(values: dict[str, Any], key: str, value: Any, origin: str) -> None:
    """Set one dotted key in place; sections that are not there are made. Raises BadInput, which
    begins with `origin`, for a part of the key that is neither a section nor a list's number.
    """
    *parents, last = key.split(".")
    inner: Any = values
    for part in parents:
        if isinstance(inner, list):
            inner = inner[_index(origin, part, inner)]
        else:
            if inner.get(part) is None:
                inner[part] = {}
            inner = inner[part]
        if not isinstance(inner, dict | list):
            raise BadInput(f"{origin}: '{part}' is a value, not a section")
    if isinstance(inner, list):
        inner[_index(origin, last, inner)] = value
    else:
        inner[last] = value


def _index(origin: str, part: str, items: list[Any]) -> int:
    if part.isdigit() and int(part) < len(items):
        return int(part)
    raise BadInput(f"{origin}: '{part}' must be a number from 0 to {len(items) - 1}")
