"""Reading a judge's reply: which of the allowed answers it gives, and with what probabilities.

A reply counts only when it is an allowed answer: alone, behind a label ("Score: 4"), on its own
first line, before a remark ("2. Somewhat"), on a labelled line below an analysis, as the one
`score` or `answer` of one JSON object, fenced or not, or as the one rating or verdict that is
stated anywhere ("... Final score: 4.", "4 out of 5", "Answer A is better"). The thoughts of a
reasoning model are none of it. Everything else is unscored with the reason why, a number between
two answers too. `read_published` is the rule of Chiang and Lee (2023).
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.evaluation.judging.free_text import thoughts_end
from tasks.evaluation.judging.questions import Distribution, Mode, Unscored, Verdict
from tasks.evaluation.judging.stated_answers import (
    FRACTION,
    NUMBER,
    REFUSAL,
    labelled,
    match,
    stated,
)

Alternatives = Sequence[tuple[str, float]]

FENCE = re.compile(r"\A\s*```\w*\s*(.*?)\s*```\s*\Z", re.DOTALL)
JSON_FIELD = re.compile(r'"(?:score|answer)"\s*:\s*"?')
BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu])')
LABEL = re.compile(r"\s*(?:[-*]\s+)?\**(?:\w[\w ]{0,30}(?:\([^)\n]{,20}\))?:)?[*\s]*")
REMARK = re.compile(r"(\d+)(?:\.(?!\d)|\)|:|,| [-–(]).+")
NOT_A_NUMBER = re.compile(r"(nan|-?inf(inity)?|null|none|n/a)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Reply:
    """A judge's reply: its text, why it ended, and per token (text, alternatives), alternatives
    being (token, log-probability), the chosen one among them. `tokens` is empty without them.
    """

    content: str
    finish_reason: str = "stop"
    tokens: tuple[tuple[str, Alternatives], ...] = ()


def read_choice(reply: Reply, choices: Sequence[str]) -> str | Unscored:
    """The allowed answer a reply gives."""
    if not reply.content[thoughts_end(reply.content) :].strip():
        return no_answer(reply)
    found = _find(reply.content, choices, reply.finish_reason)
    return found if isinstance(found, Unscored) else found[0]


def no_answer(reply: Reply) -> Unscored:
    """Why a reply has no answer: it is empty, or nothing but the thoughts of a reasoning model."""
    if not reply.content.strip():
        return Unscored("no_answer", "the reply is empty")
    cut = ", cut off: raise max_tokens" if reply.finish_reason == "length" else ""
    return Unscored("thoughts_only", f"the reply is nothing but thoughts{cut}")


def read_probabilities(
    reply: Reply, choices: Sequence[str]
) -> tuple[dict[str, float], float] | None:
    """Probabilities of the allowed answers from a reply's log-probabilities, and their mass.

    Answers may span several tokens ("10", "0.5"): the path the judge took is followed to its end,
    with the alternatives at every step of it. None where the reply has no log-probabilities or
    its answer cannot be found among its tokens.
    """
    found = _find("".join(token for token, _ in reply.tokens), choices)
    if isinstance(found, Unscored):
        return None
    chosen, start = found
    mass = dict.fromkeys(choices, 0.0)
    _spread(reply.tokens[_token_at(reply, start) :], "", 1.0, mass)
    total = sum(mass.values())
    if mass[chosen] <= 0 or not math.isfinite(total):
        return None
    return {choice: p / total for choice, p in mass.items()}, min(total, 1.0)


def read_published(text: str) -> float:
    """A reply as the code of Chiang and Lee (2023) reads it, for repeating their tables: the first
    whole number, or whole part, behind the last "rating:", or else the last "score:"; the first
    digit where no number stands there or at the beginning; 0 without any. The words "1-3" are left
    out. It takes numbers off the scale, and what says nothing for a 0.
    """
    text = text[thoughts_end(text) :].lower().replace("1-3", " ")
    behind = text.rpartition("rating:" if "rating:" in text else "score:")[2]
    labelled = len(behind) < len(text)
    number = re.search(r"\d+", behind) if labelled else re.match(r"\W*(\d+)", behind)
    number = number or re.search(r"\d", behind)
    return float(number[number.re.groups]) if number else 0.0


def frequencies(read: Sequence[str | Unscored], choices: Sequence[str]) -> Verdict:
    """The share of each answer among the replies that give one; the first failure if none does."""
    answers = tuple(answer for answer in read if isinstance(answer, str))
    if not answers:
        return next(answer for answer in read if isinstance(answer, Unscored))
    shares = {choice: answers.count(choice) / len(answers) for choice in choices}
    several = len(read) > 1
    mode: Mode = "samples" if several else "single"
    return Distribution(shares, mode, len(answers) / len(read), answers if several else ())


def _spread(
    tokens: Sequence[tuple[str, Alternatives]], before: str, share: float, mass: dict[str, float]
) -> None:
    """Add to `mass` the probability of each answer that starts with `before`, reached with
    probability `share`, from the tokens that follow.
    """
    if not tokens:
        if before in mass:
            mass[before] += share
        return
    realised, alternatives = tokens[0]
    for token, log_probability in alternatives:
        text = before + (token if before else token.lstrip()).rstrip().casefold()
        p = share * math.exp(min(log_probability, 0.0))  # some servers round above
        longer = [c for c in mass if c.startswith(text) and c != text]
        if token == realised and longer and text != before:
            _spread(tokens[1:], text, p, mass)
        elif text in mass and text != before:
            mass[text] += p
        elif len(text) > 1 and len(longer) == 1:
            mass[longer[0]] += p  # the start of a word that only one answer begins with
        elif before in mass and not token[:1].isalnum() and token[:1] != ".":
            mass[before] += p  # the answer ended before this token


def _token_at(reply: Reply, start: int) -> int:
    """The token in which the character at `start` stands."""
    end = 0
    for place, (token, _) in enumerate(reply.tokens):
        end += len(token)
        if end > start:
            return place
    return len(reply.tokens)


def _find(
    content: str, choices: Sequence[str], finish_reason: str = "stop"
) -> tuple[str, int] | Unscored:
    """The answer and where its text starts."""
    begin = thoughts_end(content)
    fenced = FENCE.match(content[begin:])
    body = (fenced[1] if fenced else content[begin:]).strip()
    if not body:
        return Unscored("no_answer", "the reply is empty")
    found = _read(body, choices, finish_reason)
    if isinstance(found, Unscored):
        return found
    return found[0], content.index(body, begin) + found[1]


def _read(body: str, choices: Sequence[str], finish_reason: str) -> tuple[str, int] | Unscored:
    """A JSON object if the text starts as one; else the first line, and only if that is no answer
    what stands below: a remark behind a bare number can quote any verdict without giving it.
    """
    value, start = _first_line(body)
    if not body.startswith("{"):
        if answer := match(value, choices):
            others = labelled(body, choices) if start else None  # a bare number needs no label
            return others if isinstance(others, Unscored) else (answer, start)
        if not JSON_FIELD.search(body):
            return stated(body, choices) or _reason(value, body, finish_reason, choices)
    given = _json_answer(body)
    if isinstance(given, Unscored):
        return given
    answer = match(given[0], choices)
    return (answer, given[1]) if answer else _reason(given[0], body, finish_reason, choices)


def _json_answer(body: str) -> tuple[str, int] | Unscored:
    """The one `score` or `answer` of the one JSON object in a text, and where it starts."""
    decoder = json.JSONDecoder(parse_constant=str, strict=False)
    text = BAD_ESCAPE.sub(r"\\\\", body)  # a common slip of models: "\d" for "\\d"
    found: list[Any] = []
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):  # nested a thousand deep
            return Unscored("unparsable", f"broken JSON: {body[:80]!r}")
        found.append(value)
        at = text.find("{", end)
    if len(found) > 1:
        return Unscored("ambiguous", f"{len(found)} JSON objects: {body[:80]!r}")
    answers = [found[0][key] for key in ("score", "answer") if found and key in found[0]]
    if len(answers) != 1 or isinstance(answers[0], bool | dict | list):
        return Unscored("unparsable", f"no single score in {body[:80]!r}")
    field = JSON_FIELD.search(body)
    return "null" if answers[0] is None else str(answers[0]), field.end() if field else 0


def _first_line(body: str) -> tuple[str, int]:
    line = body.split("\n", 1)[0]
    if remark := REMARK.fullmatch(line):
        return remark[1], 0
    label_end = _label_end(line)
    bare = _bare(line[label_end:])
    remark = REMARK.fullmatch(bare)
    return remark[1] if remark else bare, line.index(bare, label_end)


def _bare(text: str) -> str:
    """A text without the punctuation around it."""
    return text.strip().strip("*.`\"'").strip()


def _label_end(line: str) -> int:
    label = LABEL.match(line)
    return label.end() if label else 0


def _is_between(number: str, choices: Sequence[str]) -> bool:
    """Whether a number lies between the lowest and the highest of whole numbers."""
    whole = all(choice.isdigit() for choice in choices)
    return whole and float(choices[0]) < float(number) < float(choices[-1])


def _reason(value: str, content: str, finish_reason: str, choices: Sequence[str]) -> Unscored:
    shown = f"{content[:80]!r}"
    if REFUSAL.search(content):
        return Unscored("refusal", shown)
    if FRACTION.fullmatch(value):
        return Unscored("fraction", f"{shown}: on which scale?")
    if NUMBER.fullmatch(value) and _is_between(value, choices):
        return Unscored("between_steps", f"{shown} is between two allowed answers")
    if NUMBER.fullmatch(value):
        return Unscored("out_of_range", f"{shown} is not among the allowed answers")
    if NOT_A_NUMBER.match(value):
        return Unscored("not_a_number", shown)
    if finish_reason == "length":
        return Unscored("truncated", shown)
    return Unscored("unparsable", shown)
