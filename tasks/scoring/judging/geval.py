"""G-Eval: rate an answer by a criterion, its evaluation steps, and a form to fill in.

The score is the mean of the judge's distribution over the allowed ratings, its spread the standard
deviation. The rating is asked for first and alone: no sampled explanation stands before it.

Source: Liu et al., G-Eval: NLG evaluation using GPT-4 with better human alignment, 2023, section 2.
"""

import re
from collections.abc import Sequence

from cluster.errors import BadInput
from tasks.scoring.judging.criteria import Criterion
from tasks.scoring.judging.rows import Row, Score
from tasks.scoring.judging.verdicts import Distribution, Judge, Question, Unscored, Verdict, moments

NUMBERED = re.compile(r"^\s*(?:\d+[.)]|[-*])\s+(.+)$", re.MULTILINE)
STEPS_PROMPT = """\
You will be given answers to rate by one criterion on a scale from {low} to {high}.

Criterion: {definition}

Write 3 or 4 short numbered steps that lead from reading an answer to its rating. Only the steps."""


def geval(
    judge: Judge,
    rows: Sequence[Row],
    criterion: Criterion,
    scale: tuple[int, int],
    steps: Sequence[str],
) -> list[Score]:
    """One score per row, on `scale`, both ends and all integers between allowed.

    A row without the material its criterion needs is unscored as `no_context`.
    """
    able = [row for row in rows if not criterion.needs or row.material(criterion.needs)]
    questions = [_question(row, criterion, scale, steps) for row in able]
    answered = dict(zip((r.id for r in able), judge.distributions(questions), strict=True))
    lacking = Unscored("no_context", f"{criterion.name} needs {' or '.join(criterion.needs)}")
    return [_score(row, criterion, answered.get(row.id, lacking)) for row in rows]


def evaluation_steps(
    judge: Judge, criterion: Criterion, scale: tuple[int, int]
) -> tuple[tuple[str, ...], str]:
    """The steps to rate by, and where they are from.

    `generated`: written by the judge, once: its reply is kept and serves all later runs; `shipped`
    where it cannot write or writes nothing usable; `none` for an own criterion without steps.
    """
    low, high = scale
    prompt = STEPS_PROMPT.format(low=low, high=high, definition=criterion.definition)
    text = judge.texts([prompt])[0] if judge.writes else ""
    written = tuple(NUMBERED.findall(text)) if isinstance(text, str) else ()
    if len(written) >= 2:
        return written, "generated"
    return criterion.steps, "shipped" if criterion.steps else "none"


def parse_scale(text: str) -> tuple[int, int]:
    """`1-5` or `0-1` as (low, high). Raises BadInput for anything else."""
    match = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", text)
    if not match or int(match[1]) >= int(match[2]) or int(match[2]) - int(match[1]) > 100:
        raise BadInput(f"scale '{text}': write two whole numbers, low-high, e.g. 1-5 or 0-1")
    return int(match[1]), int(match[2])


def _question(
    row: Row, criterion: Criterion, scale: tuple[int, int], steps: Sequence[str]
) -> Question:
    low, high = scale
    numbered = "\n".join(f"{i}. {step}" for i, step in enumerate(steps, 1))
    task = (
        f"Rate an answer by one criterion.\n\nCriterion: {criterion.definition}"
        f"\n\nScale: whole numbers from {low} (worst) to {high} (best)."
    )
    return Question(
        task=f"{task}\n\nEvaluation steps:\n{numbered}" if numbered else task,
        brief=f"Rate the answer's {criterion.name} from {low} to {high}.",
        material=row.material(criterion.material),
        form=f"Evaluation form, the number only:\n{criterion.name.capitalize()}:",
        choices=tuple(str(rating) for rating in range(low, high + 1)),
    )


def _score(row: Row, criterion: Criterion, verdict: Verdict) -> Score:
    if isinstance(verdict, Unscored):
        return Score.missing(row, "geval", criterion.name, verdict)
    assert isinstance(verdict, Distribution)
    mean, spread = moments(verdict.probabilities)
    return Score(
        row.id,
        "geval",
        criterion.name,
        score=mean,
        spread=None if verdict.mode == "single" else spread,
        mode=verdict.mode,
        distribution=verdict.probabilities,
    )
