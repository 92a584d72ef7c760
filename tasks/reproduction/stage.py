"""A published law put to the test: its runs refitted, and every claim beside what own sweeps say.

Two stages. `refit` fits the published runs, which need no training; `reproduce` holds its figures
and those of the sweeps against what the paper states, and draws the page.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.reproduction.settings import Claim, RefitSettings, ReproduceSettings
from tasks.tokens.shards.facts import ShardFacts

if TYPE_CHECKING:
    from tasks.reproduction.ours import Ours

Row = dict[str, Any]
Found = tuple[float | None, list[float] | None]
PAGE = "reproduction.html"
MINUS = " - "


@stage(version=2)
def refit(settings: RefitSettings, draft: Draft) -> None:
    """Fit the published runs. Facts: `fits`, by name, as `headrace fit` reports them, with more.

    Raises BadInput for a file without the columns or the rows that a fit is of.
    """
    from tasks.reproduction.published import figures
    from tasks.scaling.law.runs import table

    rows = table(settings.runs) if settings.runs else []
    draft.rows = len(rows)
    draft.facts["fits"] = figures(rows, settings.fits)
    draft.write_json("fits.json", draft.facts["fits"])


@stage(version=2, tracked=True)
def reproduce(
    sweeps: list[Artifact],
    shards: list[Artifact],
    refit: Artifact,
    settings: ReproduceSettings,
    draft: Draft,
) -> None:
    """Hold every claim against the published runs and the `sweeps`, one an arm, each on the text
    of its `shards`. Facts: `claims` (see `judged`), `arms` with their optima; and a page.
    """
    from tasks.reproduction.ours import Arm, Ours
    from tasks.reproduction.page import render

    texts = [float(ShardFacts.of(one).train.tokens) for one in shards]
    made = zip(settings.arms, sweeps, texts, strict=True)
    ours = Ours({name: Arm(sweep.manifest.facts, text) for name, sweep, text in made})
    fits = refit.manifest.facts["fits"]
    claims = [judged(claim, fits, ours) for claim in settings.claims]
    draft.rows = len(claims)
    draft.facts["claims"] = claims
    draft.facts["arms"] = {
        name: {"runs": arm.runs, "optima": arm.optimum} for name, arm in ours.arms.items()
    }
    draft.tracker.params({"paper": settings.paper, "arms": ", ".join(settings.arms)})
    draft.tracker.metrics([{"step": 0, **_measured(claims)}])
    draft.write_json("claims.json", claims)
    page = render(settings, claims, fits, ours)
    (draft.path / PAGE).write_text(page, encoding="utf-8")


def judged(claim: Claim, fits: Mapping[str, Any], ours: "Ours") -> Row:
    """A claim: what was `published`, what the runs say `refitted`, and `ours`, with the `bands` of
    each; None is what is not known. `verdict` says whether ours agrees.
    """
    again, again_band = found_at(fits, claim.refitted)
    own, own_band = found_at(ours, claim.ours)
    band = list(claim.band) if claim.band else None
    return {
        "claim": claim.claim,
        "published": claim.published,
        "refitted": again,
        "ours": own,
        "bands": {"published": band, "refitted": again_band, "ours": own_band},
        "verdict": verdict(claim, again, again_band, own, own_band),
    }


def verdict(
    claim: Claim,
    again: float | None,
    again_band: list[float] | None,
    own: float | None,
    own_band: list[float] | None,
) -> str:
    """In words, whether what was found here agrees with what was published, or else refitted."""
    if claim.ours is None:
        return "a figure of the published runs alone"
    if own is None or own_band is None:
        return "open: these runs do not determine it"
    if not claim.universal:
        return "its own for each text and scale"
    value, band = (again, again_band) if claim.published is None else (claim.published, claim.band)
    if value is None:
        return "measured here"
    low, high = band or (value, value)
    if own_band[1] < low or high < own_band[0]:
        return "differs"
    wide = own_band[1] - own_band[0] > abs(value)
    return "open: the band of ours is wider than the figure" if wide else "agrees"


def found_at(where: Any, path: str | None) -> Found:
    """The figure at a path through dictionaries, lists and attributes, and the band that its
    neighbours hold of it; None where there is none. `one - other` is a difference; its band takes
    the errors of both for independent.
    """
    if path and MINUS in path:
        (one, band), (other, others) = (found_at(where, part) for part in path.split(MINUS))
        if one is None or other is None:
            return None, None
        return one - other, _difference(one - other, band, others)
    for part in path.split(".") if path else ():
        where, about = _inner(where, part), where
        if where is None:
            return None, None
    if not path:
        return None, None
    band = ((about.get("bands") if isinstance(about, dict) else None) or {}).get(part)
    if not math.isfinite(where):
        return None, None
    return float(where), band if band and all(map(math.isfinite, band)) else None


def _difference(
    value: float, band: list[float] | None, other: list[float] | None
) -> list[float] | None:
    if band is None or other is None:
        return None
    half = math.hypot(band[1] - band[0], other[1] - other[0]) / 2
    return [value - half, value + half]


def _inner(where: Any, part: str) -> Any:
    if isinstance(where, list):
        return where[int(part)] if int(part) < len(where) else None
    if isinstance(where, dict):
        return where.get(part)
    return where.step(part)


def _measured(claims: list[Row]) -> dict[str, float]:
    """Figures for MLflow, by the number of the claim."""
    sides = ("published", "refitted", "ours")
    return {
        f"claim{number}.{side}": claim[side]
        for number, claim in enumerate(claims, start=1)
        for side in sides
        if claim[side] is not None
    }
