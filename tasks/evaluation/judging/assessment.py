"""Scores with what they must be read beside: a constant answer's, random verdicts', canaries'."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import comb
from typing import Any

from cluster.artifact import Artifact
from tasks.evaluation.judging.canaries import canary_report, canary_rows, warning
from tasks.evaluation.judging.criteria import Criterion
from tasks.evaluation.judging.geval import Form, geval
from tasks.evaluation.judging.qag import CHOICES, PARTS, qag
from tasks.evaluation.judging.questions import Judge
from tasks.evaluation.judging.rows import Row, Score, constant_rows
from tasks.evaluation.judging.settings import JudgeSettings
from tasks.evaluation.judging.steps import Steps, frozen
from tasks.evaluation.statistics.intervals import mean_interval
from tasks.evaluation.statistics.reliability import krippendorff

Scale = tuple[int, int]
Scorer = Callable[[Sequence[Row]], list[Score]]


@dataclass
class Assessment:
    """All scores of a run and, by `metric_criterion`, what to read them beside.

    `baselines`: the constant answer's mean; `random`: that of verdicts drawn evenly; `canaries`:
    how known bad answers with an attack fared; `steps`: what G-Eval rated by, which are those that
    `steps_of` a judge, a criterion and a scale gives where there are no others.
    """

    scores: list[Score] = field(default_factory=list)
    documents: dict[str, str] = field(default_factory=dict)
    baselines: dict[str, float | None] = field(default_factory=dict)
    random: dict[str, float | None] = field(default_factory=dict)
    canaries: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    steps_of: Callable[[Judge, Criterion, Scale], Steps] = lambda judge, criterion, scale: frozen(
        (), criterion, scale
    )

    def take(self, rows: Sequence[Row], scores: Sequence[Score]) -> None:
        """Take in scores as they are."""
        self.scores.extend(scores)
        self.documents |= {row.id: row.document or row.id for row in rows}

    def add(
        self,
        rows: Sequence[Row],
        scorer: Scorer,
        scale: Scale | None,
        best: str | None,
        low_is_good: bool = False,
    ) -> None:
        """Score the rows, the constant answer and, where a model judges, canaries that ask it for
        its `best` verdict.
        """
        constant = constant_rows(rows)
        canaries = canary_rows(rows, best) if best and scale else []
        # All at once, so that the judge is never idle between them.
        scores = scorer([*rows, *constant, *canaries])
        name, end = label(scores[0]), len(rows) + len(constant)
        self.take(rows, scores[: len(rows)])
        self.random[name] = sum(scale) / 2 if scale else None
        self.baselines[name] = summarise(scores[len(rows) : end])["mean"]
        if canaries and scale:
            self.canaries[name] = canary_report(scores[end:], scale, low_is_good)

    def add_geval(
        self, judge: Judge, rows: Sequence[Row], criterion: Criterion, form: Form
    ) -> None:
        """G-Eval by one criterion: its own scale, if any, and the form's steps, if any."""
        scale = criterion.scale or form.scale
        steps = Steps(form.steps, "file")
        if not form.steps:
            steps = self.steps_of(judge, criterion, scale)
        form = Form(scale, steps.steps, form.explain)
        self.steps[criterion.name] = steps.facts()
        self.add(rows, partial(geval, judge, criterion, form), scale, best=str(scale[1]))

    def add_qag(self, judge: Judge, rows: Sequence[Row], questions: int) -> None:
        """All parts of QAG."""
        constant, chance = constant_rows(rows), _random_parts(questions)
        scored = qag(judge, [*rows, *constant, *canary_rows(rows, "yes")], questions)
        end = len(rows) + len(constant)
        for part in PARTS:
            name, scores = f"qag_{part}", [of[part] for of in scored]
            self.take(rows, scores[: len(rows)])
            self.baselines[name] = summarise(scores[len(rows) : end])["mean"]
            self.random[name] = chance[part]
            self.canaries[name] = canary_report(scores[end:], (0, 1))
        source = "generated" if judge.writes else "fixed pattern over sentences and names"
        self.steps["qag"] = {"source": source, "questions": questions}

    def of(self, name: str) -> list[Score]:
        """The scores of one `metric_criterion`."""
        return [score for score in self.scores if label(score) == name]

    def names(self) -> list[str]:
        """Every `metric_criterion`, in order."""
        return list(dict.fromkeys(label(score) for score in self.scores))

    def summary(self, name: str, scale: Scale | None = None) -> dict[str, Any]:
        """`summarise`, with intervals that draw rows of one document together."""
        scores = self.of(name)
        return summarise(scores, scale, [self.documents[score.id] for score in scores])

    def warnings(self) -> list[str]:
        """Where a canary passed."""
        found = (warning(name, report) for name, report in self.canaries.items())
        return [text for text in found if text]


def assess(
    judge: Judge,
    rows: Sequence[Row],
    settings: JudgeSettings,
    steps: Sequence[Artifact] = (),
    progress: Callable[[float, float, str], None] = lambda done, total, unit: None,
) -> Assessment:
    """G-Eval by every criterion of the settings, by the frozen `steps` where there are any, and, if
    the settings say so, QAG.
    """
    found = Assessment(steps_of=lambda judge, criterion, scale: frozen(steps, criterion, scale))
    total = len(settings.criteria) + settings.qag
    for done, criterion in enumerate(settings.chosen()):
        found.add_geval(judge, rows, criterion, Form(settings.scale))
        progress(done + 1, total, "criteria")
    if settings.qag:
        found.add_qag(judge, rows, settings.questions)
        progress(total, total, "criteria")
    return found


def words(scores: Iterable[Score]) -> dict[str, str]:
    """What the judge or the endpoint said of the first row that is unscored, by reason."""
    found: dict[str, str] = {}
    for score in scores:
        if score.reason and score.detail:
            found.setdefault(score.reason, score.detail)
    return found


def label(score: Score) -> str:
    """`metric_criterion`."""
    return f"{score.metric}_{score.criterion}"


def summarise(
    scores: Sequence[Score],
    scale: Scale | None = None,
    documents: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """`scored`, `mean`, `interval`, mean `spread` and `mass`, Krippendorff's alpha between
    `repeats` where there were several replies, and `bounds` where the scale is given: the mean were
    all unscored rows worst or best. Means are over the scored rows; None where there are none.
    """
    known = [i for i, score in enumerate(scores) if score.score is not None]
    values = [scores[i].score or 0.0 for i in known]
    groups = documents and [documents[i] for i in known]
    summary: dict[str, Any] = {
        "scored": len(values),
        "mean": _mean(values),
        "interval": list(mean_interval(values, groups)) if values else None,
        "spread": _mean([s.spread for s in scores if s.spread is not None]),
        "mass": _mean([s.mass for s in scores if s.mass is not None]),
    }
    if repeats := [s.ratings for s in scores if s.ratings]:
        summary["repeats"] = krippendorff(repeats)
    if scale:
        missing = len(scores) - len(values)
        summary["bounds"] = [(sum(values) + missing * end) / len(scores) for end in scale]
    return summary


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _random_parts(questions: int) -> dict[str, float]:
    """What QAG's parts come to where each of `questions` verdicts is drawn evenly."""
    p = 1 / len(CHOICES)
    at_least = [
        sum(
            comb(questions, k) * p**k * (1 - p) ** (questions - k)
            for k in range(least, questions + 1)
        )
        for least in range(1, questions + 1)
    ]
    lower = sum(chance**2 for chance in at_least) / questions
    return {"coverage": p, "alignment": p, "min": lower, "mean": p}
