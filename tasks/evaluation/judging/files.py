"""Rows of a file judged by one metric.

headrace judge FILE.jsonl --metric geval --criteria correctness --judge-url URL --judge-model M
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from cluster.home import subfolder
from cluster.settings import nearest
from cluster.store import Store
from tasks.data.json_files import read_json_lines, write_json_lines
from tasks.evaluation.judging.assessment import Assessment, Scale
from tasks.evaluation.judging.client import EndpointJudge
from tasks.evaluation.judging.criteria import Criterion, read_criterion
from tasks.evaluation.judging.endpoint import Endpoint
from tasks.evaluation.judging.geval import Form, Reading, read_stored
from tasks.evaluation.judging.pairwise import comparison, pairwise
from tasks.evaluation.judging.prometheus import Rubric, absolute, relative
from tasks.evaluation.judging.qag import PARTS
from tasks.evaluation.judging.reply_store import ReplyStore
from tasks.evaluation.judging.rows import Row, read_rows
from tasks.evaluation.judging.selfcheck import LOCAL, Tools, selfcheck
from tasks.evaluation.judging.selfcheck import VARIANTS as SELFCHECKS
from tasks.evaluation.judging.steps import evaluation_steps

PART_OF_METRIC = {"qag": "coverage", "summary": "min"}
METRICS = ("geval", *PART_OF_METRIC, "selfcheck", "prometheus", "pairwise")
VARIANTS = {"selfcheck": SELFCHECKS, "prometheus": ("absolute", "relative")}
ROW_KEYS = ("id", "score", "spread", "mode", "reason")
DEFAULT_SCALE = (1, 5)


@dataclass(frozen=True)
class Assignment:
    """What `headrace judge` is to do with a file's rows.

    `criterion`: a shipped name, a criterion in words, or a YAML file; `steps`: a file, one step a
    line; `scale`: the criterion's own, or 1-5, where it is None; `explain`: ask for a sentence
    behind the rating; `reading`: of stored replies; `questions`: QAG's on each text; `rubric`:
    Prometheus's, as JSON; `variant`: SelfCheck's; `encoder` and `layer`: the model folder for its
    BERTScore or NLI.
    """

    metric: str
    criterion: str = "correctness"
    steps: Path | None = None
    scale: Scale | None = None
    explain: bool = False
    reading: Reading = "allowed"
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

    def needs_judge(self, rows: Sequence[Row]) -> bool:
        """Whether a judge has to be asked."""
        local = self.metric == "selfcheck" and self.variant in LOCAL
        return not local and not (self.metric == "geval" and any(row.replies for row in rows))


def judge_file(
    path: Path,
    work: Assignment,
    endpoint: Endpoint | None,
    to: Path | None = None,
    store: Store | None = None,
) -> dict[str, Any]:
    """Scores of a JSON-lines file by a judge behind an endpoint; resumable. `to` is written with
    the rows as they were read and their scores beside, for `headrace agree`. Steps that the judge
    writes are frozen in the store; without one it rates by the criterion's own.

    Returns `scored`, `unscored` {reason: n}, `mean`, 95 % `interval` over documents, `bounds` (the
    mean were all unscored rows worst or best), `baseline` (the constant answer's mean over the
    first hundred rows), `random` (that of verdicts drawn evenly), `canaries`, `warnings`, `rows`,
    `steps`, `order` of rating and reason, `calls` (requests sent), `reused` (replies kept from
    before), `cost`. Raises BadInput for an unusable file or endpoint.
    """
    rows = read_rows(path)
    judge = None
    if work.needs_judge(rows):
        if endpoint is None:
            raise BadInput(f"{work.metric} needs a judge: give --judge-url and --judge-model")
        judge = EndpointJudge(endpoint, ReplyStore(subfolder("judge") / "replies.sqlite"))
    found = Assessment()
    if store is not None:
        found.steps_of = partial(evaluation_steps, store=store)
    name, scale = WORK[work.metric](found, judge, rows, work, endpoint)
    scores = found.of(name)
    result: dict[str, Any] = {
        **found.summary(name, scale),
        "unscored": dict(Counter(s.reason for s in scores if s.reason)),
        "baseline": found.baselines.get(name),
        "random": found.random.get(name),
        "canaries": found.canaries.get(name),
        "warnings": found.warnings(),
        "rows": _shown_rows(found, name),
        "steps": found.steps,
        "order": "score, then reason" if work.explain else "score only",
        **_spent(judge),
    }
    if to:
        pairs = zip(read_json_lines(path), result["rows"], strict=True)
        write_json_lines(to, (row | scored for (_, row), scored in pairs))
    compares = work.metric == "pairwise" or work.variant == "relative"
    return result | (comparison(rows, scores) if compares else {})


Outcome = tuple[str, Scale | None]


def _geval(
    found: Assessment, judge: Any, rows: Sequence[Row], work: Assignment, endpoint: Any
) -> Outcome:
    chosen = read_criterion(work.criterion)
    if work.scale:
        chosen = Criterion.model_validate(chosen.model_dump() | {"scale": work.scale})
    scale = chosen.scale or DEFAULT_SCALE
    form = Form(scale, _read_steps(work.steps), work.explain)
    name = f"geval_{chosen.name}"
    if judge is None:
        found.take(rows, read_stored(chosen, form, rows, work.reading))
        found.random[name] = sum(scale) / 2
    else:
        found.add_geval(judge, rows, chosen, form)
    return name, scale


def _qag(
    found: Assessment, judge: Any, rows: Sequence[Row], work: Assignment, endpoint: Any
) -> Outcome:
    found.add_qag(judge, rows, work.questions)
    return f"qag_{PART_OF_METRIC[work.metric]}", (0, 1)


def _selfcheck(
    found: Assessment, judge: Any, rows: Sequence[Row], work: Assignment, endpoint: Any
) -> Outcome:
    scale = None if work.variant == "ngram" else (0, 1)
    tools = Tools.of(judge, work.variant, work.encoder, work.layer)
    scorer = partial(selfcheck, tools, work.variant)
    found.add(rows, scorer, scale, best="yes" if judge else None, low_is_good=True)
    return f"selfcheck_{work.variant}", scale


def _prometheus(
    found: Assessment, judge: Any, rows: Sequence[Row], work: Assignment, endpoint: Any
) -> Outcome:
    rubric = Rubric.read(work.rubric) if work.rubric else Rubric.of(read_criterion(work.criterion))
    if work.variant == "relative":
        found.add(rows, partial(relative, judge, rubric), (0, 1), best="A")
        return "prometheus_relative", (0, 1)
    scorer = partial(absolute, judge, rubric, samples=endpoint.samples)
    found.add(rows, scorer, (1, 5), best="5")
    return "prometheus_absolute", (1, 5)


def _pairwise(
    found: Assessment, judge: Any, rows: Sequence[Row], work: Assignment, endpoint: Any
) -> Outcome:
    chosen = read_criterion(work.criterion)
    found.add(rows, partial(pairwise, judge, chosen), (0, 1), best="a")
    return f"pairwise_{chosen.name}", (0, 1)


WORK: dict[str, Callable[[Assessment, Any, Sequence[Row], Assignment, Any], Outcome]] = {
    "geval": _geval,
    "qag": _qag,
    "summary": _qag,
    "selfcheck": _selfcheck,
    "prometheus": _prometheus,
    "pairwise": _pairwise,
}


def _spent(judge: EndpointJudge | None) -> dict[str, Any]:
    if judge is None:
        return {"calls": 0, "reused": 0, "cost": 0.0}
    return {"calls": judge.calls, "reused": judge.reused, "cost": judge.cost}


def _shown_rows(found: Assessment, name: str) -> list[dict[str, Any]]:
    """The rows of one score; those of QAG with all its parts."""
    shown = [
        {k: v for k, v in vars(score).items() if v is not None or k in ROW_KEYS}
        for score in found.of(name)
    ]
    if name.startswith("qag_"):
        for part in PARTS:
            for row, score in zip(shown, found.of(f"qag_{part}"), strict=True):
                row[part] = score.score
    return shown


def _read_steps(path: Path | None) -> tuple[str, ...]:
    if path is None:
        return ()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadInput(f"steps file {path} cannot be read: {error}") from error
    if lines := tuple(line.strip() for line in text.splitlines() if line.strip()):
        return lines
    raise BadInput(f"steps file {path} is empty; write one evaluation step a line")
