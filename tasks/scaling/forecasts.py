"""Forecasts and what came of them: of a run's artifacts, and of all runs of a home together.

A forecast is a loss that was said, with the band that is to hold 90 % of the time, of a run that
had not been trained. What a run foretold stands in its record, which outlasts its artifacts.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from cluster.artifact import Artifact
from tasks.evaluation.statistics.wilson import wilson_interval

PROMISED = 0.9
Row = dict[str, Any]


def told(artifacts: Iterable[Artifact]) -> list[Row]:
    """Every forecast with a band among what these artifacts hold: its `recipe`, `law` (the
    fingerprint of what foretold it), `made` (when), `target`, `by`, `loss`, `low`, `high`, `reach`
    (its compute over that of the largest run known then); `measured` and `inside`, None as long as
    nothing came, and `beforehand`, whether all of it was said before its run had been trained.
    """
    by_name = {artifact.fingerprint: artifact.manifest for artifact in artifacts}
    found: dict[tuple[str, ...], Row] = {}
    for fingerprint, manifest in by_name.items():
        if manifest.stage == "fit":
            about = {"recipe": manifest.recipe, "law": fingerprint, "made": manifest.created}
            _note(found, about | {"beforehand": True}, manifest.facts["predictions"])
        elif manifest.stage == "forecast" and (came := manifest.facts["forecast"]):
            law = str(manifest.inputs["fit"])
            about = {"recipe": manifest.recipe, "law": law, "made": by_name[law].created}
            _note(found, about | {"beforehand": came["beforehand"]}, came["targets"])
    return list(found.values())


def merged(records: Iterable[Sequence[Row]]) -> list[Row]:
    """The forecasts of several runs, oldest first; one that several runs tell of is there once,
    with what came of it if any of them knows.
    """
    found: dict[tuple[str, ...], Row] = {}
    for row in (row for rows in records for row in rows):
        if _key(row) not in found or row["measured"] is not None:
            found[_key(row)] = row
    return sorted(found.values(), key=lambda row: row["made"])


def coverage(rows: Sequence[Row]) -> Row:
    """How many of the forecasts whose runs came later (`n`) lie inside their bands: `coverage`,
    with its 95 % Wilson `interval`, and whether that agrees with what was `promised` (`holds`);
    None where none came.
    """
    came = [row["inside"] for row in rows if row["inside"] is not None and row["beforehand"]]
    interval = wilson_interval(sum(came), len(came)) if came else None
    return {
        "coverage": sum(came) / len(came) if came else None,
        "n": len(came),
        "interval": interval and list(interval),
        "promised": PROMISED,
        "holds": interval and interval[0] <= PROMISED <= interval[1],
    }


def _note(found: dict[tuple[str, ...], Row], about: Row, targets: Sequence[Row]) -> None:
    """Put the guesses with bands among those found, over the same without what came."""
    for target in targets:
        measured = target.get("measured")
        for guess in target["predictions"]:
            if "low" in guess:
                row = about | {"target": target["name"], "by": guess["by"]}
                row |= {key: guess[key] for key in ("loss", "low", "high")}
                inside = None if measured is None else guess["low"] <= measured <= guess["high"]
                row |= {"reach": target["reach"], "measured": measured, "inside": inside}
                found[_key(row)] = row


def _key(row: Row) -> tuple[str, ...]:
    return row["law"], row["target"], row["by"]
