"""Why a stage is built, in the words that `plan`, `run` and `compare` show."""

import json
from typing import Any

from cluster.manifest import Manifest
from cluster.store import Spec


def changes(then: Manifest, now: Spec | Manifest) -> str:
    """What differs between an earlier artifact of a stage and the one wanted now, in words."""
    found = []
    if then.version != now.version:
        found.append(f"stage version {then.version} -> {now.version}")
    old, new = _flat(then.settings), _flat(now.settings)
    for key in sorted(old.keys() | new.keys()):
        if _differs(key, old, new):
            found.append(f"{key} {_short(old, key)} -> {_short(new, key)}")
    for name in sorted(then.inputs.keys() | now.inputs.keys()):
        if then.inputs.get(name) != now.inputs.get(name):
            found.append(f"its {name} changed")
    return ", ".join(found) or "first build"


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys; the leading `settings.` is dropped."""
    if isinstance(value, dict):
        pairs = value.items()
    elif isinstance(value, list):
        pairs = {str(i): v for i, v in enumerate(value)}.items()
    else:
        return {prefix.removeprefix("settings."): value}
    flat: dict[str, Any] = {}
    for key, inner in pairs:
        flat |= _flat(inner, f"{prefix}.{key}" if prefix else key)
    return flat


def _differs(key: str, old: dict[str, Any], new: dict[str, Any]) -> bool:
    """Whether a key is another, or there and not there: `null` leaves a rule out, say. That of a
    section says nothing beside its keys.
    """
    if key in old and key in new:
        return bool(old[key] != new[key])
    (has, lacks) = (old, new) if key in old else (new, old)
    return has[key] is not None or not any(name.startswith(f"{key}.") for name in lacks)


def _short(settings: dict[str, Any], key: str) -> str:
    """A value as a recipe has it."""
    if key not in settings:
        return "not set"
    value = settings[key]
    text = json.dumps(value) if value is None or isinstance(value, bool) else str(value)
    return text if len(text) <= 24 else text[:10] + "…"
