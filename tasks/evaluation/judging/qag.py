"""QAG: closed questions from one text, answered yes, no or idk from another.

    coverage    questions from the reference (or context), answered from the prediction
    alignment   questions from the prediction, answered from the reference (or context)
    min, mean   of the two, where both are there

Each is the share of its questions answered yes; idk is no yes. A question that gets no verdict is
asked once more; without one for every question the row is unscored: no failure counts as "no".
A judge that writes makes the questions; for the one in-process they follow a fixed pattern over
sentences and names: `Does the text say that "..."?`.

Source: Deutsch et al., Towards question-answering as an automatic metric for evaluating the content
quality of a summary, 2021, for the idea; the closed form as in current judge libraries.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from tasks.evaluation.judging.free_text import questions_in
from tasks.evaluation.judging.questions import Distribution, Judge, Question, Unscored, Verdict
from tasks.evaluation.judging.rows import Row, Score

PARTS = ("coverage", "alignment", "min", "mean")
CHOICES = ("yes", "no", "idk")
SENTENCE = re.compile(r"[^.!?\n]+[.!?]?")
NAME = re.compile(r"\b(?:\w+_\w+|[a-z]+[A-Z]\w*|[A-Z]\w+[A-Z]\w*|\w{7,})\b")
WRITE = (
    'Write {count} short questions about the text, numbered, each answered "yes" by the text and '
    "by nothing outside it."
)

Asked = list[str] | Unscored


@dataclass(frozen=True)
class Exam:
    """Questions and the text to answer them from."""

    questions: Asked
    source: str


def qag(judge: Judge, rows: Sequence[Row], questions: int = 3) -> list[dict[str, Score]]:
    """Per row a score, 0-1, for each of `PARTS`; `distribution` holds the shares of the verdicts.

    A row without reference and context is unscored as `no_context`.
    """
    truths = [row.reference or row.context for row in rows]
    asked_of_truth = _write(judge, truths, questions)
    asked_of_answer = _write(judge, [row.prediction for row in rows], questions)
    coverage = [
        Exam(asked, row.prediction) for asked, row in zip(asked_of_truth, rows, strict=True)
    ]
    alignment = [
        Exam(asked if truth else Unscored("no_context"), truth or "")
        for asked, truth in zip(asked_of_answer, truths, strict=True)
    ]
    covered = _mark(judge, rows, "coverage", coverage)
    aligned = _mark(judge, rows, "alignment", alignment)
    return [_parts(row, c, a) for row, c, a in zip(rows, covered, aligned, strict=True)]


def pattern_questions(text: str, count: int) -> list[str]:
    """Questions that `text` answers with yes: one per sentence, then one per name, in its order."""
    sentences = [s.strip(" .!?\t\"'") for s in SENTENCE.findall(text)]
    said = [f'Does the text say that "{s}"?' for s in sentences if len(s.split()) > 1]
    named = [f'Does the text mention "{n}"?' for n in dict.fromkeys(NAME.findall(text))]
    return list(islice(dict.fromkeys([*said, *named]), count))


def _write(judge: Judge, texts: Sequence[str | None], count: int) -> list[Asked]:
    """Questions from each text."""
    able = [text for text in texts if text and text.strip()]
    if judge.writes:
        replies = judge.texts([_writing(text, count) for text in able])
        written = [_questions(reply, count) for reply in replies]
    else:
        written = [pattern_questions(text, count) for text in able]
    by_text: Mapping[str | None, Asked] = dict(zip(able, written, strict=True))
    return [
        Unscored("no_context") if text is None else by_text.get(text) or Unscored("nothing_to_ask")
        for text in texts
    ]


def _questions(reply: str | Unscored, count: int) -> Asked:
    if isinstance(reply, Unscored):
        return reply
    found = questions_in(reply)[:count]
    return found or Unscored("no_questions", f"no questions in {reply[:80]!r}")


def _writing(text: str, count: int) -> str:
    task = WRITE.format(count=count)
    return Question(task, task, (("text", text),), "Only the questions:", ()).text()


def _mark(judge: Judge, rows: Sequence[Row], part: str, exams: Sequence[Exam]) -> list[Score]:
    """Answer all questions of all exams together, those without a verdict a second time."""
    ids = [
        (row.id, number)
        for row, exam in zip(rows, exams, strict=True)
        if not isinstance(exam.questions, Unscored)
        for number in range(len(exam.questions))
    ]
    exam_of = {row.id: exam for row, exam in zip(rows, exams, strict=True)}
    verdicts: dict[tuple[str, int], Verdict] = {}
    for again in (False, True)[: 1 + min(judge.repeats, 1)]:
        open_ids = [i for i in ids if not isinstance(verdicts.get(i), Distribution)]
        asked = [_question(exam_of[row], number, again) for row, number in open_ids]
        verdicts |= dict(zip(open_ids, judge.distributions(asked), strict=True))
    of_row: dict[str, list[Verdict]] = {row.id: [] for row in rows}
    for row_id, number in ids:
        of_row[row_id].append(verdicts[row_id, number])
    return [
        _score(row, part, exam.questions, of_row[row.id])
        for row, exam in zip(rows, exams, strict=True)
    ]


def _question(exam: Exam, number: int, again: bool) -> Question:
    assert not isinstance(exam.questions, Unscored)
    form = "Answer (yes, no or idk):"
    return Question(
        task="Answer the question from the text alone: yes, no, or idk where it does not say.",
        brief="Answer from the text: yes, no or idk.",
        material=(("text", exam.source), ("question", exam.questions[number])),
        form=f"One word only. {form}" if again else form,
        choices=CHOICES,
    )


def _score(row: Row, part: str, asked: Asked, verdicts: Sequence[Verdict]) -> Score:
    """The share of the questions answered yes; `spread` is the standard deviation of that share."""
    if isinstance(asked, Unscored):
        return Score.missing(row, "qag", part, asked)
    found = [v for v in verdicts if isinstance(v, Distribution)]
    if lost := [v for v in verdicts if isinstance(v, Unscored)]:
        return Score.missing(row, "qag", part, lost[0])
    shares = {c: sum(v.likeliest == c for v in found) / len(found) for c in CHOICES}
    chances = [v.probabilities["yes"] for v in found]
    variance = sum(p * (1 - p) for p in chances) / len(found) ** 2
    mode = found[0].mode
    return Score(
        row.id,
        "qag",
        part,
        score=shares["yes"],
        spread=None if mode == "single" else variance**0.5,
        mode=mode,
        distribution=shares,
    )


def _parts(row: Row, coverage: Score, alignment: Score) -> dict[str, Score]:
    parts = {"coverage": coverage, "alignment": alignment}
    for name in ("min", "mean"):
        if coverage.score is None or alignment.score is None:
            lost = coverage if coverage.score is None else alignment
            parts[name] = replace(lost, criterion=name)
            continue
        both = (coverage.score, alignment.score)
        value = min(both) if name == "min" else sum(both) / 2
        parts[name] = Score(row.id, "qag", name, score=value, mode=coverage.mode)
    return parts
