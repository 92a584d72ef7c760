"""What is said of a document that is followed, and of one that is taken out."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

from flows.views.output import Output

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
    out.say("")
    had = ((a["artifact"], _has(a)) for a in result["artifacts"])
    out.table(("artifact", "has"), had)
    if result["models"]:
        out.say("")
        _show_models(out, result)
    for name, why in result["unknown"].items():
        out.say(f"what {name} saw cannot be told: {why}")
    if result["influences"]:
        out.say("")
        lines = ((i["artifact"], f"{i['how']} ({i['rows']})") for i in result["influences"])
        out.table(("shaped, without holding it", "how, and by how many rows"), lines)


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
    out.table(("model", "samples", "at steps", "of", "checkpoint before"), rows)
