"""What `headrace judge` found, for people: the mean first, then what to read it beside."""

from collections.abc import Iterator
from typing import Any

from flows.views.output import estimate


def judged_lines(found: dict[str, Any]) -> Iterator[str]:
    """The lines of a result of `judge_file`."""
    low, high = found["scale"] or (None, None)
    scale = "" if low is None else f" on {low} to {high}"
    rows = f"{found['scored']} of {len(found['rows'])} rows scored"
    mean = "no score" if found["mean"] is None else estimate(found["mean"], found["interval"])
    yield f"{found['metric']}  {mean}{scale}; {rows}"
    yield from _beside(found)
    yield from _compared(found)
    for reason, count in found["unscored"].items():
        said = f": {found['words'][reason]}" if reason in found["words"] else ""
        yield f"unscored  {count} {reason}{said}"
    for name, steps in found["steps"].items():
        yield f"steps     of {name}: {steps['source']}"
    yield f"cost      {_cost(found)}"
    for warning in found["warnings"]:
        yield f"warning: {warning}"


def unscored(found: dict[str, Any]) -> str:
    """Why rows were not scored: each reason, its number, and what was said."""
    said = found["words"]
    return "; ".join(
        f"{reason} ({count})" + (f": {said[reason]}" if reason in said else "")
        for reason, count in found["unscored"].items()
    )


def _beside(found: dict[str, Any]) -> Iterator[str]:
    """What an answer that says nothing, and chance, would have."""
    parts = []
    if found["baseline"] is not None:
        parts.append(f"an answer that says nothing {found['baseline']:.2f}")
    if found["random"] is not None:
        parts.append(f"verdicts drawn evenly {found['random']:.2f}")
    if found["unscored"] and found.get("bounds"):
        worst, best = sorted(found["bounds"])
        parts.append(f"were the unscored worst or best {worst:.2f} to {best:.2f}")
    if parts:
        yield f"beside    {', '.join(parts)}"
    if found["spread"] is not None:
        yield f"spread    {found['spread']:.2f}, the mean standard deviation of a row's verdict"
    if repeats := found.get("repeats"):
        alpha = estimate(repeats["alpha"], repeats["interval"])
        yield f"repeats   agree by {alpha} (Krippendorff's alpha, {repeats['units']} rows)"


def _compared(found: dict[str, Any]) -> Iterator[str]:
    """What comparisons in both orders come to, and the ranking of the systems."""
    if found.get("pairs"):
        first = estimate(found["first"], found["first_interval"])
        yield f"order     {found['flips']:.0%} of pairs turn with it; the first place wins {first}"
    for system, strength in found.get("ranking", {}).items():
        yield f"ranking   {strength:+.2f}  {system}"


def _cost(found: dict[str, Any]) -> str:
    requests = f"{found['calls']:,} requests, {found['reused']:,} replies kept from before"
    if found["cost"] is None:
        return f"{requests}; USD unknown without --prices"
    return f"{requests}; {found['cost']:.4f} USD, {found['spent']:.4f} in all runs of this"
