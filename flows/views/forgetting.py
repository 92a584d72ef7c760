"""What is said of a document that is followed, and of one that is taken out."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from flows.views.output import Output, human
from tasks.report.words import duration

SHOWN = 20
WAYS = {"descends": "none of the rows, but is made from them", "saw": "been trained on the rows"}


def show_trace(out: Output, result: Mapping[str, Any]) -> None:
    """Rows, what has them, who saw them, what they shaped."""
    rows = result["rows"]
    if not rows:
        out.say("no row that `read` took in holds it")
        return
    out.table(("row", "licence", "how"), ((r["id"], r["license"], _how(r)) for r in rows[:SHOWN]))
    if len(rows) > SHOWN:
        out.say(f"and {len(rows) - SHOWN} more rows; --json has all")
    had = ((a["artifact"], _has(a)) for a in result["artifacts"])
    out.section(("artifact", "has"), had)
    _show_models(out, result)
    for name, why in result["unknown"].items():
        out.say(f"what {name} saw cannot be told: {why}")
    lines = ((i["artifact"], f"{i['how']} ({i['rows']})") for i in result["influences"])
    out.section(("shaped, without holding it", "how, and by how many rows"), lines)


def _how(row: Mapping[str, Any]) -> str:
    if row["how"] == "holds":
        return "holds it"
    return f"{row['similarity']:.0%} like {row['of'] or 'the text'}"


def _has(about: Mapping[str, Any]) -> str:
    if about["how"] in WAYS:
        return WAYS[about["how"]]
    kept = [f"{about['rows']} of the rows"] if about["rows"] else []
    gone = [f"{n} set aside as {reason}" for reason, n in sorted(about["rejected"].items())]
    return ", ".join(kept + gone)


def _show_models(out: Output, result: Mapping[str, Any]) -> None:
    counts = Counter(sample["model"] for sample in result["samples"])
    rows = (
        (
            one["model"],
            counts[one["model"]],
            "never" if one["first"] is None else f"{one['first']} to {one['last']}",
            one["steps"],
            "none" if one["before"] is None else f"after step {one['before']}",
        )
        for one in result["models"]
    )
    out.section(("model", "samples", "at steps", "of", "checkpoint before"), rows)


def show_plan(out: Output, plan: Mapping[str, Any]) -> None:
    """What would be done, and what that takes."""
    found = plan["found"]
    out.say(f"{len(found['rows'])} rows, in {found['samples']} samples of trainings")
    rows = ((one["artifact"], _done(one)) for one in plan["changes"])
    out.table(("artifact", "would be"), rows)
    again = plan["replayed"]
    if again["of"]:
        out.say(f"{again['steps']} of {again['of']} steps trained again ({again['share']:.0%})")
    cost = f", {plan['cost']:.2f} USD" if plan["cost"] else ""
    out.say(f"about {duration(plan['seconds'])}{cost}, {human(plan['bytes_written'], 'B')} written")
    for name in plan["unplanned"]:
        out.say(f"{name}: what it takes is known when what it starts from is there")


def show_certificate(out: Output, result: Mapping[str, Any]) -> None:
    """What was done, and what remains."""
    removed, rebuilt = len(result["removed"]), len(result["rebuilt"])
    out.say(f"\n{removed} artifacts removed, {rebuilt} took their place")
    if result["remains"]:
        out.table(("remains", "why"), ((one["what"], one["why"]) for one in result["remains"]))
    out.say(f"certificate {result['certificate']}\npage        {result['page']}")


def _done(change: Mapping[str, Any]) -> str:
    steps = f" from step {change['from_step']} of {change['steps']}" if change.get("steps") else ""
    why = f": {change['why']}" if change.get("why") else ""
    return f"{change['how']}{steps}{why}"
