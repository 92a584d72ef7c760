"""Scores held to limits: what `--fail-under NAME=LIMIT,...` asks for and what misses it."""

from collections.abc import Collection, Mapping
from typing import Any

from cluster.errors import BadInput
from cluster.settings import nearest

Limits = Mapping[str, float]


def read_limits(text: str | None) -> Limits:
    """The limit of each name. Raises BadInput for what is no `NAME=NUMBER`."""
    found: dict[str, float] = {}
    for pair in text.split(",") if text else ():
        name, _, limit = (part.strip() for part in pair.partition("="))
        try:
            number = float(limit)
        except ValueError:
            number = float("nan")
        if not name or not abs(number) < float("inf") or name in found:
            raise BadInput(
                f"--fail-under {pair}: write each NAME=NUMBER once, with commas: bleu=30,rougeL=.2"
            )
        found[name] = number
    return found


def check_names(limits: Limits, known: Collection[str]) -> None:
    """Raise BadInput for a limit of what is not measured."""
    for name in limits:
        if name not in known:
            raise BadInput(f"--fail-under {name}: '{name}' is not measured; {nearest(name, known)}")


def missed(
    values: Mapping[str, float], limits: Limits, lower_is_better: Collection[str], where: str
) -> list[dict[str, Any]]:
    """The values, found at some place, that are worse than their limits: `name`, `value`, `limit`,
    `by` how much, and `why` in words. Where lower is better, a value may not be above its limit.
    """
    found = []
    for name in [name for name in limits if name in values]:
        lower = name in lower_is_better
        value, limit = values[name], limits[name]
        by = value - limit if lower else limit - value
        if by > 0:
            side = "above" if lower else "below"
            why = f"{name} of {where} is {value:.6g}, {by:.3g} {side} {limit:g}"
            why += " (lower is better)" if lower else ""
            about = {"where": where, "value": value, "limit": limit, "by": by, "why": why}
            found.append({"name": name, **about})
    return found
