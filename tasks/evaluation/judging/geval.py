"""G-Eval: rate an answer by a criterion, its evaluation steps, and a form to fill in.

The score is the mean of the judge's distribution over the allowed ratings, its spread the standard
deviation. The rating is asked for first: no sampled explanation stands before it. An explanation
may be asked for behind it, which changes nothing in the rating's own probabilities.

Source: Liu et al., G-Eval: NLG evaluation using GPT-4 with better human alignment, 2023, section 2.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cluster.errors import BadInput
from tasks.evaluation.judging.criteria import Criterion
from tasks.evaluation.judging.questions import (
    ANSWER_TOKENS,
    Distribution,
    Judge,
    Question,
    Unscored,
    Verdict,
    moments,
)
from tasks.evaluation.judging.replies import Reply, frequencies, read_choice, read_published
from tasks.evaluation.judging.rows import Row, Score

EXPLAINED_TOKENS = 200
Reading = Literal["allowed", "published"]
"""How stored replies are read: as those of a judge, or as the published code reads them."""


@dataclass(frozen=True)
class Form:
    """How a rating is asked for: the allowed range, the steps, and whether to explain it."""

    scale: tuple[int, int]
    steps: tuple[str, ...] = ()
    explain: bool = False

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed ratings."""
        return tuple(str(rating) for rating in range(self.scale[0], self.scale[1] + 1))


def geval(judge: Judge, criterion: Criterion, form: Form, rows: Sequence[Row]) -> list[Score]:
    """One score per row, on the form's scale, both ends and all integers between allowed.

    A row without the material its criterion needs is unscored as `no_context`.
    """
    able = [row for row in rows if not criterion.needs or row.material(criterion.needs)]
    questions = [_question(row, criterion, form) for row in able]
    answered = dict(zip((r.id for r in able), judge.distributions(questions), strict=True))
    lacking = Unscored("no_context", f"{criterion.name} needs {' or '.join(criterion.needs)}")
    return [_score(row, criterion, answered.get(row.id, lacking)) for row in rows]


def read_stored(
    criterion: Criterion, form: Form, rows: Sequence[Row], reading: Reading = "allowed"
) -> list[Score]:
    """G-Eval's scores from the `replies` that rows bring, as some judge gave them: read by the
    allowed answers, or with the faults of the published reading, to repeat published tables.
    """
    return [_stored(row, criterion, form, reading) for row in rows]


def parse_scale(text: str) -> tuple[int, int]:
    """`1-5` or `0-1` as (low, high). Raises BadInput for anything else."""
    match = re.fullmatch(r"\s*(\d+)\s*-\s*(\d+)\s*", text)
    if not match or int(match[1]) >= int(match[2]) or int(match[2]) - int(match[1]) > 100:
        raise BadInput(f"scale '{text}': write two whole numbers, low-high, e.g. 1-5 or 0-1")
    return int(match[1]), int(match[2])


def _question(row: Row, criterion: Criterion, form: Form) -> Question:
    low, high = form.scale
    numbered = "\n".join(f"{i}. {step}" for i, step in enumerate(form.steps, 1))
    task = (
        f"Rate an answer by one criterion.\n\nCriterion: {criterion.definition}"
        f"\n\nScale: whole numbers from {low} (worst) to {high} (best)."
    )
    wanted = "the number first, below it one sentence why" if form.explain else "the number only"
    return Question(
        task=f"{task}\n\nEvaluation steps:\n{numbered}" if numbered else task,
        brief=f"Rate the answer's {criterion.name} from {low} to {high}.",
        material=row.material(criterion.material),
        form=f"Evaluation form, {wanted}:\n{criterion.name.capitalize()}:",
        choices=form.choices,
        tokens=EXPLAINED_TOKENS if form.explain else ANSWER_TOKENS,
    )


def _stored(row: Row, criterion: Criterion, form: Form, reading: Reading) -> Score:
    if not row.replies:
        return Score.missing(row, "geval", criterion.name, Unscored("no_replies"))
    if reading == "allowed":
        read = [read_choice(Reply(text), form.choices) for text in row.replies]
        return _score(row, criterion, frequencies(read, form.choices))
    ratings = tuple(map(read_published, row.replies))
    mean = sum(ratings) / len(ratings)
    spread = (sum((rating - mean) ** 2 for rating in ratings) / len(ratings)) ** 0.5
    return Score(row.id, "geval", criterion.name, mean, spread, "samples", ratings=ratings)


def _score(row: Row, criterion: Criterion, verdict: Verdict) -> Score:
    if isinstance(verdict, Unscored):
        return Score.missing(row, "geval", criterion.name, verdict)
    assert isinstance(verdict, Distribution)
    mean, spread = moments(verdict.probabilities)
    ratings = tuple(map(float, verdict.answers))
    if ratings:  # from whole numbers, so that equal means are equal, not but for rounding
        mean = sum(ratings) / len(ratings)
    return Score(
        row.id,
        "geval",
        criterion.name,
        score=mean,
        spread=None if verdict.mode == "single" else spread,
        mode=verdict.mode,
        distribution=verdict.probabilities,
        mass=verdict.mass,
        ratings=ratings or None,
        explanation=verdict.words,
    )
