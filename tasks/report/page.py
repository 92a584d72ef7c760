"""What the report shows: sections picked from the manifests of a run's artifacts, results alone.

When, where and at what cost they were made is no result: `run_page` shows that, of one run.

Every picker takes what it finds and leaves out what it does not; the template shows a section only
when there is something in it. All text reaches the page through the template's escaping, drawings
excepted, which hold no text from outside.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from cluster.artifact import Artifact
from cluster.manifest import parents
from tasks.report import plots, words
from tasks.report.dense import dense
from tasks.report.funnel import funnel, side_by_side
from tasks.report.scaling import scaling
from tasks.report.synthesis import made
from tasks.report.template import fill
from tasks.report.through_time import through_time
from tasks.report.variants import variants
from tasks.report.vectors import vectors

View = dict[str, Any]
Stages = dict[str, list[Artifact]]
SHORTEST_CURVE = 5
SOURCE_KEYS = ("path", "files", "bytes", "rows", "license")
SEEN_KEYS = ("source", "samples", "tokens", "share", "epochs")
MADE = "made"
"""The label of the stages that made text goes through."""
ANSWER_KEYS = ("input", "prediction", "reference", "sampled")


def render(artifacts: Sequence[Artifact], recipe: str) -> str:
    """The page as HTML."""
    return fill("report.html.j2", view(artifacts, recipe))


def view(artifacts: Sequence[Artifact], recipe: str) -> View:
    """Everything the template needs, by section."""
    stages: Stages = defaultdict(list)
    for artifact in artifacts:
        stages[artifact.manifest.stage].append(artifact)
    back, shown = through_time(stages["evaluate"]), artifacts
    if stages["compare"]:  # what one of its variants came to does not stand for the run
        several = ("evaluate", *words.TRAINED)
        shown = [one for one in artifacts if one.manifest.stage not in several]
        for name in several:
            stages.pop(name, None)
    return {
        "recipe": recipe,
        "stages": len(artifacts),
        "headline": headline(stages),
        "sources": _picked(_facts(stages, "read").get("sources"), SOURCE_KEYS),
        "funnel": [row | {"pairs": list(side_by_side(row))} for row in funnel(shown)],
        "quality": _facts(stages, "filter").get("quality"),
        "made": made(stages),
        "contamination": _facts(stages, "decontaminate"),
        "privacy": privacy(stages),
        "tokenizer": tokens(stages),
        "packing": _scalars(_facts(stages, "packing")) + _scalars(_metrics(stages, "packing")),
        "vectors": vectors(stages["vectors"], stages["word_scores"]),
        "dense": dense(stages["dense"]),
        "seen": _picked(_facts(stages, "pretrain").get("sources"), SEEN_KEYS),
        "trainings": [t for name in words.TRAINED for a in stages[name] if (t := training(a))],
        "through_time": back,
        "attention": [
            {"read": one["read"], "rows": list(zip(one["written"], one["weights"], strict=True))}
            for artifact in [*stages["translate"], *stages["summarise"]]
            for one in artifact.manifest.facts.get("attention", ())
        ],
        "classes": classes(stages),
        "scaling": scaling(stages["forecast"] or stages["fit"], stages["sweep"]),
        "variants": variants(stages["compare"]),
        "scores": scores(stages),
        "exams": exams(stages),
        "judge": judge(stages),
        "samples": _picked(_facts(stages, "answers").get("samples"), ANSWER_KEYS),
        "lineage": lineage(artifacts),
    }


def headline(stages: Stages) -> list[View]:
    """The few figures that come first, each with what it is to be compared with."""
    held, classify = _metrics(stages, "evaluate"), _metrics(stages, "classify")
    pretrain, forecast = _metrics(stages, "pretrain"), _facts(stages, "forecast").get("forecast")
    found: list[View] = []
    if "bits_per_byte_witten_bell" in held:
        baseline = words.number(held["bits_per_byte_witten_bell"])
        found.append(_card("bits per byte", held["bits_per_byte"], f"Witten-Bell {baseline}"))
    elif "unigram_loss" in held:  # of an objective other than causal
        baseline = words.number(held["unigram_loss"])
        found.append(_card("held-out loss", held["heldout_loss"], f"unigrams {baseline}"))
    if "accuracy" in classify:
        baseline = words.number(classify.get("accuracy_majority"))
        found.append(_card("accuracy", classify["accuracy"], f"majority class {baseline}"))
    if forecast and forecast["mean_error"] is not None:
        error = words.signed_percent(forecast["mean_error"])
        reach = words.number(max(t["reach"] for t in forecast["targets"]), 3)
        found.append(_card("forecast error", error, f"at {reach} times the compute"))
    if "words" in (learnt := _metrics(stages, "vectors")):
        width = f"{learnt['width']:.0f} numbers each"
        found.append(_card("words with vectors", learnt["words"], width))
    if "params" in pretrain:
        tokens = words.number(pretrain.get("tokens", stages["pretrain"][-1].manifest.tokens))
        found.append(_card("parameters", pretrain["params"], f"trained on {tokens} tokens"))
    return found


def privacy(stages: Stages) -> list[View]:
    """By kind of personal data: what was taken out, and how well its kind is found; `instances`
    and the rest are None where nothing was measured.
    """
    facts = _facts(stages, "redact")
    measured = {row["kind"]: row for row in facts.get("quality", [])}
    columns = ("instances", "recall", "redactions", "precision")
    return [
        {"kind": kind.replace("_", " "), "removed": removed}
        | {column: measured.get(kind, {}).get(column) for column in columns}
        for kind, removed in sorted(facts.get("counts", {}).items())
    ]


def tokens(stages: Stages) -> list[tuple[str, Any]]:
    """Facts of the tokenizer and the shards, as label and value."""
    found = dict(_scalars(_facts(stages, "tokenizer")))
    shards = _facts(stages, "shards")
    found |= dict(_scalars({k: v for k, v in shards.items() if k != "tokenizer_sha256"}))
    for split in ("train", "heldout"):
        for what in ("documents", "tokens", "bytes"):
            if what in shards.get(split, {}):
                name = "training" if split == "train" else "held-out"
                found[f"{name} {what}"] = shards[split][what]
    return list(found.items())


def training(artifact: Artifact) -> View:
    """The loss curve and figures of one training; empty when it left neither."""
    rows = training_rows(artifact)
    results = {k: v for k, v in artifact.manifest.metrics.items() if not words.is_cost(k)}
    figures = list(_scalars(results))
    if not (rows or figures):
        return {}
    drawn = len(rows) >= SHORTEST_CURVE
    name = _short_name(artifact)
    return {
        "stage": name,
        "plot": plots.loss_curve(rows, name) if drawn else "",
        "exams": sat_on_the_way(artifact.manifest.facts.get("exams", [])),
        "figures": figures,
    }


def sat_on_the_way(points: Sequence[View]) -> list[View]:
    """Each exam that was sat during a training: its first figure over the steps, with its interval,
    and the steps at which there was none.
    """
    found = []
    for exam in dict.fromkeys(point["exam"] for point in points):
        mine = [point for point in points if point["exam"] == exam]
        first = next((point["figure"] for point in mine if "figure" in point), None)
        drawn = [point for point in mine if first and point.get("figure") == first]
        title = f"{exam}, {words.label(first)}" if first else exam
        found.append(
            {
                "title": title,
                "plot": plots.score_curve(drawn, title) if drawn else "",
                "failed": [point for point in mine if "why" in point],
            }
        )
    return found


def classes(stages: Stages) -> View:
    """The confusion matrix of the classifier, shares by true class; empty without one."""
    facts = _facts(stages, "classify")
    counts, names = facts.get("confusion"), facts.get("labels")
    if not (isinstance(counts, list) and isinstance(names, list) and len(counts) == len(names)):
        return {}
    rows = [
        (name, [(n, n / sum(row) if sum(row) else 0.0) for n in row])
        for name, row in zip(names, counts, strict=True)
    ]
    return {"names": names, "rows": rows}


def scores(stages: Stages) -> list[tuple[str, float]]:
    """Metrics of the held-out text and of the answers."""
    found = {**_metrics(stages, "evaluate"), **_metrics(stages, "answers")}
    return [(words.label(k), v) for k, v in found.items()]


def exams(stages: Stages) -> list[View]:
    """Every figure of every exam, with its interval and what a guess would have."""
    return [
        {"exam": artifact.manifest.facts["exam"], "metric": words.label(metric), **result}
        for artifact in stages["exam"]
        for metric, result in artifact.manifest.facts["results"].items()
    ]


def judge(stages: Stages) -> View:
    """The judge's means with interval, spread, baselines and canaries; what to think of them."""
    facts = _facts(stages, "judge")
    if "means" not in facts:
        return {}
    columns = ("intervals", "spreads", "baselines", "random", "canaries")
    return {
        "note": facts.get("note", ""),
        "warnings": facts.get("warnings", []),
        "name": facts.get("judge", ""),
        "unscored": facts.get("unscored", {}),
        "rows": [
            {"name": words.label(name), "mean": mean}
            | {column: (facts.get(column) or {}).get(name) for column in columns}
            for name, mean in facts["means"].items()
        ],
    }


def lineage(artifacts: Sequence[Artifact]) -> list[View]:
    """Every artifact and the ones it was made from."""
    names = {a.fingerprint: _short_name(a) for a in artifacts}
    return [
        {
            "name": _short_name(a),
            "fingerprint": a.fingerprint[:8],
            "made_from": [names.get(f, f[:8]) for f in parents(a.manifest)],
            "rows": a.manifest.rows,
            "tokens": a.manifest.tokens,
            "bytes": sum(record.size for record in a.manifest.files.values()),
        }
        for a in artifacts
    ]


def training_rows(artifact: Artifact) -> list[dict[str, Any]]:
    """The steps of a training that have a loss, from its `metrics.jsonl`; none without one.

    Raises BadInput when the file is damaged.
    """
    if "metrics.jsonl" not in artifact.manifest.files:
        return []
    lines = artifact.file("metrics.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines if line.strip()]
    return [row for row in rows if row.get("loss") is not None and "step" in row]


def _card(name: str, value: Any, beside: str) -> View:
    return {"name": name, "value": value, "beside": beside}


def _facts(stages: Stages, stage: str) -> dict[str, Any]:
    return _last(stages[stage]).manifest.facts if stages[stage] else {}


def _metrics(stages: Stages, stage: str) -> dict[str, float]:
    return _last(stages[stage]).manifest.metrics if stages[stage] else {}


def _last(found: Sequence[Artifact]) -> Artifact:
    """A stage's last artifact: one of text that a model made only where there is no other."""
    return next((one for one in reversed(found) if one.manifest.label != MADE), found[-1])


def _picked(rows: Sequence[dict[str, Any]] | None, keys: Sequence[str]) -> list[View]:
    """Rows with these keys alone, None where a row lacks one."""
    return [{key: row.get(key) for key in keys} for row in rows or []]


def _scalars(values: dict[str, Any]) -> list[tuple[str, Any]]:
    kept = (int, float, str)
    return [(words.label(k), v) for k, v in values.items() if isinstance(v, kept)]


def _short_name(artifact: Artifact) -> str:
    manifest = artifact.manifest
    return f"{manifest.stage} {manifest.label}" if manifest.label else manifest.stage
