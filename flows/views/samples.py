"""What `headrace data --inspect` shows: samples of what each stage removed, beside kept ones."""

from pathlib import Path
from typing import Any

from cluster.artifact import Artifact
from flows.views.output import Output
from tasks.report.funnel import funnel, side_by_side

SAMPLES_PER_REASON = 3
SHOWN_LINES, SHOWN_CHARACTERS = 6, 300


def inspect(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The funnel of a run's data stages, from its record: rows, reasons and samples."""
    paths = [stage["artifact"] for stage in record["stages"] if stage["artifact"]]
    return funnel([Artifact.load(Path(path)) for path in paths], SAMPLES_PER_REASON)


def show_inspection(out: Output, stages: list[dict[str, Any]]) -> None:
    """Print them for people, stage by stage."""
    for stage in stages:
        out.say(f"\n{stage['stage']}: {stage['rows_in']:,} rows in, {stage['rows_out']:,} out")
        for rule, count in stage["lines_removed"].items():
            out.say(f"  {rule}: {count:,} lines taken out of kept rows")
        for group in stage["removed"]:
            out.say(f"  {group['reason']}: {group['rows']:,} rows removed")
        for cut in stage["cut"]:
            what = f"{cut['count']:,} {cut['kind']} of {cut['documents']:,} documents"
            out.say(f"  {what} cut: they are there before")
        if stage["removed"]:
            pairs = side_by_side(stage)
            out.table(("removed", "kept"), ((_cell(a), _cell(b)) for a, b in pairs))
        if stage["alike"]:
            alike = ((_cell(_side(p, "a")), _cell(_side(p, "b"))) for p in stage["alike"])
            out.table(("document", "nearly the same"), alike)


def _side(pair: dict[str, Any], side: str) -> dict[str, Any]:
    """One document of a pair of near duplicates as a sample."""
    return {"origin": f"{pair[side]}, Jaccard {pair['jaccard']}", "text": pair[f"text_{side}"]}


def _cell(sample: dict[str, Any] | None) -> str:
    """A sample as a few lines: why it was removed, where it is from, how it begins."""
    if sample is None:
        return ""
    lines = str(sample["text"])[:SHOWN_CHARACTERS].splitlines()[:SHOWN_LINES]
    head = [f"[{sample['reason']}]"] if "reason" in sample else []
    shown = [*head, str(sample["origin"]), *(f"  {line}" for line in lines), ""]
    return "\n".join(shown)
