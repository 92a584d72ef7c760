"""A task's requests put to a candidate, and its answers graded by the task's metrics.

A row whose answer never came is unscored, with a reason. Log-probabilities that are missing, and
choices that are all equally likely in every row, say nothing of a model: they are an error.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.errors import BadInput
from tasks.evaluation.exams.candidates import Candidate, Likelihood, Progress
from tasks.evaluation.exams.grading import Graded, failed, refuse_ties
from tasks.evaluation.exams.harness.filters import filtered
from tasks.evaluation.exams.harness.metrics import (
    METRICS,
    ONE_GOLD,
    SHARES,
    choice_grades,
    column,
    exact_match,
    rolling_grades,
)
from tasks.evaluation.exams.harness.requests import Asked
from tasks.evaluation.exams.harness.task import Metric, Task
from tasks.evaluation.exams.harness.templates import Writer
from tasks.evaluation.judging.questions import Unscored
from tasks.evaluation.overlap.scores import Column

Grades = dict[str, Any]
"""What one row got, by the name of the figure."""


def grade_task(
    task: Task, rows: Sequence[Asked], candidate: Candidate, progress: Progress
) -> Graded:
    """Put every request to the candidate and grade the rows. Raises BadInput for a row whose target
    is none of its choices, and where nothing was said by which a model could be judged.
    """
    columns = frozenset(rows[0].document.row)
    writer = Writer(task, columns)
    if task.output_type == "generate_until":
        graded = list(_written(task, writer, rows, candidate, progress))
    elif task.output_type == "loglikelihood_rolling":
        texts = [row.requests[0][0] for row in rows]
        found = candidate.loglikelihood_rolling(texts, progress)
        graded = [_rolled(one, text) for one, text in zip(found, texts, strict=True)]
    else:
        graded = list(_likelihoods(task, writer, rows, candidate, progress))
    return _put_together(task, graded, _guesses(task, writer, rows))


def _likelihoods(
    task: Task, writer: Writer, rows: Sequence[Asked], candidate: Candidate, progress: Progress
) -> Iterator[tuple[Grades, Grades | None]]:
    """What a row shows, and its grades, of tasks whose answers have likelihoods."""
    pairs = [pair for row in rows for pair in row.requests]
    answers = iter(candidate.loglikelihood(pairs, progress))
    told = [[next(answers) for _ in row.requests] for row in rows]
    choosing = task.output_type == "multiple_choice"
    if choosing:
        scores = [_nats(one) for one in told]
        refuse_ties([row for row in scores if row is not None])
    for row, found in zip(rows, told, strict=True):
        if lost := next((one for one in found if isinstance(one, Unscored)), None):
            yield failed(lost), None
            continue
        known = [one for one in found if isinstance(one, Likelihood)]
        yield (_chosen if choosing else _likely)(task, writer, row, known)


def _nats(found: Sequence[Likelihood | Unscored]) -> list[float] | None:
    known = [one.nats for one in found if isinstance(one, Likelihood)]
    return known if len(known) == len(found) else None


def _chosen(
    task: Task, writer: Writer, row: Asked, found: Sequence[Likelihood]
) -> tuple[Grades, Grades]:
    """What a row with choices shows, and its grades by the task's metrics."""
    choices = writer.choices(row.document.row)
    gold = _gold(task, writer, row, choices)
    nats = [one.nats for one in found]
    alone = nats[len(choices) :] or None
    grades = choice_grades(
        nats[: len(choices)], [one.greedy for one in found], choices, gold, alone
    )
    best = max(range(len(choices)), key=nats.__getitem__)
    shown = {"answer": choices[best], "right": best in gold, "nats": nats}
    return shown, {metric.metric: grades[metric.metric] for metric in task.metrics}


def _gold(task: Task, writer: Writer, row: Asked, choices: Sequence[str]) -> list[int]:
    """The numbers of the right choices. Raises BadInput for one that is none."""
    text = writer.text(row.document.row)
    found = text if isinstance(text, int) else writer.target(row.document.row)
    named = found if isinstance(found, list) else [found]
    gold = [choices.index(one) if one in choices else one for one in named]
    place = f"task {task.task}, {row.document.file}, row {row.document.line}"
    for one in gold or [None]:
        if not isinstance(one, int) or not 0 <= one < len(choices):
            raise BadInput(f"{place}: the target {found!r:.60} is none of {len(choices)} choices")
    if len(gold) > 1 and (single := [m.metric for m in task.metrics if m.metric in ONE_GOLD]):
        raise BadInput(f"{place}: {len(gold)} choices are right; {single[0]} is of rows with one")
    return [int(one) for one in gold]


def _likely(
    task: Task, writer: Writer, row: Asked, found: Sequence[Likelihood]
) -> tuple[Grades, Grades]:
    (one,) = found
    _check_known(one)
    grades = {"perplexity": one.nats, "acc": float(one.greedy)}
    shown = {"nats": one.nats, "tokens": one.tokens, "right": one.greedy}
    return shown, {metric.metric: grades[metric.metric] for metric in task.metrics}


def _rolled(found: Likelihood | Unscored, text: str) -> tuple[Grades, Grades | None]:
    if isinstance(found, Unscored):
        return failed(found), None
    _check_known(found)
    shown = {"nats": found.nats, "tokens": found.tokens, "bytes": len(text.encode())}
    return shown, rolling_grades(found.nats, text)


def _check_known(found: Likelihood) -> None:
    if not math.isfinite(found.nats):
        raise BadInput(f"a log-probability is {found.nats}: the model says nothing of this text")


def _written(
    task: Task, writer: Writer, rows: Sequence[Asked], candidate: Candidate, progress: Progress
) -> Iterator[tuple[Grades, Grades | None]]:
    """What a row shows, and its grades, of tasks whose answers are written. One greedy answer
    stands for all `repeats`, which would be like it.
    """
    prompts = [row.requests[0][0] for row in rows]
    answers = candidate.write(prompts, task.max_tokens, task.until, progress)
    for row, text in zip(rows, answers, strict=True):
        if isinstance(text, Unscored):
            yield failed(text), None
            continue
        targets = _targets(task, writer, row)
        shown, grades = {"answer": text}, Grades()
        for name, taken in _filtered(task, text, row):
            shown |= {f"answer/{name}": taken} if name else {"taken": taken}
            for metric in task.metrics:
                grades[_figure(metric.metric, name)] = _graded(metric, taken, targets)
        yield shown | {k: v for k, v in grades.items() if isinstance(v, float)}, grades


def _filtered(task: Task, text: str, row: Asked) -> Iterator[tuple[str, str]]:
    """What each filter takes of an answer, by its name where there are several."""
    filters = [(one.name, one.filter) for one in task.filter_list] or [("", [])]
    for name, steps in filters:
        try:
            taken = filtered(steps, [text] * task.repeats, row.document.row)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadInput(f"task {task.task}: filter {name!r}: {error}") from error
        yield (name if len(filters) > 1 else ""), "" if taken is None else str(taken)


def _figure(metric: str, name: str) -> str:
    return f"{metric}/{name}" if name else metric


def _targets(task: Task, writer: Writer, row: Asked) -> list[str]:
    target = writer.target(row.document.row)
    if task.doc_to_choice is not None and isinstance(target, int):
        target = writer.choice(writer.choices(row.document.row), target)
    found = target if isinstance(target, list) else [target]
    if not found:
        raise BadInput(f"task {task.task}, row {row.document.line}: doc_to_target is empty")
    return [str(one) for one in found]


def _graded(metric: Metric, said: str, targets: Sequence[str]) -> Any:
    if metric.metric != "exact_match":
        return said, targets
    return exact_match(
        said,
        targets,
        ignore_case=metric.ignore_case,
        ignore_punctuation=metric.ignore_punctuation,
        ignore_numbers=metric.ignore_numbers,
        regexes_to_ignore=metric.regexes_to_ignore,
    )


def _guesses(task: Task, writer: Writer, rows: Sequence[Asked]) -> dict[str, float]:
    """What a guess would have: of choices one at random, of answers always the commonest."""
    if task.output_type == "multiple_choice":
        chances = []
        for row in rows:
            choices = writer.choices(row.document.row)
            chances.append(len(set(_gold(task, writer, row, choices))) / len(choices))
        return dict.fromkeys(SHARES[:-1], sum(chances) / len(chances))
    if task.output_type == "generate_until":
        counts = Counter(one for row in rows for one in set(_targets(task, writer, row)))
        return {"exact_match": counts.most_common(1)[0][1] / len(rows)}
    return {}


def _put_together(
    task: Task, graded: Sequence[tuple[Grades, Grades | None]], guesses: Mapping[str, float]
) -> Graded:
    """A task's figures from what its rows show and their grades, None of an unscored row."""
    scored = [number for number, (_, grades) in enumerate(graded) if grades is not None]
    kept = [grades for _, grades in graded if grades is not None]
    figures: dict[str, Column] = {}
    for name in kept[0] if kept else ():
        metric = name.partition("/")[0]
        if any(metric == one.metric for one in task.metrics):
            figures[name] = column(metric, [grades[name] for grades in kept])
    first = task.metrics[0]
    told = first.higher_is_better
    higher = METRICS[first.metric].higher if told is None else told
    baselines = {
        name: guesses[name.partition("/")[0]]
        for name in figures
        if name.partition("/")[0] in guesses
    }
    shown = [{"reason": None, **one} for one, _ in graded]
    return Graded(shown, scored, figures, baselines, not higher)
