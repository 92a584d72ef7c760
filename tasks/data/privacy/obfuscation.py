"""Spellings that hide an instance from a plain pattern, each read as what it looks like.

| obfuscation           | example                          | read as            |
|-----------------------|----------------------------------|--------------------|
| full-width, small     | `ｊａｎｅ＠example．org`          | its NFKC character |
| font and circled      | `𝗃𝖺𝗇𝖾@example.org`, `ⓙane@...`   | its NFKC character |
| other decimal digits  | `٤١١١ ١١١١ ١١١١ ١١١١`            | 0 to 9             |
| ideographic full stop | `jane@example。org`              | `.`                |
| zero-width characters | `jane<U+200B>@example.org`       | nothing            |
| soft hyphen, bidi     | `jane<U+00AD>@example.org`       | nothing            |
| dashes, wide spaces   | `+1 202‑555‑0143`                | `-`, space         |
| homoglyphs            | `jаne@example.org` (Cyrillic а)  | the Latin letter   |
| HTML entities         | `jane&#64;example&#x2e;org`      | the character      |

Words for "@" and "." (`jane [at] example (dot) org`) are read by the e-mail finder itself.
Every rule looks at one character or one entity, so a part of a text folds as the whole does.
"""

import re
import unicodedata
from bisect import bisect_right
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tasks.data.kernels.characters import CODE_POINTS

# No compatibility or decimal character lies beyond.
TABLE_SIZE = 0x20000
GONE = CODE_POINTS  # beyond all code points: stands for a character that vanishes
HOMOGLYPHS = dict(
    zip(
        "аеорсхуіјѕһԁԛԝѵьАВЕКМНОРСТХУЅІЈԌԚԜ" + "οανρυικγΑΒΕΖΗΙΚΜΝΟΡΤΥΧ" + "ɑɡıօսո",
        "aeopcxyijshdqwvbABEKMHOPCTXYSIJGQW" + "oavpuikyABEZHIKMNOPTYX" + "agioun",
        strict=True,
    )
)
ZERO_WIDTH = (
    "\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069"
    "\ufe00-\ufe0f\ufeff"
)
DASHES = "\u2010\u2011\u2012\u2013\u2014\u2015\u2212\u2043"
SPACES = "\u00a0\u2000-\u200a\u202f\u205f\u3000"
STOPS = "\u3002\uff61\u2024"
NAMED = {"commat": "@", "period": ".", "nbsp": " ", "lowbar": "_", "plus": "+", "colon": ":"}
ENTITY = r"&(?:#0{0,4}[0-9]{2,3}|#[xX]0{0,4}[0-9A-Fa-f]{2}|" + "|".join(NAMED) + ");"
# Kinds whose values are written with or without separators.
SEPARATED = ("phone", "card", "iban", "national_id")
SPELLED_AT = re.compile(r"\s*[\[({<]?\s*\b(?:at|@)\b\s*[\])}>]?\s*")
SPELLED_DOT = re.compile(r"\s*[\[({<]\s*(?:dot|\.)\s*[\])}>]\s*|\s+dot\s+|\.\s+")
# Unicode's kinds of compatibility decomposition after which a character means the same.
MEANT = ("<wide>", "<small>", "<font>", "<circle>", "<compat>", "<noBreak>")


class Folded(NamedTuple):
    """A text as its plain spelling. Character k of `text` stands for characters `starts[k]` to
    `ends[k]` of the original; both are None where nothing was disguised.
    """

    text: str
    starts: list[int] | None
    ends: list[int] | None

    def unfold(self, start: int, end: int) -> tuple[int, int]:
        """A span of the plain spelling, in the original."""
        if self.starts is None or self.ends is None:
            return start, end
        return self.starts[start], self.ends[end - 1]

    def place(self, at: int) -> int:
        """The character of the plain spelling that covers, or follows, one of the original."""
        return at if self.ends is None else bisect_right(self.ends, at)


def fold(text: str) -> Folded:
    """The plain spelling of a text."""
    if text.isascii() and "&" not in text:
        return Folded(text, None, None)
    hidden = _hidden()
    if not hidden.search(text):
        return Folded(text, None, None)
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    done = 0
    for match in hidden.finditer(text):
        start, end = match.span()
        parts += [text[done:start], plain := _plain(match.group())]
        starts += [*range(done, start), *([start] * len(plain))]
        ends += [*range(done + 1, start + 1), *([end] * len(plain))]
        done = end
    starts += range(done, len(text))
    ends += range(done + 1, len(text) + 1)
    return Folded("".join([*parts, text[done:]]), starts, ends)


def canonical(kind: str, value: str) -> str:
    """One spelling for all that mean the same: plain, in lower case, with "@" and "." for the words
    in an e-mail address, without the separators of a number.
    """
    plain = fold(value).text.lower()
    if kind == "email" and "@" not in plain:
        plain = SPELLED_AT.sub("@", plain, count=1)
    if kind == "email":
        plain = SPELLED_DOT.sub(".", plain)
        return re.sub(r"[\s\[\](){}<>]", "", plain)
    if kind in SEPARATED:
        return "".join(c for c in plain.partition("x")[0] if c.isalnum())
    return " ".join(plain.split())


@cache
def table() -> npt.NDArray[np.uint32]:
    """`[TABLE_SIZE]`: the code point that each one is read as, GONE for those that vanish."""
    codes = np.arange(TABLE_SIZE, dtype=np.uint32)
    for code in range(0x80, TABLE_SIZE):
        if (plain := _compatible(chr(code))) is not None:
            codes[code] = ord(plain)
    for characters, plain in ((DASHES, "-"), (_spread(SPACES), " "), (STOPS, ".")):
        for character in characters:
            codes[ord(character)] = ord(plain)
    for character, plain in HOMOGLYPHS.items():
        codes[ord(character)] = ord(plain)
    for character in _spread(ZERO_WIDTH):
        codes[ord(character)] = GONE
    return codes


def _compatible(character: str) -> str | None:
    """The decimal digit or the one ASCII character that a character is a form of."""
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    if not unicodedata.decomposition(character).startswith(MEANT):
        return None
    plain = unicodedata.normalize("NFKC", character)
    return plain if len(plain) == 1 and plain.isascii() else None


def _spread(ranges: str) -> str:
    """Every character of a class like `a-cx`."""
    return re.sub("(.)-(.)", lambda m: "".join(map(chr, range(ord(m[1]), ord(m[2]) + 1))), ranges)


@cache
def _hidden() -> re.Pattern[str]:
    """Any character that may be read as another, or an entity. Those beyond the basic plane go in
    as one range: listed, each would be compared in turn.
    """
    codes = np.flatnonzero(table() != np.arange(TABLE_SIZE))
    basic = "".join(chr(code) for code in codes if code < 0x10000)
    return re.compile(f"[{basic}\U00010000-\U0001ffff]|{ENTITY}")


def _plain(disguised: str) -> str:
    if len(disguised) == 1:
        code = int(table()[ord(disguised)])
        return "" if code == GONE else chr(code)
    name = disguised[1:-1]
    if name in NAMED:
        return NAMED[name]
    code = int(name[2:], 16) if name[1] in "xX" else int(name[1:])
    return chr(code) if 0x20 <= code < 0x7F else " "
