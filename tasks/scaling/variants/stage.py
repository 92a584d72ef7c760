"""Variants of one recipe side by side: what was varied, and what each scored on held-out text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.scaling.variants.paired import TEST, Difference, best, better, difference, mean_interval
from tasks.training.facts import Ending

Row = dict[str, Any]
FINISHED = "finished"


@stage(version=3, tracked=True)
def compare(scores: list[Artifact], runs: list[Row], draft: Draft) -> None:
    """Set the held-out scores of some trainings beside what tells them apart.

    `runs` describe them: `label` of the variant, its `values`, and the `seed`. The first variant is
    the baseline. Facts are `metric`, lower being better; `rows` (label, seed, values and metrics of
    each run, in the order given; without metrics `status` and `why`); `variants` (see `summary`);
    `best`, the values of the variant that is, by `test`, better than each of the others, or None
    with the reason in `why_no_best`; `warnings`. Also as `variants.csv`, means below the runs.
    """
    from tasks.scaling.law.runs import write

    rows = [_row(run, score) for run, score in zip(runs, scores, strict=True)]
    metric = _metric(rows)
    variants = summary(runs, rows, metric)
    winner, why = _best(variants, rows, metric, scores)
    draft.rows = len(rows)
    draft.facts |= {
        "metric": metric,
        "rows": rows,
        "variants": variants,
        "best": None if winner is None else winner["values"],
        "why_no_best": why or None,
        "test": TEST,
        "warnings": _warnings(scores),
    }
    means = [(i, v["mean"]) for i, v in enumerate(variants) if v["mean"] is not None]
    draft.tracker.metrics([{"step": i, metric: mean} for i, mean in means])
    if winner is not None:
        draft.metrics = {metric: winner["mean"]}
        draft.tracker.params(winner["values"])
    write(draft.path / "variants.csv", [*rows, *(_mean_row(v, metric) for v in variants)])


def summary(runs: Sequence[Row], rows: Sequence[Row], metric: str) -> list[Row]:
    """A row a variant: `label`, `values`, `n` seeds with a figure, `mean` and its 95 % `interval`,
    `status` and `why` of the first seed without a figure; and against the baseline at the same
    seeds `difference` {mean, interval, n}, `p` of being no better, and whether it is `better`, all
    variants tested together. What cannot be known is None.
    """
    described = {run["label"]: run for run in runs}
    figures = {label: _figures(rows, label, metric) for label in described}
    baseline, *others = described
    gaps = {label: difference(figures[label], figures[baseline]) for label in others}
    known = {label: gap for label, gap in gaps.items() if gap is not None}
    sure = dict(zip(known, better(list(known.values())), strict=True))
    return [
        {
            "label": label,
            "values": run["values"],
            **_spread(figures[label]),
            **_against(gaps.get(label)),
            "better": sure.get(label),
            **_ending(rows, label, metric),
        }
        for label, run in described.items()
    ]


def _row(run: Row, score: Artifact) -> Row:
    found = score.manifest.metrics or Ending.of(score).noted()
    return {"variant": run["label"], "seed": run["seed"], **run["values"], **found}


def _metric(rows: Sequence[Row]) -> str:
    """Bits compare models with other tokenizers too; some objectives have none."""
    finished = [row for row in rows if "heldout_loss" in row]
    bits = ("bits_per_byte", "bits_per_predicted_byte")
    everyones = (name for name in bits if all(name in row for row in finished))
    return next(everyones, "heldout_loss")


def _figures(rows: Sequence[Row], label: str, metric: str) -> dict[int, float]:
    mine = {row["seed"]: row.get(metric) for row in rows if row["variant"] == label}
    return {seed: f for seed, f in mine.items() if f is not None and math.isfinite(f)}


def _spread(figures: Mapping[int, float]) -> Row:
    if not figures:
        return {"n": 0, "mean": None, "interval": None}
    mean, interval = mean_interval(list(figures.values()))
    return {"n": len(figures), "mean": mean, "interval": interval and list(interval)}


def _against(gap: Difference | None) -> Row:
    if gap is None:
        return {"difference": None, "p": None}
    between = gap.interval and list(gap.interval)
    return {"difference": {"mean": gap.mean, "interval": between, "n": gap.n}, "p": gap.p}


def _ending(rows: Sequence[Row], label: str, metric: str) -> Row:
    """How the variant's trainings ended: the first that has no figure speaks for all."""
    for row in rows:
        if row["variant"] == label and not math.isfinite(row.get(metric, math.nan)):
            why = f"seed {row['seed']}: {row.get('why', f'{metric} is no number')}"
            return {"status": row.get("status", "diverged"), "why": why}
    return {"status": FINISHED, "why": ""}


def _best(
    variants: Sequence[Row], rows: Sequence[Row], metric: str, scores: Sequence[Artifact]
) -> tuple[Row | None, str]:
    """The best variant, or the reason why none is called so."""
    by_label = {variant["label"]: variant for variant in variants}
    objectives = {o for s in scores if (o := s.manifest.facts.get("objective"))}
    if len(objectives) > 1:
        named = ", ".join(sorted(objectives))
        return None, f"the objectives differ ({named}): their figures do not compare"
    name, why = best({label: _figures(rows, label, metric) for label in by_label})
    return None if name is None else by_label[name], why


def _warnings(scores: Sequence[Artifact]) -> list[str]:
    sizes = sorted({s.manifest.facts["bytes"] for s in scores if "bytes" in s.manifest.facts})
    if len(sizes) < 2:
        return []
    sized = f"{sizes[0]:,} to {sizes[-1]:,} bytes"
    return [f"the variants are not scored on the same held-out text, but on {sized} of it"]


def _mean_row(variant: Row, metric: str) -> Row:
    low, high = variant["interval"] or (None, None)
    gap = variant["difference"] or {"mean": None, "interval": None}
    below, above = gap["interval"] or (None, None)
    return {
        "variant": variant["label"],
        "seed": "mean",
        **variant["values"],
        metric: variant["mean"],
        "n": variant["n"],
        "low": low,
        "high": high,
        "difference": gap["mean"],
        "difference_low": below,
        "difference_high": above,
        "p": variant["p"],
    } | {key: variant[key] for key in ("status", "why") if variant["status"] != FINISHED}
