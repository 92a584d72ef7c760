"""An artifact for people: what it is, its figures, and by their names what it was made from."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from cluster.manifest import named_inputs
from cluster.tracking import flatten
from flows.views.output import Output, estimate, human, shorten
from tasks.report.words import duration

MOST_ROWS = 40
LONGEST = 100
FEW = 8  # members of a list that are shown
ENDS = ("_low", "_high")
DIGITS = 12  # of a fingerprint: enough to name it


def show_manifest(out: Output, found: Mapping[str, Any]) -> None:
    """The manifest of an artifact, and where its folder is."""
    files = found["files"]
    size = human(sum(file["size"] for file in files.values()), "B")
    counts = [f"{found[name]:,} {name}" for name in ("rows", "tokens") if found[name] is not None]
    contents = ", ".join(
        [*counts, f"{size} in {len(files)} {'file' if len(files) == 1 else 'files'}"]
    )
    created = found["created"][:19].replace("T", " ")
    out.say(f"{found['stage']}/{Path(found['path']).name}: {contents}")
    out.say(
        f"made {created} in {duration(found['seconds'])} for {found['recipe']}, by version "
        f"{found['version']} of the stage\n{found['path']}"
    )
    if ledger := found["ledger"]:
        gone = "".join(f", {n:,} {reason}" for reason, n in ledger["rejects"].items())
        out.say(f"ledger: {ledger['in']:,} rows in, {ledger['out']:,} out{gone}")
    facts = dict(found["facts"])
    intervals = facts.pop("intervals", {})
    show_metrics(out, found["metrics"], intervals)
    settings = found["settings"]
    sections = {
        "settings": _named(settings.get("settings", settings)),
        "made from": ((name, one[:DIGITS]) for name, one in named_inputs(found["inputs"])),
        "facts": _named(facts),
        "took": _named(found["resources"]),
        "libraries": _named(found["libraries"]),
    }
    for title, rows in sections.items():
        out.section((title, ""), rows, MOST_ROWS)


def show_metrics(
    out: Output,
    metrics: Mapping[str, float],
    intervals: Mapping[str, list[float]] = MappingProxyType({}),
) -> None:
    """Every figure with its interval, which `intervals` has, or other figures as its ends."""
    ends = {n: [metrics[f"{n}{end}"] for end in ENDS] for n in metrics if f"{n}_low" in metrics}
    hidden = {f"{name}{end}" for name in ends for end in ENDS}
    shown = {name: value for name, value in metrics.items() if name not in hidden}
    known = ends | dict(intervals)
    rows = ((name, _figure(v, known.get(name))) for name, v in shown.items())
    out.section(("metrics", ""), rows, MOST_ROWS)


def _figure(value: float, interval: list[float] | None) -> str:
    whole = interval is None and float(value).is_integer()
    return f"{value:,.0f}" if whole else estimate(value, interval)


def _named(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every value by its dotted name."""
    yield from ((name, _text(value)) for name, value in flatten(values))


def _text(value: Any) -> str:
    """A value on one line; of a long list or one of records how long it is."""
    if isinstance(value, list) and value:
        records = any(isinstance(one, list | dict) for one in value)
        return (
            f"{len(value)} entries" if records or len(value) > FEW else ", ".join(map(_text, value))
        )
    if value is None or isinstance(value, list | Mapping):
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() or abs(value) >= 1e5 else f"{value:.6g}"
    return shorten(" ".join(str(value).split()), LONGEST)
