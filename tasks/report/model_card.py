"""The model card of what is handed over: how it is loaded, what it was made from, what it can do,
what it took. From the records of a model's ancestors alone; what they do not tell is `unknown`.

After Mitchell et al. 2019, Model Cards for Model Reporting (arXiv 1810.03993); front matter as the
Hugging Face hub reads it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import yaml

from cluster.artifact import Artifact
from cluster.runs import RunRecord, StageRecord, records
from cluster.store import Store
from tasks.data.reading.remote import HUB
from tasks.report import words
from tasks.report.leaderboard import Entry, entries
from tasks.report.template import fill

View = dict[str, Any]
UNKNOWN = "unknown"
CONVERSING = ("adopt", "instruct", "prefer")
COUNTS = ("rows", "params", "params_non_embedding")
"""Metrics that say how much there is, and not how good it is."""
TASKS = {
    "ForCausalLM": ("AutoModelForCausalLM", "text-generation"),
    "LMHeadModel": ("AutoModelForCausalLM", "text-generation"),
    "ForSequenceClassification": ("AutoModelForSequenceClassification", "text-classification"),
    "ForTokenClassification": ("AutoModelForTokenClassification", "token-classification"),
    "ForQuestionAnswering": ("AutoModelForQuestionAnswering", "question-answering"),
    "ForConditionalGeneration": ("AutoModelForSeq2SeqLM", "text2text-generation"),
    "ForMaskedLM": ("AutoModelForMaskedLM", "fill-mask"),
}
"""By what the name of a class ends with: the class that finds it, the hub's name of its task."""


def render(about: View, model: Artifact | None, store: Store) -> str:
    """The card as Markdown. `about` is what was written: `name`, `architecture`, `type`, `file` of
    a GGUF, `params`, `context`, `vocab_size`, `chat` (whether there is a template), `head` (whether
    Transformers has no class for that of its task) and `version`. A model without a record of its
    own has a card that says so.
    """
    lineage = store.lineage(model) if model else []
    known = {
        **about,
        "auto": _task(about["architecture"])[0],
        "chat": about["chat"] and _converses(model, lineage),
        "made": model.name if model else None,
        "bases": [one for one in lineage if one.manifest.stage == "adopt"],
        "sources": sources(lineage),
        "ledgers": [one for one in lineage if one.manifest.ledger][::-1],
        "searched": [b for one in lineage for b in one.manifest.facts.get("benchmarks", [])],
        "decontaminated": any(one.manifest.stage == "decontaminate" for one in lineage),
        "tasks": [t for one in lineage if (t := one.manifest.facts.get("task"))],
        "scores": scores(model, lineage, store) if model else [],
        "trainings": trainings(lineage),
        "spent": spent(lineage, records(store.root)),
    }
    return front_matter(about, lineage) + fill("model_card.md.j2", known)


def front_matter(about: View, lineage: Sequence[Artifact]) -> str:
    """What the hub reads: library, task, base model, and its licence, which what is tuned has too.

    The text's licences name no licence of the model: who publishes it chooses one.
    """
    _, task = _task(about["architecture"])
    said: View = {"library_name": "gguf" if about["file"] else "transformers"}
    said |= {"pipeline_tag": task} if task else {}
    for base in (one.manifest.facts for one in lineage if one.manifest.stage == "adopt"):
        if base["origin"].startswith(HUB):
            said["base_model"] = base["origin"].removeprefix(HUB).partition("@")[0]
        if base["license"]:
            said["license"] = base["license"]
    return f"---\n{yaml.safe_dump(said | {'tags': ['headrace']}, sort_keys=False)}---\n\n"


def _converses(model: Artifact | None, lineage: Sequence[Artifact]) -> bool:
    """Whether a model with a chat template may have been taught it: by a tuning on the way, or
    before its record begins.
    """
    return model is None or any(one.manifest.stage in CONVERSING for one in lineage)


def _task(architecture: str) -> tuple[str, str | None]:
    return next(
        (found for end, found in TASKS.items() if architecture.endswith(end)), ("AutoModel", None)
    )


def sources(lineage: Sequence[Artifact]) -> list[View]:
    """The text that was read, with the licences that its rows say."""
    read = (s for a in lineage if a.manifest.stage == "read" for s in a.manifest.facts["sources"])
    return [
        {
            **{key: source[key] for key in ("label", "rows", "bytes", "files")},
            "licenses": ", ".join(f"{n} ({rows:,} rows)" for n, rows in source["licenses"].items())
            or UNKNOWN,
        }
        for source in read
    ]


def scores(model: Artifact, lineage: Sequence[Artifact], store: Store) -> list[View]:
    """Every score of the model and of those it was tuned from, and what its tuning measured."""
    names = [one.name for one in lineage]
    found = [_score(one) for one in entries(store) if one.model in names]
    told = {(row["model"], row["metric"]) for row in found}
    manifest = model.manifest
    own = {
        key: value
        for key, value in manifest.metrics.items()
        if (model.name, words.label(key)) not in told
        and not words.is_cost(key)
        and key not in COUNTS
    }
    ends = manifest.facts.get("intervals", {})
    return found + [
        {
            "model": model.name, "task": f"its own {manifest.stage}", "metric": words.label(key),
            "value": words.number(value), "interval": _interval(ends.get(key)), "n": None,
            "baseline": None,
        }
        for key, value in own.items()
    ]  # fmt: skip


def _score(entry: Entry) -> View:
    baseline = entry.baseline
    return {
        "model": entry.model,
        "task": entry.task,
        "metric": words.label(entry.metric),
        "value": words.number(entry.value),
        "interval": _interval(entry.interval),
        "n": entry.n,
        "baseline": None if baseline is None else words.number(baseline),
    }


def _interval(ends: Sequence[float] | None) -> str:
    return UNKNOWN if ends is None else " to ".join(words.number(end) for end in ends)


def trainings(lineage: Sequence[Artifact]) -> list[View]:
    """Each training on the way to the model, the first first."""
    return [
        {
            "name": one.name,
            "tokens": one.manifest.tokens,
            "seconds": one.manifest.seconds,
            "flops": one.manifest.work.get("flops"),
            "created": one.manifest.created[:10],
        }
        for one in reversed(lineage)
        if one.manifest.stage in words.TRAINED
    ]


def spent(lineage: Sequence[Artifact], runs: Sequence[RunRecord]) -> list[tuple[str, str, str]]:
    """Rows (resource, amount, known): what the stages behind the model took together, and of how
    many of them that is known, `3 of 7`.
    """
    trained = [one for one in lineage if one.manifest.stage in words.TRAINED]
    prices = _prices(runs)
    flops = [one.manifest.work.get("flops") for one in trained]
    energy = [one.manifest.resources.get("joules") for one in lineage]
    paid = [prices.get(one.fingerprint) for one in lineage]
    return [
        ("floating-point operations of training, counted", *_sum(flops, words.number)),
        ("time of its stages", *_sum([a.manifest.seconds for a in lineage], words.duration)),
        ("energy", *_sum(energy, lambda joules: f"{joules / 3.6e6:.3g} kWh")),
        ("cost", *_sum(paid, lambda usd: f"{usd:.2f} USD")),
    ]


def _sum(values: Sequence[float | None], shown: Callable[[float], str]) -> tuple[str, str]:
    known = [value for value in values if value is not None]
    of = f"{len(known)} of {len(values)}"
    return (shown(sum(known)), of) if known else (UNKNOWN, of)


def _prices(runs: Sequence[RunRecord]) -> dict[str, float]:
    """What each stage cost that a run built at a stated price, in USD, by fingerprint."""
    return {
        stage.fingerprint: stage.seconds / 3600 * price
        for run in runs
        for stage in run.stages
        if stage.state == "built" and (price := _price(run.recipe.get("placement") or {}, stage))
    }


def _price(placement: Mapping[str, Any], stage: StageRecord) -> float:
    """USD an hour of the workers that a stage has."""
    workers = placement.get("workers", 1) if stage.stage in words.TRAINED else 1
    return float(placement.get("usd_per_hour", 0.0)) * workers
