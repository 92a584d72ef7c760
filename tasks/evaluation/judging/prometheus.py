"""Prometheus: a judge trained to write feedback and end it with `[RESULT] k`.

`absolute` rates one answer from 1 to 5 by a rubric; `relative` says which of two answers is better,
asked in both orders. The headings are those the model was trained on; a reference stands in the
prompt where the row has one, and nowhere else. A reply without one result is asked for again, then
unscored.

Source: Kim et al., Prometheus 2: an open source language model specialized in evaluating other
language models, 2024, appendix.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cluster.errors import BadInput
from tasks.evaluation.judging.criteria import Criterion
from tasks.evaluation.judging.questions import Judge, Question, Unscored
from tasks.evaluation.judging.replies import Reply, read_choice
from tasks.evaluation.judging.rows import Row, Score

RESULT = re.compile(
    r"\[(?i:RESULT)\]\W*(?:(?i:score|answer|response)\W*)?([1-5]|[AB])(?:\s*/\s*5)?\W*\Z"
)
MARKED = re.compile(r"\[(?i:RESULT)\]\W*(?:(?i:score|answer|response)\W*)?([1-5]|[AB])\b(?!\.\d)")
LEVELS = (
    "The answer fails the criterion throughout.",
    "The answer fails the criterion in most of what matters.",
    "The answer meets the criterion in part.",
    "The answer meets the criterion but for small lapses.",
    "The answer meets the criterion fully.",
)


@dataclass(frozen=True)
class Rubric:
    """What is judged, and what each score from 1 to 5 stands for."""

    criterion: str
    levels: tuple[str, ...] = LEVELS

    @classmethod
    def of(cls, criterion: Criterion) -> "Rubric":
        """A criterion with levels in general words."""
        return cls(criterion.definition)

    @classmethod
    def read(cls, path: Path) -> "Rubric":
        """From JSON `{"criteria": text, "score1_description": text, ...}`. BadInput names a gap."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            levels = tuple(str(fields[f"score{k}_description"]) for k in range(1, 6))
            return cls(str(fields["criteria"]), levels)
        except (OSError, ValueError) as error:
            raise BadInput(f"rubric {path} cannot be read: {error}") from error
        except (KeyError, TypeError) as missing:
            raise BadInput(f"rubric {path} has no {missing}") from missing


def absolute(judge: Judge, rubric: Rubric, rows: Sequence[Row], samples: int = 1) -> list[Score]:
    """Per row the mean of `samples` ratings, 1-5."""
    prompts = [_absolute_prompt(row, rubric) for row in rows]
    ratings = [_results(judge, prompts, "12345", i * (judge.repeats + 1)) for i in range(samples)]
    return [
        _rating(row, [of_sample[i] for of_sample in ratings], samples) for i, row in enumerate(rows)
    ]


def relative(judge: Judge, rubric: Rubric, rows: Sequence[Row]) -> list[Score]:
    """Per row 1 where the prediction is better than `other`, 0 where worse, .5 where the verdict
    turns with the order; `parts` are the verdicts in either order. A row without `other` is
    unscored.
    """
    pairs = [row for row in rows if row.other is not None]
    forth = _results(judge, [_relative_prompt(row, rubric, False) for row in pairs], "AB", 0)
    back = _results(judge, [_relative_prompt(row, rubric, True) for row in pairs], "AB", 0)
    found = {row.id: (f, b) for row, f, b in zip(pairs, forth, back, strict=True)}
    return [_preference(row, *found.get(row.id, (NO_OTHER, NO_OTHER))) for row in rows]


NO_OTHER = Unscored("no_other", "a comparison needs another answer in 'other'")


def read_result(feedback: str, allowed: str) -> str | Unscored:
    """The result at the very end of a feedback, else the only one in it, else the one answer that
    it gives in another form ("Overall score: 4").
    """
    feedback = feedback.rpartition("###Feedback:")[2]  # some repeat the prompt, and its scores
    if (found := RESULT.search(feedback.strip())) and found[1] in allowed:
        return found[1]
    marked = {result for result in MARKED.findall(feedback) if result in allowed}
    if len(marked) == 1:
        return marked.pop()
    read = read_choice(Reply(feedback), tuple(allowed.lower()))
    return read if isinstance(read, Unscored) else read.upper()


def _results(
    judge: Judge, prompts: Sequence[str], allowed: str, sample: int
) -> list[str | Unscored]:
    """The result of each prompt; those without one are asked again, as further samples."""
    found: dict[int, str | Unscored] = {}
    for again in range(judge.repeats + 1):
        lacking = [i for i in range(len(prompts)) if not isinstance(found.get(i), str)]
        if not lacking:
            break
        texts = judge.texts([prompts[i] for i in lacking], sample + again)
        for i, text in zip(lacking, texts, strict=True):
            found[i] = text if isinstance(text, Unscored) else read_result(text, allowed)
    return [found[i] for i in range(len(prompts))]


def _rating(row: Row, results: Sequence[str | Unscored], samples: int) -> Score:
    values = [float(r) for r in results if isinstance(r, str)]
    if not values:
        failure = next(r for r in results if isinstance(r, Unscored))
        return Score.missing(row, "prometheus", "absolute", failure)
    mean = sum(values) / len(values)
    if samples == 1:
        return Score(row.id, "prometheus", "absolute", mean, mode="single")
    return Score(
        row.id,
        "prometheus",
        "absolute",
        mean,
        spread=(sum((v - mean) ** 2 for v in values) / len(values)) ** 0.5,
        mode="samples",
        mass=len(values) / samples,
        ratings=tuple(values),
    )


def _preference(row: Row, forth: str | Unscored, back: str | Unscored) -> Score:
    for verdict in (forth, back):
        if isinstance(verdict, Unscored):
            return Score.missing(row, "prometheus", "relative", verdict)
    parts = (float(forth == "A"), float(back == "B"))
    return Score(row.id, "prometheus", "relative", sum(parts) / 2, mode="single", parts=parts)


def _absolute_prompt(row: Row, rubric: Rubric) -> str:
    levels = "\n".join(f"Score {k}: {text}" for k, text in enumerate(rubric.levels, 1))
    task = (
        "Below are an instruction, an answer to it and a rubric"
        + (", with a reference answer that deserves score 5. " if row.reference else ". ")
        + "Write feedback that judges the answer by the rubric alone, then a score from 1 to 5. "
        'End with exactly "[RESULT] " and the score.'
    )
    reference = (("Reference Answer (Score 5)", row.reference),) if row.reference else ()
    material = (
        ("The instruction to evaluate", row.input),
        ("Response to evaluate", row.prediction),
        *reference,
    )
    return _prompt(task, material, f"[{rubric.criterion}]\n{levels}")


def _relative_prompt(row: Row, rubric: Rubric, swapped: bool) -> str:
    task = (
        "Below are an instruction, two answers to it and a criterion. Write feedback that compares "
        'the answers by the criterion alone. End with exactly "[RESULT] A" or "[RESULT] B", the '
        "better one."
    )
    first, second = (row.other or "", row.prediction) if swapped else (row.prediction, row.other)
    reference = (("Reference Answer", row.reference),) if row.reference else ()
    material = (
        ("Instruction", row.input),
        ("Response A", first),
        ("Response B", second or ""),
        *reference,
    )
    return _prompt(task, material, rubric.criterion)


def _prompt(task: str, material: Sequence[tuple[str, str]], rubric: str) -> str:
    """The prompt under Prometheus's headings, what is judged between marks it cannot close."""
    question = Question(f"###Task Description:\n{task}", task, tuple(material), "", ())
    headed = question.text(heading="###{}:\n").rstrip()
    return f"{headed}\n\n###Score Rubrics:\n{rubric}\n\n###Feedback: "
