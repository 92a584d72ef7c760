"""Where a judge's free text states an answer: behind a label, or in a sentence of its own.

One answer counts; two different ones are ambiguous. What is hedged ("at least 4", "not a 3", "3 or
4") or refused states none.
"""

import re
from collections.abc import Sequence

from tasks.evaluation.judging.questions import Unscored

Found = tuple[str, int] | Unscored | None  # an answer and where it starts

RATING = re.compile(
    r"^\W*\w[\w ]{0,30}(?:\([^)\n]{,20}\))?\W{0,4}:[*\s]*"
    r"(-?\d+(?:\.\d+)?(?:\s*/\s*\d+|\s+out of \d+)?)(?![\d/])[^\d\n]*$",
    re.MULTILINE,
)
STATED = re.compile(
    r"\b(?P<final>(?:final|overall|total)\s+)?(?:score|rating|rate|grade|mark)[sd]?\b(?P<between>[^\d\n]{0,40}?)"
    r"(?P<number>-?\d+(?:\.\d+)?(?:\s*(?:/|out of)\s*\d+)?)(?=(?P<after>[^\n]{0,6}))",
    re.IGNORECASE,
)
OUT_OF = re.compile(
    r"(?P<number>\d+(?:\.\d+)?\s*(?:/|out of)\s*\d+)"
    r"(?=\W*(?:$|\n)|[.,;:!?)*\"]|\s+(?:points?|stars?|because|since|for|as)\b)",
    re.IGNORECASE,
)
WORDED = re.compile(
    r"\A\W*(?P<first>\w+)(?=\s*(?:[,.;:!(—–]|-\s|\n|because\b))"
    r"|^\W*(?:(?:final|overall|my|the)\s+)*(?:answer|verdict|judge?ment|result|conclusion|winner"
    r"|choice|better (?:answer|response))\W*(?:[:=]|\bis\b)\W*(?:(?:answer|response)\s+)?"
    r"(?P<label>\w+)\W*$"
    r"|\[\[(?P<brackets>\w+)\]\]"
    r"|\b(?:better|preferred|winning|superior|stronger)\s+(?:(?:answer|response|one|choice)\s+)?is"
    r"\W+(?:(?:answer|response)\W+)?(?P<behind>\w+)\b"
    r"|\b(?:answer|response)\W+(?P<before>\w+)\W+is\s+(?:(?!not\b)\w+\s+)?"
    r"(?:better|preferable|superior|stronger)\b",
    re.IGNORECASE | re.MULTILINE,
)
UNKNOWN = re.compile(
    r"\W*(?:i (?:do not|don't) know|unknown|unclear|(?:it is )?not (?:stated|mentioned|specified)"
    r"|(?:the|this) text (?:does not|doesn't) (?:say|mention|state|specify)"
    r"|(?:it )?cannot be (?:determined|told))",
    re.IGNORECASE,
)
HEDGED = re.compile(r"\b(?:not|neither|than|above|below|least|most|between|if|would)\b|n't")
GOES_ON = re.compile(r"\s*(?:or|to|and|-|–)\s*\d")
FRACTION = re.compile(r"(-?\d+(?:\.\d+)?)\s*(?:/|out of)\s*(\d+)")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
LAST = re.compile(r"\b\d+\W*\Z")
REFUSAL = re.compile(
    r"\b(sorry|i can(no|')t|unable to|i won't|as an ai|not able to)\b", re.IGNORECASE
)


def stated(body: str, choices: Sequence[str]) -> Found:
    """The one answer that a text states anywhere: a number of a scale, or a word."""
    numbers = choices[0].isdigit()
    return labelled(body, choices) or (_rated if numbers else _worded)(body, choices)


def labelled(body: str, choices: Sequence[str]) -> Found:
    """The answer behind a label on a line of its own or, but for a refusal, the only number, at the
    end; two different ones are ambiguous.
    """
    values = list(RATING.finditer(body))
    if not values and not REFUSAL.search(body):
        numbers = list(NUMBER.finditer(body))
        plain = len(numbers) == 1 and not HEDGED.search(body[: numbers[0].start()][-40:])
        values = numbers if plain and LAST.search(body) else []
    group = RATING.groups if values and values[0].re is RATING else 0
    answers = {a: m.start(group) for m in values if (a := match(m[group], choices))}
    if len(answers) > 1:
        return Unscored("ambiguous", f"{sorted(answers)} in {body[-80:]!r}")
    return next(iter(answers.items()), None)


def _rated(body: str, choices: Sequence[str]) -> Found:
    """The one rating that a text states in passing; where it names a final one, that."""
    if REFUSAL.search(body):
        return None
    # The scale itself is no rating; as many blanks keep the places.
    scale = rf"\b{re.escape(choices[0])}\s*(?:-|–|to)\s*{re.escape(choices[-1])}\b"
    body = re.sub(scale, lambda words: " " * len(words[0]), body)
    ratings = [m for m in STATED.finditer(body) if not HEDGED.search(m["between"])]
    if any(GOES_ON.match(m["after"]) for m in ratings):
        return Unscored("ambiguous", f"{body[-80:]!r}")
    final = [m for m in ratings if m["final"]]
    found = final or [*ratings, *OUT_OF.finditer(body)]
    answers = {a: m.start("number") for m in found if (a := match(m["number"], choices))}
    if len(answers) > 1:
        return Unscored("ambiguous", f"{sorted(answers)} in {body[-80:]!r}")
    return next(iter(answers.items()), None)


def _worded(body: str, choices: Sequence[str]) -> Found:
    """The one answer in words that a text gives: first of all, behind a label, or in a sentence
    that says so.
    """
    if REFUSAL.search(body):
        return None
    if "idk" in choices and UNKNOWN.match(body):
        return "idk", 0
    answers = {
        answer: found.start(found.lastgroup or 0)
        for found in WORDED.finditer(body)
        if (answer := match(found[found.lastgroup or 0], choices))
    }
    if len(answers) > 1:
        return Unscored("ambiguous", f"{sorted(answers)} in {body[-80:]!r}")
    return next(iter(answers.items()), None)


def match(value: str, choices: Sequence[str]) -> str | None:
    """The allowed answer that a text is, `4/5` on a scale to 5 and `4.0` included."""
    text = _numerator(value.strip().casefold(), choices)
    for choice in choices:
        if text == choice:
            return choice
        numbers = NUMBER.fullmatch(text) and NUMBER.fullmatch(choice)
        if numbers and float(text) == float(choice):
            return choice
    return None


def _numerator(text: str, choices: Sequence[str]) -> str:
    """The 4 of `4/5` and `4 out of 5` on a scale that ends in 5; any other text as it is."""
    parts = FRACTION.fullmatch(text)
    return parts[1] if parts and parts[2] == choices[-1] else text
