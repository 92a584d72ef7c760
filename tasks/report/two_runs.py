"""The page of `headrace compare`: how two runs differ, their loss curves laid over each other."""

from collections.abc import Mapping
from typing import Any

from tasks.report import words
from tasks.report.plots import loss_curves
from tasks.report.template import fill

View = dict[str, Any]
MOST_PLOTS = 12
LONGEST_VALUE = 300


def render(found: Mapping[str, Any]) -> str:
    """The page as HTML; `found` is what `flows.views.differences.differences` returns."""
    return fill("two_runs.html.j2", view(found))


def view(found: Mapping[str, Any]) -> View:
    """What the template shows."""
    data, metrics = found["data"], found["metrics"]
    apart = {name: m for name, m in metrics.items() if m["values"][0] != m["values"][1]}
    return {
        "runs": found["runs"],
        "same": found["same"],
        "notes": found["notes"],
        "settings": _pairs(found["settings"]),
        "placement": _pairs(found["placement"]),
        "libraries": _pairs(data["libraries"]),
        "sources": {path: _pairs(pairs) for path, pairs in data["sources"].items()},
        "stages": [stage_row(name, apart) for name, apart in data["stages"].items()],
        "metrics": [
            {"name": label(name), "intervals": [None, None], **m} for name, m in apart.items()
        ],
        "equal": [label(name) for name in metrics if name not in apart],
        "curves": [
            {"name": name, "plot": loss_curves(c["rows"], c["by"], name), "said": parting(c)}
            for name, c in list(found["curves"].items())[:MOST_PLOTS]
        ],
        "not_drawn": list(found["curves"])[MOST_PLOTS:],
    }


def stage_row(name: str, apart: Mapping[str, Any]) -> View:
    """How what a stage made differs, in words for each run."""
    sides = [{key: pair[i] for key, pair in apart.items() if key != "why"} for i in range(2)]
    said = [_made(side) for side in sides]
    if said[0] == said[1]:
        said = [
            f"{side['fingerprint'][:8]}: {text}" for side, text in zip(sides, said, strict=True)
        ]
    return {"name": name, "sides": said, "why": apart.get("why", "")}


def _made(side: Mapping[str, Any]) -> str:
    """One run's side of it: `648 rows, 4,615,631 tokens; dropped: short 12`."""
    if side.get("fingerprint", "") is None:
        return "not part of it"
    if side.get("state"):
        return str(side["state"])
    counts = [f"{side[key]:,} {key}" for key in ("rows", "tokens") if side.get(key) is not None]
    rejects = (side.get("ledger") or {}).get("rejects", {})
    dropped = ", ".join(f"{reason.replace('_', ' ')} {n:,}" for reason, n in rejects.items())
    said = ", ".join(counts) + (f"; dropped: {dropped}" if dropped else "")
    return said or side.get("fingerprint", "")[:8]


def parting(curve: Mapping[str, Any]) -> str:
    """Where two trainings part, in words."""
    steps, last, by = curve["steps"], curve["last"], curve["by"]
    if None in last:
        return f"only {'b' if last[0] is None else 'a'} has losses, of {max(steps):,} steps"
    ends = f"{last[0]:.4f} after {steps[0]:,} steps, {last[1]:.4f} after {steps[1]:,}"
    if not curve["shared"]:
        return f"no step at the same number of tokens; {ends}"
    if (parts := curve["parts"]) is not None:
        place = f"step {parts:,}" if by == "step" else f"{parts:,} tokens"
        return f"they part at {place}; {ends}"
    whole = steps[0] == steps[1]
    return f"the same losses{'' if whole else ' as far as both go'}; {ends}"


def label(name: str) -> str:
    """A run's figure in words; what a stage's own name stands before keeps it."""
    stage, dot, key = name.rpartition(".")
    return f"{stage}{': ' if dot else ''}{words.label(key)}"


def _pairs(apart: Mapping[str, list[Any]]) -> list[tuple[str, list[str]]]:
    return [(key, [plain(value) for value in pair]) for key, pair in apart.items()]


def plain(value: Any) -> str:
    """A setting's value as a recipe could have it; what is left out is none."""
    text = _spelt(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"


def _spelt(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k}: {_spelt(v)}" for k, v in value.items() if v is not None)
    if isinstance(value, list | tuple):
        parts = [f"{{{_spelt(v)}}}" if isinstance(v, dict) else _spelt(v) for v in value]
        return ", ".join(parts) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:_}" if isinstance(value, int) else f"{value:g}"
    return "none" if value is None else str(value)
