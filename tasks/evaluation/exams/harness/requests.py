"""What a model is asked: the requests of a task, letter for letter those of lm-evaluation-harness.

    asked(task)    # every row with its requests

Source: lm-evaluation-harness 0.4.13, `ConfigurableTask.fewshot_context`, `build_qa_turn` and
`construct_requests`, and its samplers; examples are drawn with its seed.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from cluster.errors import BadInput
from tasks.evaluation.exams.harness.documents import Document, Row, read_split
from tasks.evaluation.exams.harness.task import Task
from tasks.evaluation.exams.harness.templates import Writer

Value = TypeVar("Value")
SEED = 1234
"""Of the draws of examples: the third number of lm-evaluation-harness's default `--seed`."""


class Asked(NamedTuple):
    """A row and what is asked of it: a pair of texts for each choice (or one), a text to be read,
    or a prompt with how its answer is written.
    """

    document: Document
    requests: list[tuple[Any, ...]]


def asked(task: Task) -> list[Asked]:
    """All rows of a task, in order. Raises BadInput for rows or templates that do not fit."""
    split = read_split(task, str(task.asked_split))
    writer = Writer(task, split.columns)
    examples = _Examples(task, writer, split.rows)
    return [
        Asked(one, _requests(task, writer, examples, one.row, f"{one.file}, row {one.line}"))
        for one in split.documents
    ]


def _requests(
    task: Task, writer: Writer, examples: "_Examples", row: Row, place: str
) -> list[tuple[Any, ...]]:
    """The requests of one row, as `Asked` has them by the task's output type; behind those of
    `acc_mutual_info` the choices once more, with nothing before them.
    """
    if task.output_type == "loglikelihood_rolling":
        return [(_text(task, writer.target(row), place),)]
    head = writer.field(row, task.description) + examples.before(row)
    if task.output_type == "generate_until":
        return [(head + _question(task, writer, row, place), task.generation)]
    if task.output_type == "loglikelihood":
        follows = _text(task, writer.target(row), place)
        return [(head + _question(task, writer, row, place), follows)]
    choices, delimiter = writer.choices(row), task.target_delimiter
    alone = [("", delimiter + choice) for choice in choices]
    if isinstance(writer.text(row), int):  # the choices are questions with one answer
        follows = delimiter + str(writer.target(row))
        pairs = [(head + _turn(task, choice, writer, row), follows) for choice in choices]
    else:
        context = head + _question(task, writer, row, place)
        pairs = [(context, follows) for _, follows in alone]
    mutual = any(one.metric == "acc_mutual_info" for one in task.metrics)
    return [*pairs, *(alone if mutual else [])]


def _question(task: Task, writer: Writer, row: Row, place: str) -> str:
    return _turn(task, _text(task, writer.text(row), place), writer, row, task.target_delimiter)


def _turn(task: Task, question: str, writer: Writer, row: Row, delimiter: str = "") -> str:
    """A question with what its answer is made to begin with."""
    prefix = writer.field(row, task.gen_prefix)
    return question + (delimiter if prefix and _bare(question, prefix) else "") + prefix


def _bare(left: str, right: str) -> bool:
    """Whether no white space parts two texts, of which the first is not empty."""
    return bool(left) and not (left[-1].isspace() or right[:1].isspace())


def _text(task: Task, found: Any, place: str) -> str:
    if isinstance(found, str):
        return found
    raise BadInput(f"task {task.task}, {place}: {found!r:.80} is no text; a template makes it one")


@dataclass
class _Examples:
    """The answered examples of a task: who may be one, and the draws so far."""

    task: Task
    writer: Writer
    rows: Sequence[Row]

    def __post_init__(self) -> None:
        self._random = random.Random(SEED)
        task, few = self.task, self.task.fewshot_config
        self._split = few.split or task.fewshot_split
        self._pool = self._candidates() if task.num_fewshot else []
        # Where both are unnamed this holds, too: so it does there.
        self._holds_itself = self._split == task.test_split
        room = len(self._pool) - self._holds_itself
        if 0 < task.num_fewshot > room:
            raise BadInput(
                f"task {task.task}: num_fewshot is {task.num_fewshot}; there are {room} rows to "
                "choose examples from"
            )

    def _candidates(self) -> list[Row]:
        task, samples = self.task, self.task.fewshot_config.samples
        if self._split is None and samples is not None:
            return list(samples)
        split = self._split or task.training_split or task.validation_split or task.test_split
        return list(self.rows) if split == task.asked_split else read_split(task, str(split)).rows

    def before(self, row: Row) -> str:
        """Examples for one row, which is not among them; the next draw."""
        count = self.task.num_fewshot
        return "".join(map(self._example, self._drawn(row, count))) if count else ""

    def _drawn(self, row: Row, count: int) -> Sequence[Row]:
        if self.task.fewshot_config.sampler == "first_n":
            itself = row if self._holds_itself else None
            return [one for one in self._pool if one != itself][:count]
        if not self._holds_itself:
            return self._random.sample(self._pool, count)
        found = [one for one in self._random.sample(self._pool, count + 1) if one != row][:count]
        if len(found) < count:  # the row is there several times
            found = self._random.sample([one for one in self._pool if one != row], count)
        return found

    def _example(self, row: Row) -> str:
        """A row with its answer, by the templates of `fewshot_config`, else by the task's own."""
        task, few, writer = self.task, self.task.fewshot_config, self.writer
        question = writer.text(row, _or(few.doc_to_text, task.doc_to_text))
        choice = _or(few.doc_to_choice, task.doc_to_choice)
        choices = None if choice is None else writer.choices(row, choice)
        answer = writer.target(row, _or(few.doc_to_target, task.doc_to_target))
        if isinstance(question, int) and choices is not None:
            question, choices = writer.choice(choices, question), None
        if choices is not None and isinstance(answer, int):
            answer = writer.choice(choices, answer)
        answer = answer[0] if isinstance(answer, list) else answer
        place = "an example"
        text = _text(task, question, place)
        prefix = writer.field(row, _or(few.gen_prefix, task.gen_prefix))
        delimiter = _or(few.target_delimiter, task.target_delimiter)
        if answer in (None, ""):
            return text + (delimiter if prefix and _bare(text, prefix) else "") + prefix
        said = _text(task, answer, place)
        given = prefix + (" " if _bare(prefix, said) else "") + said
        parted = delimiter if not prefix or _bare(text, prefix) else ""
        return text + parted + given + _or(few.fewshot_delimiter, task.fewshot_delimiter)


def _or(own: Value | None, other: Value) -> Value:
    return other if own is None else own
