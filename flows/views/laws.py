"""What is said of laws put to the test: forecasts against what came."""

from collections.abc import Mapping, Sequence
from typing import Any

from flows.views.output import Output, human


def show_forecasts(out: Output, result: Mapping[str, Any]) -> None:
    """A line a forecast, and how many of the bands held."""
    if not result["forecasts"]:
        out.say("no run has foretold anything yet; `headrace sweep scaling-small` does")
        return
    columns = ("made", "recipe", "target", "by", "foretold", "came", "in its band")
    out.table(columns, map(_forecast, result["forecasts"]))
    out.say("")
    if result["coverage"] is None:
        out.say("none of the runs that they foretell has come yet")
        return
    low, high = result["interval"]
    verdict = "as promised" if result["holds"] else "not as promised"
    out.say(
        f"{result['coverage']:.0%} of {result['n']} bands held (95 % interval {low:.0%} to "
        f"{high:.0%}), {verdict}: they are to hold {result['promised']:.0%} of the time"
    )


def show_claims(out: Output, result: Mapping[str, Any]) -> None:
    """A line a claim: what the paper says, what its runs say, what own sweeps say."""
    if not result["claims"]:
        return
    columns = ("claim", "published", "its runs", "ours", "so")
    rows = (
        (
            row["claim"],
            *(_told(row[side], row["bands"][side]) for side in ("published", "refitted", "ours")),
            row["verdict"],
        )
        for row in result["claims"]
    )
    out.section(columns, rows)
    out.say(f"\npage     {result['report']}")


def show_mixture(out: Output, result: Mapping[str, Any]) -> None:
    """The weights with their bands, what is foretold of them, and what the larger runs say."""
    if not result["weights"]:
        return
    told, explained = result["prediction"]["by_source"], result["explained"]
    out.section(
        ("source", "weight", "loss of a small run", "R squared of runs left out"),
        (
            (
                name,
                _told(weight, result["bands"][name]),
                _told(told[name]["loss"], (told[name]["low"], told[name]["high"])),
                f"{explained[name]:.2f}",
            )
            for name, weight in result["weights"].items()
        ),
    )
    if confirmed := result.get("confirmed"):
        out.section(
            ("mixture", "mean held-out loss"),
            ((name, f"{loss:.4f}") for name, loss in confirmed["mixtures"].items()),
        )
        for name, gap in confirmed["against"].items():
            low, high = gap["interval"] or (float("nan"),) * 2
            verdict = "better than" if gap["beats"] else "not shown to be better than"
            out.say(
                f"proposed is {verdict} {name}: {gap['difference']:+.4f} nats [{low:+.4f}, "
                f"{high:+.4f}], {gap['n']} seeds"
            )
        out.say(f"\npage     {result['report']}")


def _told(value: float | None, band: Sequence[float] | None) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" + (" [{:.3g}, {:.3g}]".format(*band) if band else "")


def _forecast(row: Mapping[str, Any]) -> tuple[str, ...]:
    said = f"{row['loss']:.4g} [{row['low']:.4g}, {row['high']:.4g}]"
    held = {None: "", True: "yes", False: "no"}[row["inside"]]
    late = "" if row["beforehand"] else ", but the run was there before"
    return (
        row["made"][:16].replace("T", " "),
        row["recipe"],
        f"{row['target']}, {human(row['reach'])} times the compute",
        row["by"],
        said,
        "" if row["measured"] is None else f"{row['measured']:.4g}",
        held + late,
    )
