"""Rows judged by several criteria, with the constant-answer baseline and statistics.

headrace judge FILE.jsonl --metric geval --criteria correctness --judge-url URL --judge-model M
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from cluster.home import subfolder
from cluster.settings import nearest
from tasks.scoring.doubt.statistics import mean_interval
from tasks.scoring.judge import JudgeSettings
from tasks.scoring.judging.client import EndpointJudge
from tasks.scoring.judging.criteria import CRITERIA, Criterion, custom
from tasks.scoring.judging.endpoint import Endpoint
from tasks.scoring.judging.geval import evaluation_steps, geval
from tasks.scoring.judging.pairwise import comparison, pairwise
from tasks.scoring.judging.prometheus import Rubric, absolute, relative
from tasks.scoring.judging.qag import PARTS, qag
from tasks.scoring.judging.reply_store import ReplyStore
from tasks.scoring.judging.rows import Row, Score, constant_rows, read_rows
from tasks.scoring.judging.selfcheck import VARIANTS as SELFCHECKS
from tasks.scoring.judging.selfcheck import selfcheck
from tasks.scoring.judging.verdicts import Judge

PART_OF_METRIC = {"qag": "coverage", "summary": "min"}
METRICS = ("geval", *PART_OF_METRIC, "selfcheck", "prometheus", "pairwise")
VARIANTS = {"selfcheck": SELFCHECKS, "prometheus": ("absolute", "relative")}
ROW_KEYS = ("id", "score", "spread", "mode", "reason")


@dataclass
class Assessment:
    """All scores of a run, the constant answer's means, and the evaluation steps used."""

    scores: list[Score] = field(default_factory=list)
    baselines: dict[str, float | None] = field(default_factory=dict)
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, scores: Sequence[Score], constant: Sequence[Score]) -> None:
        """Take in one criterion."""
        self.scores.extend(scores)
        self.baselines[name] = summarise(constant)["mean"]

    def by_criterion(self) -> dict[str, list[Score]]:
        """Scores by `metric_criterion`."""
        found: dict[str, list[Score]] = {}
        for score in self.scores:
            found.setdefault(f"{score.metric}_{score.criterion}", []).append(score)
        return found


def assess(
    judge: Judge,
    rows: Sequence[Row],
    settings: JudgeSettings,
    progress: Callable[[float, float, str], None] = lambda done, total, unit: None,
) -> Assessment:
    """G-Eval by every criterion of the settings and, if they say so, QAG."""
    found, total = Assessment(), len(settings.criteria) + settings.qag
    for done, name in enumerate(settings.criteria):
        _add_geval(found, judge, rows, CRITERIA[name], settings.scale)
        progress(done + 1, total, "criteria")
    if settings.qag:
        _add_qag(found, judge, rows, settings.questions)
        progress(total, total, "criteria")
    return found


@dataclass(frozen=True)
class Assignment:
    """What `headrace judge` is to do with a file's rows.

    `criterion`: a shipped name, or a criterion in words; `steps`: a file, one step a line;
    `rubric`: Prometheus's, as JSON; `variant`: SelfCheck's; `encoder` and `layer`: its BERTScore's.
    """

    metric: str
    criterion: str = "correctness"
    steps: Path | None = None
    scale: tuple[int, int] = (1, 5)
    questions: int = 3
    variant: str = "prompt"
    rubric: Path | None = None
    encoder: Path | None = None
    layer: int | None = None

    def __post_init__(self) -> None:
        """Raise BadInput for a metric or variant that there is not."""
        if self.metric not in METRICS:
            raise BadInput(f"unknown metric '{self.metric}'; {nearest(self.metric, METRICS)}")
        known = VARIANTS.get(self.metric, (self.variant,))
        if self.variant not in known and self.variant != "prompt":
            raise BadInput(f"unknown variant '{self.variant}'; {nearest(self.variant, known)}")

    @property
    def local(self) -> bool:
        """Whether no judge is needed."""
        return self.metric == "selfcheck" and self.variant in ("ngram", "bertscore")


def judge_file(path: Path, work: Assignment, endpoint: Endpoint | None) -> dict[str, Any]:
    """Scores of a JSON-lines file by a judge behind an endpoint; resumable.

    Returns `scored`, `unscored` {reason: n}, `mean`, 95 % `interval`, `bounds` (the mean were all
    unscored rows worst or best), `baseline` (the constant answer's mean), `random` (that of ratings
    drawn evenly), `rows`, `calls` (requests sent), `reused` (replies kept from before), `cost`.
    Raises BadInput for an unusable file or endpoint.
    """
    rows = read_rows(path)
    if endpoint is None and not work.local:
        raise BadInput(f"{work.metric} needs a judge: give --judge-url and --judge-model")
    judge = None
    if endpoint is not None and not work.local:
        judge = EndpointJudge(endpoint, ReplyStore(subfolder("judge") / "replies.sqlite"))
    found, name, scale = WORK[work.metric](judge, rows, work, endpoint)
    scores = found.by_criterion()[name]
    result = {
        **summarise(scores, scale),
        "unscored": dict(Counter(s.reason for s in scores if s.reason)),
        "baseline": found.baselines.get(name),
        "random": None if scale is None else sum(scale) / 2,
        "rows": _shown_rows(found, name),
        "steps": found.steps,
        "calls": judge.calls if judge else 0,
        "reused": judge.reused if judge else 0,
        "cost": judge.cost if judge else 0.0,
    }
    return result | (comparison(rows, scores) if scores[0].metric == "pairwise" else {})


Outcome = tuple[Assessment, str, tuple[int, int] | None]


def _geval(judge: Any, rows: Sequence[Row], work: Assignment, endpoint: Any) -> Outcome:
    found, chosen = Assessment(), CRITERIA.get(work.criterion) or custom(work.criterion)
    _add_geval(found, judge, rows, chosen, work.scale, _read_steps(work.steps))
    return found, f"geval_{chosen.name}", work.scale


def _qag(judge: Any, rows: Sequence[Row], work: Assignment, endpoint: Any) -> Outcome:
    found = Assessment()
    _add_qag(found, judge, rows, work.questions)
    return found, f"qag_{PART_OF_METRIC[work.metric]}", (0, 1)


def _selfcheck(judge: Any, rows: Sequence[Row], work: Assignment, endpoint: Any) -> Outcome:
    encoder = None
    if work.variant == "bertscore":
        from tasks.scoring.learned.embeddings import TextEncoder

        if work.encoder is None:
            raise BadInput("selfcheck by bertscore needs an encoder: --encoder FOLDER")
        encoder = TextEncoder(work.encoder, work.layer)
    scores = selfcheck(judge, rows, work.variant, encoder)
    scale = None if work.variant == "ngram" else (0, 1)
    return Assessment(scores), f"selfcheck_{work.variant}", scale


def _prometheus(judge: Any, rows: Sequence[Row], work: Assignment, endpoint: Any) -> Outcome:
    chosen = CRITERIA.get(work.criterion) or custom(work.criterion)
    rubric = Rubric.read(work.rubric) if work.rubric else Rubric.of(chosen)
    if work.variant == "relative":
        return Assessment(relative(judge, rows, rubric)), "prometheus_relative", (0, 1)
    found = Assessment()
    constant = absolute(judge, constant_rows(rows), rubric, endpoint.samples)
    found.add("prometheus_absolute", absolute(judge, rows, rubric, endpoint.samples), constant)
    return found, "prometheus_absolute", (1, 5)


def _pairwise(judge: Any, rows: Sequence[Row], work: Assignment, endpoint: Any) -> Outcome:
    chosen = CRITERIA.get(work.criterion) or custom(work.criterion)
    return Assessment(pairwise(judge, rows, chosen)), f"pairwise_{chosen.name}", (0, 1)


WORK: dict[str, Callable[[Any, Sequence[Row], Assignment, Any], Outcome]] = {
    "geval": _geval,
    "qag": _qag,
    "summary": _qag,
    "selfcheck": _selfcheck,
    "prometheus": _prometheus,
    "pairwise": _pairwise,
}


def summarise(scores: Sequence[Score], scale: tuple[int, int] | None = None) -> dict[str, Any]:
    """`scored`, `mean`, `interval`, mean `spread`, and `bounds` where the scale is given. Means are
    over the scored rows; None where there are none.
    """
    values = [s.score for s in scores if s.score is not None]
    spreads = [s.spread for s in scores if s.spread is not None]
    summary: dict[str, Any] = {
        "scored": len(values),
        "mean": sum(values) / len(values) if values else None,
        "interval": list(mean_interval(values)) if values else None,
        "spread": sum(spreads) / len(spreads) if spreads else None,
    }
    if scale:
        missing = len(scores) - len(values)
        summary["bounds"] = [(sum(values) + missing * end) / len(scores) for end in scale]
    return summary


def _add_geval(
    found: Assessment,
    judge: Judge,
    rows: Sequence[Row],
    criterion: Criterion,
    scale: tuple[int, int],
    given: tuple[str, ...] = (),
) -> None:
    steps, source = (given, "file") if given else evaluation_steps(judge, criterion, scale)
    found.steps[criterion.name] = {"source": source, "steps": list(steps)}
    scores = geval(judge, rows, criterion, scale, steps)
    constant = geval(judge, constant_rows(rows), criterion, scale, steps)
    found.add(f"geval_{criterion.name}", scores, constant)


def _add_qag(found: Assessment, judge: Judge, rows: Sequence[Row], questions: int) -> None:
    scores = qag(judge, rows, questions)
    constant = qag(judge, constant_rows(rows), questions)
    for part in PARTS:
        found.add(f"qag_{part}", [s[part] for s in scores], [s[part] for s in constant])
    source = "generated" if judge.writes else "fixed pattern over sentences and names"
    found.steps["qag"] = {"source": source, "questions": questions}


def _shown_rows(found: Assessment, name: str) -> list[dict[str, Any]]:
    """The rows of one score; those of QAG with all its parts."""
    by_criterion = found.by_criterion()
    shown = [
        {k: v for k, v in vars(score).items() if v is not None or k in ROW_KEYS}
        for score in by_criterion[name]
    ]
    if name.startswith("qag_"):
        for part in PARTS:
            for row, score in zip(shown, by_criterion[f"qag_{part}"], strict=True):
                row[part] = score.score
    return shown


def _read_steps(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        lines = tuple(line.strip() for line in path.read_text().splitlines() if line.strip())
    except OSError as error:
        raise BadInput(f"steps file {path} cannot be read: {error}") from error
    if not lines:
        raise BadInput(f"steps file {path} is empty; write one evaluation step a line")
    return lines
