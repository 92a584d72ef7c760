"""The leaderboard: every model of the store on every task it was measured by, on one page.

    headrace leaderboard [--to FILE.html]

From artifacts alone: results of exams, held-out scores, answers, classifiers and judgements, each
with its 95 % interval, how many rows it is from, what a guess would have, and the same of the rows
that were not, and were, in the training text. Figures stand in one table only if their signatures
agree.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cluster.artifact import Artifact
from cluster.store import Store
from tasks.report import words
from tasks.report.template import fill

View = dict[str, Any]
Names = dict[str, str]
LOWER = {"bits_per_byte", "perplexity", "heldout_loss", "word_perplexity", "byte_perplexity"}
LOWER |= {"brier_score", "ter"}


@dataclass(frozen=True)
class Entry:
    """One figure of one model on one task; `main` where it is the task's own."""

    model: str
    task: str
    metric: str
    value: float
    interval: tuple[float, float] | None
    n: int | None
    baseline: float | None = None
    clean: View | None = None
    dirty: View | None = None
    unscored: int = 0
    main: bool = True
    signature: str = ""
    created: str = ""

    @property
    def lower(self) -> bool:
        """Whether a lower value is the better one."""
        return not LOWER.isdisjoint(self.metric.split("/"))  # of a group TASK/metric


def entries(store: Store) -> list[Entry]:
    """Every figure in the store; of a model measured twice in the same way the newest."""
    artifacts = store.artifacts()
    names = {a.fingerprint: a.name for a in artifacts}
    newest: dict[tuple[str, ...], Entry] = {}
    for artifact in artifacts:
        if picker := PICKERS.get(artifact.manifest.stage):
            for one in picker(artifact, names):
                newest[one.model, one.task, one.metric, one.signature] = one
    return list(newest.values())


def render(found: Sequence[Entry]) -> str:
    """The page as HTML."""
    return fill("leaderboard.html.j2", view(found))


def view(found: Sequence[Entry]) -> View:
    """What the page shows: models by tasks, then each task's figures by metric, best first."""
    tables = [_table(group) for group in _grouped(found)]
    main = [table for table in tables if table["main"]]
    models = list(dict.fromkeys(row["model"] for table in main for row in table["rows"]))
    cells = {(r["model"], number): r for number, t in enumerate(main) for r in t["rows"]}
    return {
        "made": max((one.created for one in found), default="")[:16].replace("T", " "),
        "tables": tables,
        "main": main,
        "models": [(m, [cells.get((m, number)) for number in range(len(main))]) for m in models],
        "split": any(row["clean"] or row["dirty"] for table in tables for row in table["rows"]),
    }


def _grouped(found: Sequence[Entry]) -> list[list[Entry]]:
    groups: dict[tuple[str, str, str], list[Entry]] = {}
    for one in sorted(found, key=lambda one: (one.task, one.signature, not one.main)):
        groups.setdefault((one.task, one.signature, one.metric), []).append(one)
    return list(groups.values())


def _table(group: Sequence[Entry]) -> View:
    """One task's figures by one metric, with where to draw them between 0 and 100."""
    first = group[0]
    ordered = sorted(group, key=lambda one: one.value, reverse=not first.lower)
    ends = [x for one in group for x in (one.value, one.baseline, *(one.interval or ()))]
    known = [x for x in ends if x is not None]
    low, span = min(known), max(known) - min(known)

    def place(value: float | None) -> float | None:
        return None if value is None else round(100 * (value - low) / span if span else 50.0, 2)

    rows = [
        asdict(one)
        | {
            "best": one.value == ordered[0].value and len(group) > 1,
            "at": place(one.value),
            "from": place(one.interval[0]) if one.interval else None,
            "to": place(one.interval[1]) if one.interval else None,
            "guess": place(one.baseline),
        }
        for one in ordered
    ]
    return {
        "task": first.task,
        "metric": words.label(first.metric),
        "lower": first.lower,
        "main": first.main,
        "signature": first.signature,
        "rows": rows,
    }


def _exam(artifact: Artifact, names: Names) -> Iterator[Entry]:
    facts = artifact.manifest.facts
    for number, (metric, result) in enumerate(facts["results"].items()):
        yield Entry(
            model=facts["model"],
            task=facts["exam"],
            metric=metric,
            value=result["value"],
            interval=_pair(result["interval"]),
            n=result["n"],
            baseline=result["baseline"],
            clean=result.get("clean"),
            dirty=result.get("dirty"),
            unscored=sum(facts["unscored"].values()),
            main=number == 0,
            signature=facts["signature"],
            created=artifact.manifest.created,
        )


def _heldout(artifact: Artifact, names: Names) -> Iterator[Entry]:
    manifest = artifact.manifest
    if not manifest.metrics:  # of a variant that was not trained to its end
        return
    metric = "bits_per_byte" if "bits_per_byte" in manifest.metrics else "heldout_loss"
    causal = "bits_per_byte_witten_bell" in manifest.metrics
    baseline = "bits_per_byte_witten_bell" if causal else "unigram_loss"
    shards = _name(names, manifest.inputs["shards"])
    yield Entry(
        model=_name(names, manifest.inputs["model"]),
        task=f"held-out text, {manifest.facts['objective']}, {shards}",
        metric=metric,
        value=manifest.metrics[metric],
        interval=_pair(manifest.facts.get("intervals", {}).get(metric)),
        n=manifest.facts["tokens"],
        baseline=manifest.metrics[baseline] if causal or metric == "heldout_loss" else None,
        signature=f"held-out|targets:{manifest.facts['tokens']}|headrace:{manifest.version}",
        created=manifest.created,
    )


def _answers(artifact: Artifact, names: Names) -> Iterator[Entry]:
    manifest = artifact.manifest
    for key, value in manifest.metrics.items():
        metric = key.removeprefix("answers_")
        yield Entry(
            model=_name(names, manifest.inputs["instruct"]),
            task=f"held-out instructions, {manifest.recipe}",
            metric=metric,
            value=value,
            interval=_pair(manifest.facts.get("intervals", {}).get(metric)),
            n=manifest.rows,
            main=metric == "rougeL",
            signature=manifest.facts["signatures"][metric],
            created=manifest.created,
        )


def _classifier(artifact: Artifact, names: Names) -> Iterator[Entry]:
    metrics = artifact.manifest.metrics
    yield Entry(
        model=artifact.name,
        task=f"classes, {artifact.manifest.recipe}",
        metric="accuracy",
        value=metrics["accuracy"],
        interval=(metrics["accuracy_low"], metrics["accuracy_high"]),
        n=int(metrics["rows"]),
        baseline=metrics["accuracy_majority"],
        created=artifact.manifest.created,
    )


def _judged(artifact: Artifact, names: Names) -> Iterator[Entry]:
    facts = artifact.manifest.facts
    for number, (metric, mean) in enumerate(facts["means"].items()):
        if mean is not None:
            yield Entry(
                model=_name(names, artifact.manifest.inputs["instruct"]),
                task=f"judged by {facts['judge']}, {artifact.manifest.recipe}",
                metric=metric,
                value=mean,
                interval=_pair(facts["intervals"][metric]),
                n=artifact.manifest.rows,
                baseline=(facts["baselines"] or {}).get(metric),
                main=number == 0,
                created=artifact.manifest.created,
            )


PICKERS: dict[str, Callable[[Artifact, Names], Iterator[Entry]]] = {
    "exam": _exam,
    "evaluate": _heldout,
    "answers": _answers,
    "classify": _classifier,
    "judge": _judged,
}


def _name(names: Names, fingerprint: Any) -> str:
    """How an artifact is called; the beginning of its fingerprint where it is gone."""
    return names.get(str(fingerprint), str(fingerprint)[:8])


def _pair(ends: Sequence[float] | None) -> tuple[float, float] | None:
    return None if ends is None or ends[0] is None else (float(ends[0]), float(ends[1]))
