"""Variants of one recipe side by side: what was varied, and what each scored on held-out text."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.scaling.variants.paired import TEST, Difference, best, better, difference, mean_interval
from tasks.training.facts import FINISHED, Ending

Row = dict[str, Any]
BITS = "bits_per_byte"
MEASURED = {
    "classify": "accuracy",
    "regress": "pearson",
    "label": "f1",
    "extract": "f1",
    "translate": "bleu",
    "summarise": "rougeL",
    "prefer": "reward_accuracy",
    "distill": "accuracy",
}
"""What tunings are compared by, where they have it; higher is better."""
LOSSES = ("accuracy", "answer_loss", "loss")
"""Else the first of these that they have."""


@stage(version=4, tracked=True)
def compare(
    scores: list[Artifact], runs: list[Row], draft: Draft, heldout: list[Artifact] | None = None
) -> None:
    """Set the held-out scores of some trainings, or tunings, beside what tells them apart; of
    tunings also what the models they began with had on held-out text, `heldout`.

    `runs` describe them: `label` of the variant, its `values`, the `seed`, and the `network`: its
    `family`, `objective`, `params`, `tokens` and `flops`. The first variant is the baseline. Facts
    are `metric`, of which lower is better unless `higher_is_better`, which tunings have; `rows`
    (label, seed, values and metrics of each run, in the order given; without metrics `status` and
    `why`); `variants` (see `summary`; of tunings with `ranges` over the seeds of every figure);
    `best`, the values of the variant that is, by `test`, better than each of the others, or None
    with the reason in `why_no_best`; `warnings`. Also as `variants.csv`, means below the runs.
    """
    from tasks.scaling.law.runs import write

    before = heldout or [None] * len(runs)
    rows = [_row(*one) for one in zip(runs, scores, before, strict=True)]
    metric, higher = _metric(rows, scores)
    variants = summary(runs, rows, metric, higher)
    winner, why = _best(variants, rows, metric, scores, higher)
    tuned = scores[0].manifest.stage != "evaluate"
    if tuned:
        for variant in variants:
            variant["ranges"] = _ranges(rows, variant["label"])
    draft.rows = len(rows)
    draft.facts |= {"higher_is_better": higher} if tuned else {}
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


def summary(
    runs: Sequence[Row], rows: Sequence[Row], metric: str, higher: bool = False
) -> list[Row]:
    """A row a variant: `label`, `values`, `network`, the mean `bits_per_byte` where it has one, `n`
    seeds with a figure, `mean` and its 95 % `interval`, `status` and `why` of the first seed
    without a figure; and against the baseline at the same seeds `difference` {mean, interval, n},
    `p` of being no better, and whether it is `better`, all variants tested together. What cannot be
    known is None.
    """
    described = {run["label"]: run for run in runs}
    figures = {label: _figures(rows, label, metric) for label in described}
    baseline, *others = described
    tested = {label: _falling(figures[label], higher) for label in figures}
    gaps = {label: difference(tested[label], tested[baseline]) for label in others}
    known = {label: gap for label, gap in gaps.items() if gap is not None}
    sure = dict(zip(known, better(list(known.values())), strict=True))
    return [
        {
            "label": label,
            "values": run["values"],
            "network": run["network"],
            "bits_per_byte": _spread(_figures(rows, label, BITS))["mean"],
            **_spread(figures[label]),
            **_against(gaps.get(label), higher),
            "better": sure.get(label),
            **_ending(rows, label, metric),
        }
        for label, run in described.items()
    ]


def _row(run: Row, score: Artifact, before: Artifact | None) -> Row:
    found = score.manifest.metrics or Ending.of(score).noted()
    text = before.manifest.metrics if before else {}
    return {"variant": run["label"], "seed": run["seed"], **run["values"], **text, **found}


def _metric(rows: Sequence[Row], scores: Sequence[Artifact]) -> tuple[str, bool]:
    """What is compared, and whether higher is better. Bits compare models with other tokenizers
    too; some objectives have none.
    """
    measured = MEASURED.get(scores[0].manifest.stage)
    if measured in rows[0]:
        return measured, True
    if scores[0].manifest.stage != "evaluate":
        found = next((name for name in LOSSES if name in rows[0]), LOSSES[-1])
        return found, found == "accuracy"
    finished = [row for row in rows if "heldout_loss" in row]
    bits = (BITS, "bits_per_predicted_byte")
    everyones = (name for name in bits if all(name in row for row in finished))
    return next(everyones, "heldout_loss"), False


def _ranges(rows: Sequence[Row], label: str) -> dict[str, dict[str, float]]:
    """Mean, lowest and highest over the seeds of every figure that all of them have."""
    mine = [row for row in rows if row["variant"] == label]
    names = [name for name in mine[0] if all(isinstance(row.get(name), float) for row in mine)]
    columns = {name: [row[name] for row in mine] for name in names}
    return {
        name: {"mean": math.fsum(values) / len(values), "low": min(values), "high": max(values)}
        for name, values in columns.items()
    }


def _falling(figures: Mapping[int, float], higher: bool) -> Mapping[int, float]:
    """Figures of which lower is better."""
    return {seed: -figure for seed, figure in figures.items()} if higher else figures


def _figures(rows: Sequence[Row], label: str, metric: str) -> dict[int, float]:
    mine = {row["seed"]: row.get(metric) for row in rows if row["variant"] == label}
    return {seed: f for seed, f in mine.items() if f is not None and math.isfinite(f)}


def _spread(figures: Mapping[int, float]) -> Row:
    if not figures:
        return {"n": 0, "mean": None, "interval": None}
    mean, interval = mean_interval(list(figures.values()))
    return {"n": len(figures), "mean": mean, "interval": interval and list(interval)}


def _against(gap: Difference | None, higher: bool) -> Row:
    if gap is None:
        return {"difference": None, "p": None}
    mean, between = gap.mean, gap.interval and list(gap.interval)
    if higher:
        mean, between = -mean, between and [-between[1], -between[0]]
    return {"difference": {"mean": mean, "interval": between, "n": gap.n}, "p": gap.p}


def _ending(rows: Sequence[Row], label: str, metric: str) -> Row:
    """How the variant's trainings ended: the first that has no figure speaks for all."""
    for row in rows:
        if row["variant"] == label and not math.isfinite(row.get(metric, math.nan)):
            why = f"seed {row['seed']}: {row.get('why', f'{metric} is no number')}"
            return {"status": row.get("status", "diverged"), "why": why}
    return {"status": FINISHED, "why": ""}


def _best(
    variants: Sequence[Row],
    rows: Sequence[Row],
    metric: str,
    scores: Sequence[Artifact],
    higher: bool,
) -> tuple[Row | None, str]:
    """The best variant, or the reason why none is called so."""
    by_label = {variant["label"]: variant for variant in variants}
    objectives = {o for s in scores if (o := s.manifest.facts.get("objective"))}
    if len(objectives) > 1:
        named = ", ".join(sorted(objectives))
        return None, f"the objectives differ ({named}): their figures do not compare"
    figures = {label: _falling(_figures(rows, label, metric), higher) for label in by_label}
    name, why = best(figures)
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
