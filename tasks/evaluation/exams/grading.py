"""Answers graded: each row with what was answered, and the figures of those that can be graded.

A row whose answer never came is unscored, with a reason: it counts as neither right nor wrong.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.errors import BadInput
from tasks.evaluation.exams.candidates import Candidate, Progress
from tasks.evaluation.exams.definition import Exam, Row, render
from tasks.evaluation.exams.sandbox import check_sandbox, parses, run_code
from tasks.evaluation.judging.questions import Unscored
from tasks.evaluation.overlap.scores import Column, columns
from tasks.evaluation.overlap.tokens import squad_form

Marks = list[dict[str, Any]]


@dataclass(frozen=True)
class Graded:
    """Every row's grade; the figures of the `scored` ones, by their numbers, the first the exam's
    own; what a guess or a constant answer would have, where that is known.
    """

    grades: Marks
    scored: list[int]
    figures: dict[str, Column]
    baselines: dict[str, float]
    lower_is_better: bool = False


def grade(
    exam: Exam, rows: Sequence[Row], shots: str, candidate: Candidate, progress: Progress
) -> Graded:
    """Put every row to the candidate and grade it. Raises BadInput naming a row without a field."""
    prompts = [shots + render(exam, row) for row in rows]
    return KINDS[exam.kind](exam, rows, prompts, candidate, progress)


def _choice(
    exam: Exam, rows: Sequence[Row], prompts: list[str], candidate: Candidate, progress: Progress
) -> Graded:
    """The choice with the highest log-probability per byte, and of the whole, as lm-eval's."""
    space = "" if exam.prompt[-1:].isspace() else " "
    texts = [[f"{space}{choice}" for choice in row["choices"]] for row in rows]
    found = candidate.choose(prompts, texts, progress)
    refuse_ties([nats for nats in found if not isinstance(nats, Unscored)])
    grades, scored = [], []
    for number, (row, choices, nats) in enumerate(zip(rows, texts, found, strict=True)):
        if isinstance(nats, Unscored):
            grades.append(failed(nats))
            continue
        scored.append(number)
        # Letters are of one length: an endpoint's choice is the same either way.
        sizes = [len(c.encode()) if candidate.manner == "likelihood" else 1 for c in choices]
        fair = _highest([x / size for x, size in zip(nats, sizes, strict=True)])
        grades.append(
            {
                "answer": row["choices"][fair],
                "right": fair == row["answer"],
                "right_unnormalised": _highest(nats) == row["answer"],
                "nats": nats,
                "reason": None,
            }
        )
    names = {"accuracy": "right", "accuracy_unnormalised": "right_unnormalised"}
    guess = float(np.mean([1 / len(row["choices"]) for row in rows]))
    return _shares(grades, scored, names, dict.fromkeys(names, guess))


def _exact(
    exam: Exam, rows: Sequence[Row], prompts: list[str], candidate: Candidate, progress: Progress
) -> Graded:
    """Whether the answer, or what the pattern finds in it, is one of the row's `answers`; the
    baseline gives the commonest of them always.
    """
    accepted = [{_form(exam, str(answer)) for answer in row["answers"]} for row in rows]
    grades, scored = [], []
    answers = candidate.write(prompts, exam.max_tokens, exam.stop, progress)
    for number, text in enumerate(answers):
        if isinstance(text, Unscored):
            grades.append(failed(text))
            continue
        scored.append(number)
        given = _extracted(exam, text)
        right = given is not None and _form(exam, given) in accepted[number]
        reason = None if given is not None else "the pattern is not in it"
        grades.append({"answer": text, "right": right, "reason": reason})
    counts = Counter(answer for row in accepted for answer in row)
    constant = counts.most_common(1)[0][1] / len(rows)
    return _shares(grades, scored, {"accuracy": "right"}, {"accuracy": constant})


def _code(
    exam: Exam, rows: Sequence[Row], prompts: list[str], candidate: Candidate, progress: Progress
) -> Graded:
    """Whether the tests run to their end behind the answer, and whether it is Python at all."""
    grades, scored = [], []
    check_sandbox()
    answers = candidate.write(prompts, exam.max_tokens, exam.stop, progress)
    for number, (row, text) in enumerate(zip(rows, answers, strict=True)):
        if isinstance(text, Unscored):
            grades.append(failed(text))
            continue
        scored.append(number)
        code = row.get("head", "") + text
        reason, whole = run_code(code, row["tests"]), parses(code) is None
        grades.append({"answer": text, "right": reason is None, "parses": whole, "reason": reason})
    return _shares(grades, scored, {"accuracy": "right", "parses": "parses"}, {})


def _overlap(
    exam: Exam, rows: Sequence[Row], prompts: list[str], candidate: Candidate, progress: Progress
) -> Graded:
    """The exam's overlap metric; the baseline gives the first row's reference always."""
    answers = candidate.write(prompts, exam.max_tokens, exam.stop, progress)
    scored = [number for number, text in enumerate(answers) if isinstance(text, str)]
    texts = [str(answers[number]).strip() for number in scored]
    references = [rows[number]["references"] for number in scored]
    figures = columns(texts, references, [exam.metric]) if scored else {}
    values = dict(zip(scored, figures[exam.metric].rows if scored else [], strict=True))
    grades = [
        failed(text)
        if isinstance(text, Unscored)
        else {"answer": text, exam.metric: values[number], "reason": None}
        for number, text in enumerate(answers)
    ]
    constant = [references[0][0]] * len(references) if scored else []
    same = columns(constant, references, [exam.metric])[exam.metric].figure() if scored else 0.0
    return Graded(grades, scored, figures, {exam.metric: same})


def _perplexity(
    exam: Exam, rows: Sequence[Row], prompts: list[str], candidate: Candidate, progress: Progress
) -> Graded:
    """Bits per byte, ends of documents included, and perplexity per token."""
    found = candidate.read(prompts, progress)
    sums = [
        (-likelihood.nats, float(likelihood.tokens), float(max(1, len(text.encode()))))
        for likelihood, text in zip(found, prompts, strict=True)
    ]

    def bits(total: Sequence[float]) -> float:
        return total[0] / math.log(2) / total[2]

    def perplexity(total: Sequence[float]) -> float:
        return math.exp(min(total[0] / total[1], 700.0))

    figures = {
        name: Column([of(row) for row in sums], name, np.array(sums), of)
        for name, of in (("bits_per_byte", bits), ("perplexity", perplexity))
    }
    grades = [
        {"nats": nats, "tokens": tokens, "bytes": size, "reason": None}
        for nats, tokens, size in sums
    ]
    # Bytes guessed at random take eight bits each.
    return Graded(grades, [*range(len(rows))], figures, {"bits_per_byte": 8.0}, True)


Kind = Callable[[Exam, Sequence[Row], list[str], Candidate, Progress], Graded]
KINDS: dict[str, Kind] = {
    "choice": _choice,
    "exact": _exact,
    "code": _code,
    "overlap": _overlap,
    "perplexity": _perplexity,
}


def _shares(
    grades: Marks, scored: list[int], names: dict[str, str], baselines: dict[str, float]
) -> Graded:
    """Shares of the scored rows of which a grade is true."""
    figures = {
        name: Column([float(grades[n][field]) for n in scored], f"share of {field}")
        for name, field in names.items()
    }
    return Graded(grades, scored, figures if scored else {}, baselines)


def failed(why: Unscored) -> dict[str, Any]:
    """The grade of a row whose answer never came."""
    return {"answer": None, "right": None, "reason": why.reason, "detail": why.detail}


def refuse_ties(rows: Sequence[Sequence[float]]) -> None:
    """Raise BadInput where log-probabilities are missing, or say nothing: where in every row all
    choices are equally likely. Taken as answers these would be the first choices, or chance.
    """
    if any(math.isnan(one) for row in rows for one in row):
        raise BadInput("a choice has no log-probability (NaN): the model says nothing of it")
    several = [row for row in rows if len(row) > 1]
    if several and all(len(set(row)) == 1 for row in several):
        raise BadInput(
            f"all choices are equally likely, in each of {len(several)} rows: the answers of this "
            "model say nothing"
        )


def _highest(values: Sequence[float]) -> int:
    return max(range(len(values)), key=values.__getitem__)


def _extracted(exam: Exam, text: str) -> str | None:
    if exam.pattern is None:
        return text
    found = re.search(exam.pattern, text)
    return None if found is None else found.group(1) if found.re.groups else found.group()


def _form(exam: Exam, text: str) -> str:
    """What is compared: the text without white space at its ends, or SQuAD's normal form."""
    return squad_form(text) if exam.normalise else text.strip()
