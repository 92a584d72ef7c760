"""Reading a judge's reply: which of the allowed answers it gives, and with what probabilities.

A reply counts only when it is an allowed answer: alone, behind a label ("Score: 4"), on its own
first line, before a remark ("2. Somewhat"), on a labelled line below an analysis, or as the one
`score` or `answer` of one JSON object, fenced or not. Where whole numbers were asked for, the whole
part of a rating between them counts ("2.5"), as in published evaluations (Chiang and Lee 2023).
Everything else is unscored with the reason why.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.scoring.judging.verdicts import Unscored

Alternatives = Sequence[tuple[str, float]]

FENCE = re.compile(r"\A```\w*\s*(.*?)\s*```\Z", re.DOTALL)
JSON_FIELD = re.compile(r'"(?:score|answer)"\s*:\s*"?')
LABEL = re.compile(r"\s*(?:[-*]\s+)?\**(?:\w[\w ]{0,30}:)?[*\s]*")
RATING = re.compile(
    r"^\W*\w[\w ]{0,30}\W{0,4}:[*\s]*(-?\d+(?:\.\d+)?)(?![\d/])(?! out of)[^\d\n]*$", re.MULTILINE
)
REMARK = re.compile(r"(\d+)(?:\.(?!\d)|\)|:|,| [-–(]).+")
FRACTION = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:/|out of)\s*(\d+)")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
LAST = re.compile(r"\b\d+\W*\Z")
NOT_A_NUMBER = re.compile(r"(nan|-?inf(inity)?|null|none|n/a)\b", re.IGNORECASE)
REFUSAL = re.compile(
    r"\b(sorry|i can(no|')t|unable to|i won't|as an ai|not able to)\b", re.IGNORECASE
)


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
    content = reply.content.strip()
    if not content:
        return Unscored("no_answer", "the reply is empty")
    fenced = FENCE.match(content)
    body = fenced.group(1) if fenced else content
    value = _json_answer(body) if "{" in body else _first_line(body)
    if isinstance(value, Unscored):
        return value
    found: str | Unscored | None = _match(value, choices)
    if not found and "{" not in body and not REFUSAL.search(body):
        found = _labelled(body, choices)
    return found or _reason(value, content, reply.finish_reason)


def read_probabilities(
    reply: Reply, choices: Sequence[str]
) -> tuple[dict[str, float], float] | None:
    """Probabilities of the allowed answers from a reply's log-probabilities, and their mass.

    Answers may span several tokens ("10", "0.5"): the path the judge took is followed to its end,
    with the alternatives at every step of it. None where the reply has no log-probabilities or
    its answer cannot be found among its tokens.
    """
    chosen = read_choice(reply, choices)
    if isinstance(chosen, Unscored) or not reply.tokens:
        return None
    start = _answer_token(reply)
    if start is None:
        return None
    mass = dict.fromkeys(choices, 0.0)
    _spread(reply.tokens[start:], "", 1.0, mass)
    total = sum(mass.values())
    if mass[chosen] <= 0 or not math.isfinite(total):
        return None
    return {choice: p / total for choice, p in mass.items()}, min(total, 1.0)


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
        p = share * math.exp(log_probability)
        longer = [c for c in mass if c.startswith(text) and c != text]
        if token == realised and longer and text != before:
            _spread(tokens[1:], text, p, mass)
        elif text in mass and text != before:
            mass[text] += p
        elif len(text) > 1 and len(longer) == 1:
            mass[longer[0]] += p  # the start of a word that only one answer begins with
        elif before in mass and not token[:1].isalnum() and token[:1] != ".":
            mass[before] += p  # the answer ended before this token


def _answer_token(reply: Reply) -> int | None:
    """The token in which the answer starts, wherever else in the reply the same text stands."""
    text = "".join(token for token, _ in reply.tokens)
    lead = len(text) - len(text.lstrip())
    field = JSON_FIELD.search(text)
    label = LABEL.match(text, lead)
    begin = field.end() if field else label.end() if label else lead
    end = 0
    for place, (token, _) in enumerate(reply.tokens):
        end += len(token)
        if end > begin and text[begin:end].strip():
            return place
    return None


def _json_answer(body: str) -> str | Unscored:
    """The one `score` or `answer` of the one JSON object in a text."""
    decoder = json.JSONDecoder(parse_constant=lambda name: name)
    found: list[Any] = []
    at = body.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(body, at)
        except ValueError:
            return Unscored("unparsable", f"broken JSON: {body[:80]!r}")
        found.append(value)
        at = body.find("{", end)
    if len(found) > 1:
        return Unscored("ambiguous", f"{len(found)} JSON objects: {body[:80]!r}")
    answers = [found[0][key] for key in ("score", "answer") if key in found[0]]
    if len(answers) != 1 or isinstance(answers[0], bool | dict | list):
        return Unscored("unparsable", f"no single score in {body[:80]!r}")
    return "null" if answers[0] is None else str(answers[0])


def _first_line(body: str) -> str:
    line = body.split("\n", 1)[0]
    if remark := REMARK.fullmatch(line):
        return remark[1]
    bare = _bare(line[_label_end(line) :])
    remark = REMARK.fullmatch(bare)
    return remark[1] if remark else bare


def _labelled(body: str, choices: Sequence[str]) -> str | Unscored | None:
    """The answer behind a label on a line of its own, or the only number, at the end; two different
    ones are ambiguous.
    """
    numbers = NUMBER.findall(body)
    only = numbers if len(numbers) == 1 and LAST.search(body) else []
    values = RATING.findall(body) or only
    answers = {answer for value in values if (answer := _match(value, choices))}
    if len(answers) > 1:
        return Unscored("ambiguous", f"{sorted(answers)} in {body[-80:]!r}")
    return answers.pop() if answers else None


def _bare(text: str) -> str:
    """A text without the punctuation around it."""
    return text.strip().strip("*.`\"'").strip()


def _label_end(line: str) -> int:
    label = LABEL.match(line)
    return label.end() if label else 0


def _match(value: str, choices: Sequence[str]) -> str | None:
    text = _numerator(value.strip().casefold(), choices)
    for choice in choices:
        if text == choice:
            return choice
        numbers = NUMBER.fullmatch(text) and NUMBER.fullmatch(choice)
        if numbers and float(text) == float(choice):
            return choice
    return _whole_part(text, choices)


def _numerator(text: str, choices: Sequence[str]) -> str:
    """The 4 of `4/5` and `4 out of 5` on a scale that ends in 5; any other text as it is."""
    parts = FRACTION.fullmatch(text)
    return parts[1] if parts and parts[2] == choices[-1] else text


def _whole_part(text: str, choices: Sequence[str]) -> str | None:
    """Of a number between the lowest and highest of whole numbers, the whole part."""
    if not NUMBER.fullmatch(text) or not all(choice.isdigit() for choice in choices):
        return None
    within = float(choices[0]) <= float(text) <= float(choices[-1])
    return str(int(float(text))) if within else None


def _reason(value: str, content: str, finish_reason: str) -> Unscored:
    shown = f"{content[:80]!r}"
    if REFUSAL.search(content):
        return Unscored("refusal", shown)
    if FRACTION.fullmatch(value):
        return Unscored("fraction", f"{shown}: on which scale?")
    if NUMBER.fullmatch(value):
        return Unscored("out_of_range", f"{shown} is not among the allowed answers")
    if NOT_A_NUMBER.match(value):
        return Unscored("not_a_number", shown)
    if finish_reason == "length":
        return Unscored("truncated", shown)
    return Unscored("unparsable", shown)
