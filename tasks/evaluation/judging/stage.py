"""The judgement of a tuned model's answers: G-Eval and QAG, beside a constant answer's.

The judge is an OpenAI-compatible endpoint where the placement has its URL, else the tuned model
itself, in-process.
"""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import Outcome, stage
from cluster.store import Draft
from tasks.data.row_files import write_json_lines
from tasks.evaluation.judging.local import LocalJudge
from tasks.evaluation.judging.rows import read_rows
from tasks.evaluation.judging.settings import JudgeSettings

if TYPE_CHECKING:
    from tasks.evaluation.judging.questions import Judge

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


def check_judged(found: Outcome, settings: JudgeSettings) -> None:
    """Raise BadInput when more scores than allowed are missing."""
    reasons = {r: n for r, n in found.facts["unscored"].items() if r not in INAPPLICABLE}
    missing, total = sum(reasons.values()), found.facts["scores"]
    if missing > settings.max_unscored * total:
        said = found.facts.get("words", {})
        why = ", ".join(
            f"{r} {n}" + (f" ('{said[r]}')" if r in said else "") for r, n in reasons.items()
        )
        raise BadInput(
            f"{missing} of {total} scores are missing, {missing / total:.2%} ({why}), more "
            f"than evaluate.judge.max_unscored {settings.max_unscored:g} allows; what the judge "
            "did answer is kept: mend the cause and run again, or raise the share"
        )


@stage(version=5, gate=check_judged)
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
    evenly), `canaries`, `warnings`, `scores` (their number), `unscored` {reason: n}, their `words`,
    `mode`, `steps`, `calls`, `shortened` prompts, `cost`, `note`.
    Raises BadInput when too many rows are unscored: they are asked again, the others are kept.
    """
    from tasks.evaluation.judging.assessment import assess, words

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
        "words": words(found.scores),
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
        return LocalJudge.load(instruct.path)
    from tasks.evaluation.judging.client import endpoint_judge

    return endpoint_judge(settings.model, url, settings.samples, settings.max_tokens)
