"""Rows of a file judged by one metric.

headrace judge FILE.jsonl --metric geval --criteria correctness --judge-url URL --judge-model M
"""

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from cluster.settings import nearest
from cluster.store import Store
from tasks.data.row_files import AS_THEY_ARE, RowLayout, read_row_file, write_json_lines
from tasks.evaluation.judging.assessment import Assessment, Scale, words
from tasks.evaluation.judging.client import EndpointJudge
from tasks.evaluation.judging.criteria import Criterion, read_criterion
from tasks.evaluation.judging.endpoint import Endpoint
from tasks.evaluation.judging.geval import Form, Reading, read_stored
from tasks.evaluation.judging.pairwise import comparison, pairwise
from tasks.evaluation.judging.prometheus import Rubric, absolute, relative
from tasks.evaluation.judging.qag import PARTS, qag
from tasks.evaluation.judging.reply_store import ReplyStore
from tasks.evaluation.judging.rows import Row, Score, read_rows
from tasks.evaluation.judging.selfcheck import LOCAL, Tools, selfcheck
from tasks.evaluation.judging.selfcheck import VARIANTS as SELFCHECKS
from tasks.evaluation.judging.steps import evaluation_steps
from tasks.evaluation.judging.stored_replies import StoredJudge

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
        if self.reading == "published" and self.metric != "geval":
            raise BadInput(f"--reading published is of geval's stored replies, not {self.metric}'s")

    def needs_judge(self, rows: Sequence[Row]) -> bool:
        """Whether a judge has to be asked."""
        local = self.metric == "selfcheck" and self.variant in LOCAL
        return not local and not any(row.replies for row in rows)

    def account(self, path: Path, endpoint: Endpoint) -> str:
        """What names the account of its budget: the same for all invocations that judge this file
        by this metric through this endpoint.
        """
        same = [endpoint.chat_url, endpoint.model, str(path.resolve())]
        text = json.dumps([*same, self.metric, self.criterion, self.variant])
        return hashlib.sha256(text.encode()).hexdigest()


def judge_file(
    path: Path,
    work: Assignment,
    endpoint: Endpoint | None,
    to: Path | None = None,
    store: Store | None = None,
    layout: RowLayout = AS_THEY_ARE,
) -> dict[str, Any]:
    """Scores of a JSON-lines file by a judge behind an endpoint; resumable. `to` is written with
    the rows as they were read and their scores beside, for `headrace agree`. Steps that the judge
    writes are frozen in the store; without one it rates by the criterion's own. `layout`: how
    the file is laid out.

    Returns `metric` and `scale`, `scored`, `unscored` {reason: n}, `mean`, 95 % `interval` over
    documents, `bounds` (the mean were all unscored rows worst or best), `baseline` (the constant
    answer's mean over the first hundred rows), `random` (that of verdicts drawn evenly),
    `canaries`, `warnings`, `rows`, `words` {reason: the first row's}, `steps`, `order` of rating
    and reason, `calls` (requests sent), `reused` (replies kept from before), `cost`, `spent` (in
    USD, by all invocations). Raises BadInput for an unusable file or endpoint.
    """
    rows = read_rows(path, layout)
    judge = None
    if work.needs_judge(rows):
        if endpoint is None:
            raise BadInput(f"{work.metric} needs a judge: give --judge-url and --judge-model")
        replies = ReplyStore.of_home()
        judge = EndpointJudge(endpoint, replies, work.account(path, endpoint))
    found = Assessment()
    if store is not None:
        found.steps_of = partial(evaluation_steps, store=store)
    samples = endpoint.samples if endpoint else None
    name, scale = Judging(found, judge, rows, work, samples).outcome()
    scores = found.of(name)
    result: dict[str, Any] = {
        "metric": name,
        "scale": scale,
        **found.summary(name, scale),
        "unscored": dict(Counter(s.reason for s in scores if s.reason)),
        "words": words(scores),
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
        written = RowLayout(table=layout.table)
        pairs = zip(read_row_file(path, written), result["rows"], strict=True)
        write_json_lines(to, (row | scored for (_, row), scored in pairs))
    compares = work.metric == "pairwise" or work.variant == "relative"
    return result | (comparison(rows, scores) if compares else {})


@dataclass(frozen=True)
class Judging:
    """Rows judged as an assignment says, by a judge or by the replies that the rows bring: each
    metric adds to `found`, and gives its name and the scale of its scores.
    """

    found: Assessment
    judge: EndpointJudge | None
    rows: Sequence[Row]
    work: Assignment
    samples: int | None

    def outcome(self) -> tuple[str, Scale | None]:
        """The scores by the metric that is asked for."""
        of_metric = {
            "geval": self._geval,
            **dict.fromkeys(PART_OF_METRIC, self._qag),
            "selfcheck": self._selfcheck,
            "prometheus": self._prometheus,
            "pairwise": self._pairwise,
        }
        return of_metric[self.work.metric]()

    def _geval(self) -> tuple[str, Scale]:
        chosen, work = read_criterion(self.work.criterion), self.work
        if work.scale:
            chosen = Criterion.model_validate(chosen.model_dump() | {"scale": work.scale})
        scale = chosen.scale or DEFAULT_SCALE
        form = Form(scale, _read_steps(work.steps), work.explain)
        name = f"geval_{chosen.name}"
        if self.judge is None:
            self.found.take(self.rows, read_stored(chosen, form, self.rows, work.reading))
            self.found.random[name] = sum(scale) / 2
        else:
            self.found.add_geval(self.judge, self.rows, chosen, form)
        return name, scale

    def _qag(self) -> tuple[str, Scale]:
        questions = self.work.questions
        if self.judge is None:
            scored = [qag(StoredJudge(row), [row], questions)[0] for row in self.rows]
            for part in PARTS:
                self.found.take(self.rows, [of[part] for of in scored])
        else:
            self.found.add_qag(self.judge, self.rows, questions)
        return f"qag_{PART_OF_METRIC[self.work.metric]}", (0, 1)

    def _selfcheck(self) -> tuple[str, Scale | None]:
        work, name = self.work, f"selfcheck_{self.work.variant}"
        if work.variant in LOCAL:
            scale = None if work.variant == "ngram" else (0, 1)
            tools = Tools.of(work.variant, work.encoder, work.layer)
            scorer = partial(selfcheck, tools, work.variant)
            self.found.add(self.rows, scorer, scale, best=None)
            return name, scale

        def supported(judge: Any, rows: Sequence[Row]) -> list[Score]:
            return selfcheck(Tools(judge), "prompt", rows)

        return self._add(name, supported, (0, 1), best="yes", low_is_good=True)

    def _prometheus(self) -> tuple[str, Scale]:
        given = self.work.rubric
        rubric = Rubric.read(given) if given else Rubric.of(read_criterion(self.work.criterion))

        def compare(judge: Any, rows: Sequence[Row]) -> list[Score]:
            return relative(judge, rubric, rows)

        def rate(judge: Any, rows: Sequence[Row]) -> list[Score]:
            return absolute(judge, rubric, rows, self.samples or len(rows[0].replies))

        if self.work.variant == "relative":
            return self._add("prometheus_relative", compare, (0, 1), best="A")
        return self._add("prometheus_absolute", rate, (1, 5), best="5")

    def _pairwise(self) -> tuple[str, Scale]:
        chosen = read_criterion(self.work.criterion)

        def compare(judge: Any, rows: Sequence[Row]) -> list[Score]:
            return pairwise(judge, chosen, rows)

        return self._add(f"pairwise_{chosen.name}", compare, (0, 1), best="a")

    def _add(
        self,
        name: str,
        score: Callable[[Any, Sequence[Row]], list[Score]],
        scale: Scale,
        best: str,
        low_is_good: bool = False,
    ) -> tuple[str, Scale]:
        """Score by the judge, or by the rows' replies, which have no constant answer."""
        if self.judge is None:
            of_rows = (score(StoredJudge(row), [row]) for row in self.rows)
            self.found.take(self.rows, [one for scores in of_rows for one in scores])
            self.found.random[name] = sum(scale) / 2
        else:
            self.found.add(self.rows, partial(score, self.judge), scale, best, low_is_good)
        return name, scale


def _spent(judge: EndpointJudge | None) -> dict[str, Any]:
    if judge is None:
        return {"calls": 0, "reused": 0, "cost": 0.0, "spent": 0.0}
    spent = {"cost": judge.cost, "spent": judge.spending.total}
    return {"calls": judge.calls, "reused": judge.reused, **spent}


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
