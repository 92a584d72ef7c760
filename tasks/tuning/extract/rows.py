"""Questions about texts: rows with context, question and answers, or files of SQuAD's own form."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from tasks.data.row_files import read_row_file
from tasks.tuning.extract.settings import ExtractSettings
from tasks.tuning.files import row_file
from tasks.tuning.rows import digest, field_of

Answer = tuple[str, int]
"""Its text, and the character of the context at which it starts."""


@dataclass(frozen=True)
class Question:
    """A question, the text that is asked, and all answers that count as right; none where the text
    has none.
    """

    question: str
    context: str
    answers: tuple[Answer, ...]
    id: str

    @property
    def key(self) -> str:
        """What is read of it."""
        return f"{self.question}\0{self.context}"

    @property
    def group(self) -> str:
        """Questions about one text stay together."""
        return digest(self.context)

    @property
    def order(self) -> str:
        """The key rows are sorted by."""
        return digest(self.key, *(text for text, _ in self.answers))


def read_questions(settings: ExtractSettings, rejects: Counter[str], data: str) -> list[Question]:
    """The questions of a file; those whose answer is not where it is said to be are counted.
    Raises BadInput naming the line for a row that is none.
    """
    path = row_file(data)
    found: list[Question] = []
    for number, row in read_row_file(path):
        for asked, name in _flat(row, settings, number):
            context, question = (
                str(field_of(asked, (field,), path, number))
                for field in (settings.context, settings.question)
            )
            told = _answers(field_of(asked, (settings.answers,), path, number), path, number)
            answers = tuple(one for given in told if (one := _placed(context, *given)))
            if len(answers) < len(told):
                rejects["answer_not_in_context"] += 1
            else:
                found.append(Question(question, context, answers, name))
    return sorted(found, key=lambda one: one.order)


def _flat(
    row: dict[str, Any], settings: ExtractSettings, number: int
) -> Iterator[tuple[dict[str, Any], str]]:
    """The questions in a row, each with its id: one, or all of a file as SQuAD is published."""
    articles = row.get("data") or ([row] if "paragraphs" in row else None)
    if articles is None:
        yield row, str(row.get("id", number))
        return
    for paragraph in (p for article in articles for p in article["paragraphs"]):
        for place, asked in enumerate(paragraph["qas"]):
            plain = {
                settings.context: paragraph["context"],
                settings.question: asked["question"],
                settings.answers: [] if asked.get("is_impossible") else asked["answers"],
            }
            yield plain, str(asked.get("id", place))


def _answers(value: Any, path: Path, number: int) -> list[tuple[str, int | None]]:
    """Texts and starts, given as a list of both or as two lists (as `datasets` has SQuAD)."""
    try:
        if isinstance(value, dict) and isinstance(value.get("text"), list):
            starts = value.get("start") or value.get("answer_start") or [None] * len(value["text"])
            return list(zip(map(str, value["text"]), starts, strict=True))
        given = [value] if isinstance(value, dict) else value or []
        return [(str(one["text"]), one.get("start", one.get("answer_start"))) for one in given]
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise BadInput(
            f"{path}, line {number}: answers must be a list of `text` and `start`: {error!r}"
        ) from error


def _placed(context: str, text: str, start: int | None) -> Answer | None:
    """The answer where it is said to be, or, where nothing is said, where it occurs first."""
    at = context.find(text) if start is None else start
    return (text, at) if text and at >= 0 and context[at : at + len(text)] == text else None
