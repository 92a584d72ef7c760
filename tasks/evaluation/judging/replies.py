"""Reading a judge's reply: which of the allowed answers it gives, and with what probabilities.

A reply counts only when it is an allowed answer: alone, behind a label ("Score: 4"), on its own
first line, before a remark ("2. Somewhat"), on a labelled line below an analysis, or as the one
`score` or `answer` of one JSON object, fenced or not. Where whole numbers were asked for, the whole
part of a number between them counts ("2.5": 2), as in the code of Chiang and Lee (2023).
Everything else is unscored with the reason why. `read_published` is that code's own rule.
"""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tasks.evaluation.judging.questions import Distribution, Mode, Unscored, Verdict

Alternatives = Sequence[tuple[str, float]]

FENCE = re.compile(r"\A\s*```\w*\s*(.*?)\s*```\s*\Z", re.DOTALL)
JSON_FIELD = re.compile(r'"(?:score|answer)"\s*:\s*"?')
BAD_ESCAPE = re.compile(r'\\(?!["\\/bfnrtu])')
LABEL = re.compile(r"\s*(?:[-*]\s+)?\**(?:\w[\w ]{0,30}(?:\([^)\n]{,20}\))?:)?[*\s]*")
RATING = re.compile(
    r"^\W*\w[\w ]{0,30}(?:\([^)\n]{,20}\))?\W{0,4}:[*\s]*"
    r"(-?\d+(?:\.\d+)?(?:\s*/\s*\d+|\s+out of \d+)?)(?![\d/])[^\d\n]*$",
    re.MULTILINE,
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
    found = _find(reply.content, choices, reply.finish_reason)
    return found if isinstance(found, Unscored) else found[0]


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
    """A reply as the code of Chiang and Lee (2023) reads it: the first digit behind the last
    "rating:", the words "1-3" aside; 0 without any. It takes digits off the scale, and what says
    nothing for a 0: this is for repeating their tables.
    """
    digit = re.search(r"\d", text.lower().replace("1-3", " ").rpartition("rating:")[2])
    return float(digit[0]) if digit else 0.0


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
    fenced = FENCE.match(content)
    body = (fenced[1] if fenced else content).strip()
    if not body:
        return Unscored("no_answer", "the reply is empty")
    found = _read(body, choices, finish_reason)
    return found if isinstance(found, Unscored) else (found[0], content.index(body) + found[1])


def _read(body: str, choices: Sequence[str], finish_reason: str) -> tuple[str, int] | Unscored:
    """A JSON object if the text starts as one; else the first line, and only if that is no answer
    what stands below: a remark behind a bare number can quote any verdict without giving it.
    """
    value, start = _first_line(body)
    if not body.startswith("{"):
        if answer := _match(value, choices):
            others = _labelled(body, choices) if start else None  # a bare number needs no label
            return others if isinstance(others, Unscored) else (answer, start)
        if not JSON_FIELD.search(body):
            found = _labelled(body, choices)
            return found or _reason(value, body, finish_reason)
    stated = _json_answer(body)
    if isinstance(stated, Unscored):
        return stated
    answer = _match(stated[0], choices)
    return (answer, stated[1]) if answer else _reason(stated[0], body, finish_reason)


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


def _labelled(body: str, choices: Sequence[str]) -> tuple[str, int] | Unscored | None:
    """The answer behind a label on a line of its own or, but for a refusal, the only number, at the
    end; two different ones are ambiguous.
    """
    values = list(RATING.finditer(body))
    if not values and not REFUSAL.search(body):
        numbers = list(NUMBER.finditer(body))
        values = numbers if len(numbers) == 1 and LAST.search(body) else []
    group = RATING.groups if values and values[0].re is RATING else 0
    answers = {a: m.start(group) for m in values if (a := _match(m[group], choices))}
    if len(answers) > 1:
        return Unscored("ambiguous", f"{sorted(answers)} in {body[-80:]!r}")
    return next(iter(answers.items()), None)


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
    """Of a number between the lowest and the highest of whole numbers, the whole part."""
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
