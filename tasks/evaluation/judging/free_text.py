"""What a judge writes freely: without the thoughts before it, and as a list, however it is set out.

Models asked for numbered questions or steps write `1. ...`, `- ...`, `**Q1:** ...`, plain lines, a
JSON list, or an object with one, fenced or not.
"""

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

THOUGHTS = re.compile(r"\A.*</(?:think|thinking|thought|reasoning)>", re.DOTALL | re.IGNORECASE)
THINKING = re.compile(r"\A\s*<(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
MARK = re.compile(
    r"\s*(?:\**\s*(?:Q|Question|Step)\s*\d*\s*[.:)]\s*\**|\(?\d+[.:)]\)?|[-*•–]\s)\s*",
    re.IGNORECASE,
)
MOST_TRIED = 20
NAMES = ("question", "step", "text", "content", "description")


def thoughts_end(content: str) -> int:
    """Where the thoughts of a reasoning model end; at the end where they were cut off."""
    if found := THOUGHTS.match(content):
        return found.end()
    return len(content) if THINKING.match(content) else 0


def questions_in(text: str) -> list[str]:
    """The questions that a judge wrote."""
    items = (item.rpartition("?")[0] for item in items_in(text, least=1))
    return [f"{item}?" for item in items if item]


def items_in(text: str, least: int = 3) -> list[str]:
    """The items of a list: those of a JSON list, else the lines that are marked as such, else all
    lines but one that announces the list, if there are at `least` so many.
    """
    text = text[thoughts_end(text) :]
    listed = _json_list(text)
    if listed is not None:
        return [item for value in listed if (item := _words(value))]
    lines = [line for line in text.splitlines() if line.strip() and "```" not in line]
    marked = [line for line in lines if MARK.match(line)]
    bare = [bare for line in marked or lines if (bare := _bare(line)) and bare[-1] != ":"]
    return bare if marked or len(bare) >= least else []


def _json_list(text: str) -> list[Any] | None:
    """The first JSON list in a text, alone or as a field of an object."""
    for place in islice(re.finditer(r"[\[{]", text), MOST_TRIED):
        try:
            value, _ = json.JSONDecoder(strict=False).raw_decode(text, place.start())
        except (ValueError, RecursionError):
            continue
        for found in _lists(value):
            return found
    return None


def _lists(value: Any) -> Iterator[list[Any]]:
    if isinstance(value, list) and value and all(map(_words, value)):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _lists(inner)
        words = [inner for inner in value.values() if isinstance(inner, str)]
        if len(words) == len(value) > 1:  # {"Q1": "...", "Q2": "..."}
            yield words


def _words(value: Any) -> str:
    """The text of an item: itself, or the field that holds it."""
    if isinstance(value, dict):
        value = next((value[name] for name in NAMES if name in value), "")
    return _bare(value) if isinstance(value, str) else ""


def _bare(line: str) -> str:
    """A line without its mark and what makes it bold."""
    mark = MARK.match(line)
    return line[mark.end() if mark else 0 :].strip().strip("*").strip()
