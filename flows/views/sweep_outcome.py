"""What `headrace sweep` says when it is done: of a scaling law, or of variants side by side."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cluster.artifact import Artifact
from flows.views.output import Output, human
from tasks.scaling.variants.paired import probability

VARIED = ("metric", "variants", "best", "why_no_best", "test", "warnings")


def sweep_result(stages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`runs`, `fit` and `forecast` from the artifact of a sweep's last stage; `fit` and `forecast`
    are None of variants, which have more keys of their own (`VARIED`).
    """
    laws = [s for s in stages if s["stage"] in ("fit", "forecast", "compare")]
    last = laws[-1]  # a grid of one or two runs has a fit and nothing to forecast
    facts = Artifact.load(Path(last["artifact"])).manifest.facts
    if last["stage"] != "compare":
        return {key: facts.get(key) for key in ("runs", "fit", "forecast")}
    law = {"runs": facts["rows"], "fit": None, "forecast": None}
    return law | {key: facts[key] for key in VARIED}


def show_planned(out: Output, variants: Sequence[Mapping[str, Any]]) -> None:
    """The variants that a sweep would train, and how often."""
    if not variants:
        return
    columns = ("variant", "objective", "seeds", "params", "tokens", "flops each")
    rows = ((v["label"], v["objective"], _range(v["seeds"]), *_sizes(v)) for v in variants)
    out.section(columns, rows)
    runs = sum(len(v["seeds"]) for v in variants)
    flops = human(sum(v["flops"] * len(v["seeds"]) for v in variants), "FLOP")
    out.say(f"\nvariants {len(variants)}, {runs} trainings, {flops}")


def _range(seeds: Sequence[int]) -> str:
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"


def _sizes(variant: Mapping[str, Any]) -> list[str]:
    return [human(float(variant[key])) for key in ("params", "tokens", "flops")]


def show_variants(out: Output, result: Mapping[str, Any]) -> None:
    """The table of variants, and whether one is best."""
    metric = result["metric"].replace("_", " ")
    columns = ("variant", "seeds", f"{metric}, ± 95 %", "against the first", "p")
    out.section(columns, map(_row, result["variants"]))
    show_networks(out, result["variants"])
    out.say("")
    for variant in result["variants"]:
        if ranges := variant.get("ranges"):
            _show_ranges(out, variant["label"], ranges)
        if variant["status"] != "finished":
            out.say(f"{variant['label']}: {variant['status']}, {variant['why']}")
    for warning in result["warnings"]:
        out.say(f"warning: {warning}")
    if len(result["variants"]) == 1:  # of several seeds
        return
    if result["best"] is None:
        out.say(f"no best  {result['why_no_best']}")
    else:
        best = next(v["label"] for v in result["variants"] if v["values"] == result["best"])
        out.say(f"best     {best}: {result['test']}")


def show_networks(out: Output, variants: Sequence[Mapping[str, Any]]) -> None:
    """What each variant is and took, where they are networks of several kinds."""
    kinds = {(v["network"]["family"], v["network"]["objective"]) for v in variants}
    if len(kinds) < 2:
        return
    columns = ("variant", "family", "objective", "params", "flops each", "bits per byte")
    out.section(columns, map(_network, variants))


def _network(variant: Mapping[str, Any]) -> tuple[str, ...]:
    about, bits = variant["network"], variant["bits_per_byte"]
    sizes = (human(float(about[key])) for key in ("params", "flops"))
    told = "-" if bits is None else f"{bits:.4g}"
    return (variant["label"], about["family"], about["objective"], *sizes, told)


def _show_ranges(out: Output, label: str, ranges: Mapping[str, Mapping[str, float]]) -> None:
    """Every figure over the seeds."""
    ends = ("mean", "low", "high")
    rows = ((name, *(f"{found[end]:.4g}" for end in ends)) for name, found in ranges.items())
    out.table((label, "mean", "lowest", "highest"), rows)
    out.say("")


def _row(variant: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        variant["label"],
        variant["n"],
        _mean(variant, "{:.4g}"),
        _mean(variant["difference"] or {}, "{:+.3g}"),
        "" if variant["p"] is None else probability(variant["p"]),
    )


def _mean(about: Mapping[str, Any], form: str) -> str:
    """A mean, and how far its interval reaches to either side."""
    if about.get("mean") is None:
        return ""
    mean = form.format(about["mean"])
    if about["interval"] is None:
        return mean
    low, high = about["interval"]
    return f"{mean} ± {(high - low) / 2:.2g}"
