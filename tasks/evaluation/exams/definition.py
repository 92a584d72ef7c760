"""An exam: a YAML file of a few lines, and JSON lines beside it.

    name: capitals
    kind: choice                # choice | exact | code | overlap | perplexity
    rows: capitals.jsonl        # beside the YAML, like `examples`
    prompt: "Question: {question}\\nAnswer:"
    shots: 2                    # this many of `examples` are shown first, answered
    examples: solved.jsonl
    max_tokens: 32

Rows have the fields of the prompt and, by kind: `choices` and `answer`, the number of the right one
from 0; `answers`, any of which is right; `tests`, Python that must run to its end behind the answer
(and `head`, before it); `references` (or `reference`), for an overlap `metric`. Of `perplexity` the
prompt is the text itself. Examples of `code` have the answer in `solution`.

A task of lm-evaluation-harness is an exam, too (`tasks.evaluation.exams.harness`).
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from cluster.errors import BadInput
from cluster.settings import Content, Settings, nearest
from tasks.data.reading.hashes import FILE
from tasks.data.row_files import read_row_file
from tasks.evaluation.exams.harness.reading import (
    is_task,
    load_keys,
    named_task,
    read_task,
    refuse_code,
    validated,
)
from tasks.evaluation.exams.harness.task import Group, Task

OVERLAP = ("bleu", "chrf", "chrf++", "meteor", "rouge1", "rouge2", "rougeL", "rougeLsum")
NEEDED: dict[str, tuple[str, ...]] = {
    "choice": ("choices", "answer"),
    "exact": ("answers",),
    "code": ("tests",),
    "overlap": ("references",),
    "perplexity": (),
}
Row = dict[str, Any]


class Exam(Settings):
    """What is asked, and how it is graded."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$", description="of the exam")
    kind: Literal["choice", "exact", "code", "overlap", "perplexity"] = Field(
        description="how an answer is graded"
    )
    rows: Annotated[str, FILE] = Field(description="JSON lines, relative to the YAML file")
    prompt: str = Field("{question}", description="with fields of a row in braces")
    shots: int = Field(0, ge=0, description="examples shown before each question")
    examples: Annotated[str | None, FILE] = Field(
        None, description="JSON lines they are the first of"
    )
    metric: str = Field("rougeL", description="of kind overlap")
    normalise: bool = Field(
        False, description="kind exact: without case, punctuation, articles and double spaces"
    )
    pattern: str | None = Field(
        None, description="kind exact: a regular expression whose first group is the answer"
    )
    max_tokens: int = Field(32, ge=1, description="tokens of an answer at most")
    stop: list[str] = Field(["\n"], description="texts before which an answer ends")
    group: str | None = Field(None, description="a field: intervals draw whole groups of rows")

    @property
    def asked_files(self) -> list[str]:
        """The files whose rows are asked."""
        return [self.rows]

    @model_validator(mode="after")
    def _fits_together(self) -> "Exam":
        if self.shots and self.examples is None:
            raise ValueError(f"shots: {self.shots} needs `examples`, a file of rows with answers")
        if self.kind == "overlap" and self.metric not in OVERLAP:
            raise ValueError(f"unknown metric '{self.metric}'; {nearest(self.metric, OVERLAP)}")
        return self


def read_exam(path: str | Path) -> Exam | Task | Group:
    """The exam of a YAML file, with the whole paths of its rows and examples; or the task or group
    of one of lm-evaluation-harness, or what is named so among such files: `tasks/NAME`.

    Raises BadInput naming what is wrong.
    """
    file = Path(path).expanduser()
    place = file.resolve().parent
    if not file.exists() and (named := named_task(place, file.name)):
        return named
    found = load_keys(file)
    if is_task(found):
        return read_task(file)
    refuse_code(found, file)
    exam = validated(Exam, found, path)
    files = {name: getattr(exam, name) for name in ("rows", "examples")}
    whole = {name: str(place / file) for name, file in files.items() if file is not None}
    return exam.model_copy(update=whole)


EXAM = Content(read_exam, each=True)


def read_rows(exam: Exam) -> list[Row]:
    """The rows of an exam, each with its `line`.

    Raises BadInput naming the line that is no JSON or lacks a field.
    """
    rows = _read_lines(Path(exam.rows))
    for row in rows:
        if isinstance(row.get("reference"), str):
            row.setdefault("references", [row["reference"]])
        _check(exam, row, exam.rows, NEEDED[exam.kind])
    if not rows:
        raise BadInput(f"{exam.rows} has no rows")
    return rows


def read_shots(exam: Exam) -> str:
    """The answered examples that every prompt begins with. Raises BadInput as `read_rows` does."""
    if not exam.shots or exam.examples is None:
        return ""
    rows = _read_lines(Path(exam.examples))[: exam.shots]
    if len(rows) < exam.shots:
        raise BadInput(f"{exam.examples} has {len(rows)} rows; `shots` asks for {exam.shots}")
    return "".join(f"{render(exam, row)}{_solution(exam, row)}\n\n" for row in rows)


def render(exam: Exam, row: Row) -> str:
    """The prompt of one row. Raises BadInput naming the field it lacks."""
    try:
        return exam.prompt.format_map(row)
    except (KeyError, ValueError, IndexError, AttributeError) as missing:
        raise BadInput(f"the prompt needs {missing}, which line {row['line']} lacks") from missing


def _solution(exam: Exam, row: Row) -> str:
    name = "solution" if exam.kind == "code" else NEEDED[exam.kind][-1]
    if isinstance(row.get("reference"), str):
        row.setdefault("references", [row["reference"]])
    _check(exam, row, str(exam.examples), (*NEEDED[exam.kind][:-1], name))
    answer = row[name][0] if isinstance(row[name], list) else row[name]
    text = str(row["choices"][row["answer"]] if exam.kind == "choice" else answer)
    return text if exam.prompt[-1:].isspace() or exam.kind == "code" else f" {text}"


def _check(exam: Exam, row: Row, file: str, needed: tuple[str, ...]) -> None:
    place = f"{file}, line {row['line']}"
    if lacking := [name for name in needed if name not in row]:
        has = ", ".join(name for name in row if name != "line")
        raise BadInput(
            f"{place} has no {', '.join(lacking)}, which kind {exam.kind} needs; it has {has}"
        )
    if exam.kind == "choice" and row["answer"] not in range(len(row["choices"])):
        last = len(row["choices"]) - 1
        raise BadInput(f"{place}: answer {row['answer']!r} is no number of a choice, 0 to {last}")


def _read_lines(path: Path) -> list[Row]:
    return [{"line": number, **row} for number, row in read_row_file(path)]
