"""The judgement of a tuned model's answers: G-Eval and QAG, beside a constant answer's.

The judge is an OpenAI-compatible endpoint where the placement has its URL, else the tuned model
itself, in-process.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, model_validator

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.home import subfolder
from cluster.settings import Gate, Settings
from cluster.stage import Outcome, stage
from cluster.store import Draft
from tasks.json_lines import write_json_lines
from tasks.scoring.judging.criteria import Criterion, named

if TYPE_CHECKING:
    from tasks.scoring.judging.verdicts import Judge

LOCAL_NOTE = (
    "The judge is the small model of this run itself. It only exercises the machinery: its scores "
    "are not a measure of quality. It is shown a short form: the criterion's name without the "
    "evaluation steps, and texts cut to its context. Compare its scores with the "
    "constant answer's; set placement.judge_url and evaluate.judge.model for a real judge."
)
ENDPOINT_NOTE = (
    "Scores of a language model, not of people: read them beside the constant answer's, and check "
    "a sample against people with `headrace agree`."
)
# An answer too short to ask about, a row without a text to check against: no fault of the judge.
INAPPLICABLE = {"nothing_to_ask", "no_context"}


class JudgeSettings(Settings):
    """By what the answers are judged, and by whom."""

    model: str | None = Field(
        None, description="the endpoint's name of the judge; null judges with the tuned model"
    )
    criteria: tuple[str | Criterion, ...] = Field(
        ("correctness", "fluency", "relevance"),
        description="of G-Eval: shipped names, questions in words, or {name, definition, scale}",
    )
    scale: tuple[int, int] = Field(
        (1, 5), description="lowest and highest rating of G-Eval, where a criterion has no own"
    )
    rows: int = Field(16, ge=1, description="answers to judge, from the first on")
    qag: bool = Field(True, description="whether to ask closed questions too")
    questions: int = Field(3, ge=1, description="closed questions to each text")
    samples: int = Field(
        1, ge=1, description="replies per rating where the endpoint has no log-probabilities"
    )
    max_unscored: Annotated[float, Gate()] = Field(
        0.5, ge=0, le=1, description="share of unscored rows above which the stage fails"
    )

    @model_validator(mode="after")
    def _known(self) -> "JudgeSettings":
        names = [criterion.name for criterion in self.chosen()]
        if len(set(names)) < len(names):
            raise ValueError(f"criteria {names}: scores are kept by name; give each its own")
        if self.scale[0] >= self.scale[1]:
            raise ValueError(f"scale {self.scale}: the lowest rating comes first")
        return self

    def chosen(self) -> "list[Criterion]":
        """The criteria in full. Raises BadInput for a mistyped name."""
        return [c if isinstance(c, Criterion) else named(c) for c in self.criteria]


def check_judged(found: Outcome, settings: JudgeSettings) -> None:
    """Raise BadInput when more scores than allowed are missing."""
    reasons = {r: n for r, n in found.facts["unscored"].items() if r not in INAPPLICABLE}
    missing, total = sum(reasons.values()), found.facts["scores"]
    if missing > settings.max_unscored * total:
        raise BadInput(
            f"{missing} of {total} scores are missing, {missing / total:.2%} ({reasons}), more "
            f"than evaluate.judge.max_unscored {settings.max_unscored:g} allows; what the judge "
            "did answer is kept: mend the cause and run again, or raise the share"
        )


@stage(version=2, gate=check_judged)
def judge(
    answers: Artifact,
    instruct: Artifact,
    settings: JudgeSettings,
    draft: Draft,
    steps: Sequence[Artifact] = (),
) -> None:
    """Judge the answers and, to compare, a constant answer to the same rows and canaries. G-Eval
    rates by `steps`, artifacts of the stage of that name, where a criterion has any.

    Writes `judge.jsonl`, rows `{id, metric, criterion, score, spread, mode, reason, distribution,
    ..}`. Metrics: the means, `judge_<metric>_<criterion>`. Facts: `means`, 95 % `intervals` over
    documents, mean `spreads`, `baselines` (the constant answer's), `random` (of verdicts drawn
    evenly), `canaries`, `warnings`, `scores` (their number), `unscored` {reason: n},
    `mode`, `steps`, `calls`, `shortened` prompts, `cost`, `note`.
    Raises BadInput when too many rows are unscored: they are asked again, the others are kept.
    """
    from tasks.scoring.judging.assessment import assess
    from tasks.scoring.judging.rows import read_rows

    rows = read_rows(answers.file("answers.jsonl"))[: settings.rows]
    asked = _judge(instruct, settings, draft.placement.judge_url)
    found = assess(asked, rows, settings, steps, draft.progress)
    write_json_lines(draft.path / "judge.jsonl", map(vars, found.scores))
    summaries = {name: found.summary(name) for name in found.names()}
    known = {name: s for name, s in summaries.items() if s["mean"] is not None}
    draft.rows = len(rows)
    draft.metrics = {f"judge_{name}": s["mean"] for name, s in known.items()}
    draft.facts = {
        "means": {name: s["mean"] for name, s in summaries.items()},
        "intervals": {name: s["interval"] for name, s in summaries.items()},
        "spreads": {name: s["spread"] for name, s in summaries.items()},
        "baselines": found.baselines,
        "random": found.random,
        "canaries": found.canaries,
        "warnings": found.warnings(),
        "scores": len(found.scores),
        "unscored": dict(Counter(s.reason for s in found.scores if s.reason)),
        "mode": dict(Counter(s.mode for s in found.scores if s.mode)),
        "steps": found.steps,
        "judge": asked.name,
        "calls": asked.calls,
        "shortened": asked.shortened,
        "cost": asked.cost,
        "note": LOCAL_NOTE if settings.model is None else ENDPOINT_NOTE,
    }


def _judge(instruct: Artifact, settings: JudgeSettings, url: str | None) -> "Judge":
    if url is None and settings.model is None:
        from tasks.scoring.judging.local import LocalJudge

        return LocalJudge.load(instruct.path)
    return endpoint_judge(settings.model, url, settings.samples)


def endpoint_judge(model: str | None, url: str | None, samples: int = 1) -> "Judge":
    """The judge behind an endpoint. Raises BadInput when one of name and address is missing."""
    if url is None or model is None:
        given, missing = ("evaluate.judge.model", "placement.judge_url")
        if url is not None:
            given, missing = missing, given
        raise BadInput(f"{given} is set and {missing} is not; set both, or neither to judge here")
    from tasks.scoring.judging.client import EndpointJudge
    from tasks.scoring.judging.endpoint import Endpoint
    from tasks.scoring.judging.reply_store import ReplyStore

    endpoint = Endpoint(url, model, samples=samples)
    return EndpointJudge(endpoint, ReplyStore(subfolder("judge") / "replies.sqlite"))
