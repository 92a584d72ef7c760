"""What is taken from an answer before it is graded: the filters of lm-evaluation-harness.

A filter is a list of steps; each takes the answers to a row (one for each repeat) and gives others,
the last a single one. Source: lm-evaluation-harness 0.4.13, `lm_eval/filters`. Its `custom` runs
code, and the others that are missing here belong to single tasks.
"""

import inspect
import re
import string
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from cluster.settings import nearest

Step = dict[str, Any]
"""`{"function": name, ...}` and what it is told."""
Answers = Any
"""A list of answers, or, behind `take_first`, one."""
Row = Mapping[str, Any]
TAKE_FIRST: list[Step] = [{"function": "take_first"}]
NUMBER = r"#### (\-?[0-9\.\,]+)"
INVALID = "[invalid]"


def check_step(step: Step) -> None:
    """Raise ValueError for a step that is not known, or told what it does not take."""
    name = step.get("function")
    if name not in FILTERS:
        raise ValueError(f"unknown filter '{name}'; {nearest(str(name), FILTERS)}")
    known = list(inspect.signature(FILTERS[name]).parameters)[2:]
    if wrong := [key for key in step if key not in ("function", *known)]:
        raise ValueError(f"filter {name} takes no '{wrong[0]}'; it takes {', '.join(known) or '-'}")
    if "regex_pattern" in step:
        try:
            re.compile(step["regex_pattern"])
        except re.error as error:
            raise ValueError(f"regex_pattern {step['regex_pattern']!r}: {error}") from error


def filtered(steps: Sequence[Step], answers: Answers, row: Row) -> Any:
    """The one answer that a filter makes of those to a row. Raises ValueError where it is not."""
    for step in steps or TAKE_FIRST:
        told = {key: value for key, value in step.items() if key != "function"}
        answers = FILTERS[step["function"]](answers, row, **told)
    if isinstance(answers, list):
        if len(answers) != 1:
            raise ValueError(f"a filter ends with {len(answers)} answers; let it take_first")
        return answers[0]
    return answers


def _take_first(answers: Answers, row: Row) -> Answers:
    return answers[0]


def _take_first_k(answers: Answers, row: Row, k: int) -> Answers:
    if len(answers) < k:
        raise ValueError(f"take_first_k takes {k} of {len(answers)} answers; raise `repeats`")
    return answers[:k]


def _majority_vote(answers: Answers, row: Row) -> Answers:
    return [Counter(answers).most_common(1)[0][0]]


def _lowercase(answers: Answers, row: Row) -> Answers:
    return [text.lower() for text in answers]


def _uppercase(answers: Answers, row: Row) -> Answers:
    return [text.upper() for text in answers]


def _remove_whitespace(answers: Answers, row: Row) -> Answers:
    return [text.strip() for text in answers]


def _map(
    answers: Answers, row: Row, mapping_dict: Mapping[str, Any], default_value: Any = None
) -> Answers:
    return [mapping_dict.get(text, default_value) for text in answers]


def _regex(
    answers: Answers,
    row: Row,
    regex_pattern: str = NUMBER,
    group_select: int = 0,
    fallback: str = INVALID,
) -> Answers:
    found = (_found(re.compile(regex_pattern), text, group_select) for text in answers)
    return [fallback if one is None else one.strip() for one in found]


def _multi_choice_regex(
    answers: Answers,
    row: Row,
    regex_pattern: str = NUMBER,
    group_select: int = 0,
    fallback: str = INVALID,
    ignore_case: bool = False,
    ignore_punctuation: bool = False,
    regexes_to_ignore: Iterable[str] = (),
) -> Answers:
    """By the pattern, else by a choice's text, else by a letter behind a colon."""

    def plain(text: str) -> str:
        for pattern in regexes_to_ignore or ():
            text = re.sub(pattern, "", text)
        text = text.lower() if ignore_case else text
        return text.translate(_punctuation()) if ignore_punctuation else text

    choices = [plain(choice.strip()) for choice in row["choices"]]
    letters = string.ascii_uppercase[: len(choices)]
    spelt = {choice: f"({letter})" for choice, letter in zip(choices, letters, strict=True)}
    texts = re.compile("|".join(sorted(map(re.escape, choices), key=len, reverse=True)))
    marks = re.compile(rf":[\s]*({'|'.join(letters)})")
    found = []
    for text in answers:
        one = (_found(re.compile(regex_pattern), text, group_select) or "").strip()
        if not one:
            one = (_found(texts, plain(text), group_select) or "").strip()
            one = spelt.get(one, one)
        if not one:
            letter = (_found(marks, text, group_select) or "").strip()
            one = f"({letter})" if letter else ""
        found.append(one or fallback)
    return found


def _found(pattern: re.Pattern[str], text: Any, number: int) -> str | None:
    """A match by its number, of one with groups the first that is not empty; None without any."""
    matches = pattern.findall(text if isinstance(text, str) else "")
    if not matches:
        return None
    try:
        one = matches[number]
    except IndexError:
        raise ValueError(f"group_select is {number}; there are {len(matches)} matches") from None
    return next((part for part in one if part), None) if isinstance(one, tuple) else str(one)


@cache
def _punctuation() -> dict[int, None]:
    points = range(sys.maxunicode)
    return dict.fromkeys(i for i in points if unicodedata.category(chr(i)).startswith("P"))


FILTERS: dict[str, Callable[..., Answers]] = {
    "take_first": _take_first,
    "take_first_k": _take_first_k,
    "majority_vote": _majority_vote,
    "lowercase": _lowercase,
    "uppercase": _uppercase,
    "remove_whitespace": _remove_whitespace,
    "map": _map,
    "regex": _regex,
    "multi_choice_regex": _multi_choice_regex,
}
