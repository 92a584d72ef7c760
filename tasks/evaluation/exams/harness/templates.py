"""What a task's templates make of a row: the question, the right answer, the choices.

A template is a column's name or Jinja; Jinja is rendered in a sandbox, in which a template can
neither run code nor change what it is given. What is written decides the type, as in
lm-evaluation-harness: digits are a choice's number where there are choices, `[...]` is a list.
"""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cluster.errors import BadInput
from tasks.evaluation.exams.harness.task import Task, Template

if TYPE_CHECKING:
    from jinja2 import Template as Compiled
    from jinja2.sandbox import SandboxedEnvironment

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Writer:
    """A task's templates for rows with these columns. Each method raises BadInput for a template
    that cannot be rendered, or is of the wrong type.
    """

    task: Task
    columns: frozenset[str]

    def text(self, row: Row, template: Template | None = None) -> str | int:
        """The question; a number where the choices are put in its place."""
        chosen = self.task.doc_to_text if template is None else template
        found = self._value("doc_to_text", chosen, row)
        if isinstance(chosen, str) and chosen not in self.columns:
            return self._number(found)
        if isinstance(found, str | int):
            return found
        raise self._wrong("doc_to_text", found, "a text")

    def target(self, row: Row, template: Template | None = None) -> Any:
        """The right answer: a text, the number of a choice, or a list of either."""
        chosen = self.task.doc_to_target if template is None else template
        found = self._value("doc_to_target", chosen, row)
        if not isinstance(chosen, str) or chosen in self.columns:
            return found
        if isinstance(number := self._number(found), int):
            return number
        if len(found) >= 2 and found[0] == "[" and found[-1] == "]":
            try:
                return ast.literal_eval(found)
            except (SyntaxError, ValueError):
                return found
        return found

    def choices(self, row: Row, template: Template | None = None) -> list[str]:
        """The choices, none of them empty."""
        chosen = self.task.doc_to_choice if template is None else template
        found = self._value("doc_to_choice", chosen, row)
        if isinstance(chosen, str) and chosen not in self.columns:
            try:
                found = ast.literal_eval(found)
            except (SyntaxError, ValueError) as error:
                raise self._wrong("doc_to_choice", found, "a list of texts") from error
        found = list(found.values()) if isinstance(found, dict) else found
        if not isinstance(found, list) or not all(isinstance(x, str) and x for x in found):
            raise self._wrong("doc_to_choice", found, "a list of texts")
        return found

    def choice(self, choices: list[str], number: int) -> str:
        """A choice by its number."""
        if not 0 <= number < len(choices):
            raise BadInput(
                f"task {self.task.task}: the target {number} is none of {len(choices)} choices"
            )
        return choices[number]

    def field(self, row: Row, template: str | None) -> str:
        """A column or a template, as text; nothing of nothing."""
        if not template:
            return ""
        return str(row[template]) if template in row else self._rendered("template", template, row)

    def _value(self, key: str, template: Template | None, row: Row) -> Any:
        if not isinstance(template, str):
            return template
        return row[template] if template in self.columns else self._rendered(key, template, row)

    def _number(self, text: str) -> str | int:
        """A choice's number where that is what is written."""
        return int(text) if text.isdigit() and self.task.doc_to_choice is not None else text

    def _rendered(self, key: str, template: str, row: Row) -> str:
        from jinja2.exceptions import TemplateError

        try:
            return _compiled(template).render(**row)
        except (TemplateError, TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise BadInput(f"task {self.task.task}: {key} {template!r}: {error}") from error

    def _wrong(self, key: str, found: Any, wanted: str) -> BadInput:
        return BadInput(f"task {self.task.task}: {key} gives {found!r:.80}; it has to be {wanted}")


@lru_cache(maxsize=256)
def _compiled(template: str) -> "Compiled":
    return _environment().from_string(template)


@lru_cache(maxsize=1)
def _environment() -> "SandboxedEnvironment":
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, keep_trailing_newline=True
    )
    replace: Callable[..., str] = _regex_replace
    environment.filters["regex_replace"] = replace
    return environment


def _regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    return re.sub(pattern, repl, string, count=count)
