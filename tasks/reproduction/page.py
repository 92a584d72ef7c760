"""The page of `headrace reproduce`: claims of a paper, what its runs say, and what holds here."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tasks.report import words
from tasks.report.template import fill
from tasks.reproduction.plots import PLOTS
from tasks.reproduction.settings import ReproduceSettings

if TYPE_CHECKING:
    from tasks.reproduction.ours import Arm, Ours

View = dict[str, Any]
SIDES = ("published", "refitted", "ours")


def render(
    law: ReproduceSettings, claims: Sequence[View], fits: Mapping[str, Any], ours: "Ours"
) -> str:
    """The page as HTML."""
    return fill("reproduction.html.j2", view(law, claims, fits, ours))


def view(
    law: ReproduceSettings, claims: Sequence[View], fits: Mapping[str, Any], ours: "Ours"
) -> View:
    """What the template shows."""
    return {
        "paper": law.paper,
        "says": law.says,
        "runs_from": None if law.runs else law.runs_from,
        "lacking": any(fit.columns for fit in law.fits.values()),
        "claims": [_row(claim) for claim in claims],
        "plots": [plot for name in law.plots for plot in PLOTS[name](fits, ours)],
        "arms": [_arm(name, law.arms[name], arm) for name, arm in ours.arms.items()],
        "doubts": _doubts(fits, ours),
    }


def _row(claim: View) -> View:
    """The three figures of a claim in words, each with its band."""
    return {
        "claim": claim["claim"],
        "verdict": claim["verdict"],
        "cells": [(side, shown(claim[side]), _band(claim["bands"][side])) for side in SIDES],
    }


def shown(value: float | None) -> str:
    """A figure to the digits that papers give."""
    return words.number(value, 6) if value is None or abs(value) < 1e6 else words.number(value)


def _band(band: Sequence[float] | None) -> str:
    return "" if band is None else f"{words.number(band[0])} to {words.number(band[1])}"


def _arm(name: str, changes: Mapping[str, Any], arm: "Arm") -> View:
    runs = arm.runs
    return {
        "name": name,
        "sets": [f"{key}: {value}" for key, value in changes.items()],
        "runs": len(runs),
        "flops": sum(run["flops_own"] for run in runs),
        "params": [min(r["params"] for r in runs), max(r["params"] for r in runs)] if runs else [],
        "tokens": [min(r["tokens"] for r in runs), max(r["tokens"] for r in runs)] if runs else [],
    }


def _doubts(fits: Mapping[str, Any], ours: "Ours") -> list[str]:
    """What the fits warn of, each with whose fit it is."""
    own = {f"our sweep '{name}'": arm.facts for name, arm in ours.arms.items()}
    theirs = {f"published runs, {name}": fit for name, fit in fits.items()}
    said = (
        (who, line) for who, found in (theirs | own).items() for line in found.get("warnings", ())
    )
    return [f"{who}: {line}" for who, line in said]
