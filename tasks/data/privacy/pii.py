"""Personal data and secrets in text: where they are, by pattern and by check digit.

Nothing is looked for in a text that lacks a mark every instance has ('@', a digit, ...), and every
pattern is bounded, so that no text takes more than linear time.
"""

import bisect
import ipaddress
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

KINDS = ("secret", "email", "iban", "card", "ip", "phone")


class Span(NamedTuple):
    """Characters `start` to `end` of a text are one instance of `kind`."""

    start: int
    end: int
    kind: str


def find(text: str, kinds: Iterable[str] = KINDS) -> list[Span]:
    """Every instance in text order, none overlapping; of two that overlap the earlier kind of
    `KINDS` wins. Full-width forms and zero-width characters do not hide an instance; homoglyphs,
    spelled-out "at" and HTML entities do.
    """
    wanted, spans = set(kinds), list[Span]()
    folded, gone = _fold(text)
    covered = bytearray()
    for kind in (k for k in KINDS if k in wanted):
        for start, end in FINDERS[kind](folded):
            covered = covered or bytearray(len(folded))
            if covered.find(1, start, end) < 0:
                covered[start:end] = b"\1" * (end - start)
                spans.append(Span(start, end, kind))
    return sorted(_unfold(span, gone) for span in spans)


def mask(text: str, kinds: Iterable[str] = KINDS) -> str:
    """The text with every instance replaced by its kind: `<EMAIL>`."""
    return substitute(text, find(text, kinds), lambda kind, value: f"<{kind.upper()}>")


def substitute(text: str, spans: list[Span], replacement: Callable[[str, str], str]) -> str:
    """The text with each span replaced by `replacement(kind, value)`."""
    parts, done = [], 0
    for start, end, kind in spans:
        parts += [text[done:start], replacement(kind, text[start:end])]
        done = end
    return "".join([*parts, text[done:]])


def _fold(text: str) -> tuple[str, list[int]]:
    """The text with full-width forms as ASCII and without zero-width characters; for each of those
    its place in the shortened text.
    """
    if text.isascii():
        return text, []
    narrow = FULL_WIDTH.sub(lambda match: chr(ord(match.group()) - 0xFEE0), text)
    gone = [match.start() for match in ZERO_WIDTH.finditer(narrow)]
    return ZERO_WIDTH.sub("", narrow), [place - k for k, place in enumerate(gone)]


def _unfold(span: Span, gone: list[int]) -> Span:
    """The span in the original text."""
    start, last = (p + bisect.bisect_right(gone, p) for p in (span.start, span.end - 1))
    return Span(start, last + 1, span.kind)


ZERO_WIDTH = re.compile("[\u200b-\u200d\u2060\ufeff]")
FULL_WIDTH = re.compile("[\uff01-\uff5e]")

LOCAL_PART = re.compile(r"[\w.%+'-]{1,64}\Z")
DOMAIN = re.compile(r"(?:[\w-]{1,63}\.){1,8}[^\W\d_]{2,24}(?![\w-])")


def _emails(text: str) -> Iterator[tuple[int, int]]:
    at = text.find("@")
    while at >= 0:
        local = LOCAL_PART.search(text[max(0, at - 64) : at])
        domain = DOMAIN.match(text, at + 1)
        if local and domain and (name := local.group().lstrip(".'-%")):
            yield at - len(name), domain.end()
        at = text.find("@", at + 1)


IPV4 = re.compile(r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}")
FULL_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}(?![\w:])")
THREE_GROUPS = re.compile(r":(?:[0-9A-Fa-f]{1,4}:){3}")
DOUBLE_COLON = re.compile(r"(?<=[0-9A-Fa-f])::[0-9A-Fa-f:]{0,35}")
HEX_BEFORE = re.compile(r"[0-9A-Fa-f:]{1,30}\Z")
VERSION = re.compile(
    r"(?:\b(?:v|ver|version|release|rev|build|section|chapter)\W{0,3}|[=<>~^]=\s?|[A-Za-z]-)\Z",
    re.I,
)


def _addresses(text: str) -> Iterator[tuple[int, int]]:
    """Valid IPv4 and IPv6 addresses, public and private alike.

    Four numbers after "version", "v", "release", "build", "section", "==" and the like, or joined
    to a word by "-", are a version. IPv6 needs all eight groups, or "::" with a digit and a first
    group in 2000::/3 or fc00::/6; slices and scope operators look like the rest.
    """
    for match in IPV4.finditer(text):
        start, end = match.span()
        version = VERSION.search(text, max(0, start - 12), start)
        if not version and _alone(text, start, end) and _is_valid(match.group()):
            yield start, end
    for middle in DOUBLE_COLON.finditer(text):
        before = HEX_BEFORE.search(text, max(0, middle.start() - 30), middle.start())
        start, end = before.start() if before else middle.start(), middle.end()
        if _is_routable(text[start:end]) and _alone(text, start, end):
            yield start, end
    if THREE_GROUPS.search(text):  # begins with a literal, so it is found fast
        yield from (m.span() for m in FULL_IPV6.finditer(text))


def _alone(text: str, start: int, end: int) -> bool:
    """Whether no letter, digit or decimal point continues the number on either side."""
    before, after = text[max(0, start - 1) : start], text[end : end + 2]
    if before.isalnum() or before in ("_", ".", "+"):
        return False
    return not (
        after[:1].isalnum() or after[:1] == "_" or (after[:1] == "." and after[1:].isdigit())
    )


def _is_valid(address: str) -> bool:
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def _is_routable(address: str) -> bool:
    if not _is_valid(address):
        return False
    first = int(ipaddress.IPv6Address(address)) >> 112
    return (0x2000 <= first < 0x4000 or first >= 0xFC00) and any(map(str.isdigit, address))


PHONE = re.compile(r"[0-9]{1,15}\)?(?:[ ./-]{0,2}\(?[0-9]{1,12}\)?){1,6}(?:x[0-9]{1,6})?")
NORTH_AMERICAN = re.compile(
    r"(?:1[ .-])?(?:\(?[2-9][0-9]{2}\) ?|[2-9][0-9]{2}[.-])[2-9][0-9]{2}[.-][0-9]{4}"
    r"(?:x[0-9]{1,6})?"
)
PHONE_WORD = re.compile(r"\b(?:(?:tele)?phone|tel|call|fax|mobile|cell|dial|whatsapp)\b", re.I)
PHONE_REACH = 32


def _phones(text: str) -> Iterator[tuple[int, int]]:
    """Numbers of 8 to 15 digits after "+", North American ones, and any of 7 or more that follow a
    word for telephone within 32 characters.
    """
    for match in PHONE.finditer(text):
        start, end = match.span()
        digits = sum(map(str.isdigit, match.group().partition("x")[0]))
        if 7 <= digits <= 15:
            while start and text[start - 1] in "(+":
                start -= 1
            if _alone(text, start, end) and _is_phone(text, start, match.group(), digits):
                yield start, end


def _is_phone(text: str, start: int, number: str, digits: int) -> bool:
    if text[start] == "+":
        return digits >= 8 and number[0] != "0" and "." not in number[-3:]
    if NORTH_AMERICAN.fullmatch(number):
        return True
    return PHONE_WORD.search(text, max(0, start - PHONE_REACH), start) is not None


CARD = re.compile(r"(?:[2-6][0-9]{3}|1800)(?:[ -]?[0-9]){8,15}")


def _cards(text: str) -> Iterator[tuple[int, int]]:
    """Payment card numbers: 12 to 19 digits of a known range, alone, passing the Luhn check."""
    for match in CARD.finditer(text):
        if _alone(text, *match.span()) and luhn(match.group()):
            yield match.span()


def luhn(number: str) -> bool:
    """Whether the last digit is the Luhn check digit (ISO/IEC 7812-1, annex B) of the others."""
    digits = [int(c) for c in reversed(number) if c.isdigit()]
    doubled = (d * 2 - 9 if d > 4 else d * 2 for d in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0 and len(set(digits)) > 1


# Countries by the length of their numbers: the ISO 13616 registry.
IBAN_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FO GL NL",
    19: "MK SI",
    20: "AT BA EE KZ LT LU XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HU LB PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU",
    31: "MT SC",
    32: "LC",
}
IBAN_LENGTHS = {c: n for n, countries in IBAN_COUNTRIES.items() for c in countries.split()}
IBAN = re.compile(r"[0-9]{2}(?: ?[A-Za-z0-9]){11,30}")


def _ibans(text: str) -> Iterator[tuple[int, int]]:
    """Account numbers of a registered country, of its length, with a valid mod-97 check."""
    for match in IBAN.finditer(text):
        start = match.start() - 2
        length = IBAN_LENGTHS.get(text[max(0, start) : start + 2].upper(), 99)
        places = [i for i in range(max(0, start), match.end()) if text[i] != " "][:length]
        account = "".join(text[i] for i in places)
        if len(places) == length and mod97(account) and _alone(text, start, places[-1] + 1):
            yield start, places[-1] + 1


def mod97(account: str) -> bool:
    """Whether the check digits of an IBAN without spaces are right (ISO 7064, MOD 97-10)."""
    return int("".join(str(int(c, 36)) for c in account[4:] + account[:4])) % 97 == 1


TOKENS = {
    "AKIA": re.compile(r"AKIA[A-Z0-9]{16}"),  # AWS access key ids
    "ASIA": re.compile(r"ASIA[A-Z0-9]{16}"),
    "gh": re.compile(r"gh(?:[pousr]_[A-Za-z0-9]{36,255}|ub_pat_\w{60,255})"),  # GitHub
    "xox": re.compile(r"xox[abprs]-[A-Za-z0-9-]{10,255}"),  # Slack
    "AIza": re.compile(r"AIza[\w-]{35}"),  # Google
    "k_live_": re.compile(r"k_live_[A-Za-z0-9]{16,255}"),  # Stripe
    "sk-": re.compile(r"sk-[\w-]{32,255}"),
    "hf_": re.compile(r"hf_[A-Za-z0-9]{30,255}"),
    "eyJ": re.compile(r"eyJ[\w-]{10,2000}\.eyJ[\w-]{10,4000}\.[\w-]{10,2000}"),  # JSON web token
}
SECRET_NAMES = ("secret", "token", "passw", "pwd", "api", "access", "private", "credential")
ASSIGNED = re.compile(
    r"(?:secret|token|passw(?:or)?d|pwd|api_?key|access_?key|private_?key|credential)\w{0,20}[\"']?"
    r"\s{0,4}[:=]\s{0,4}[\"']?([A-Za-z0-9+/=_.!@#$%^&*-]{16,256})(?![\w(\[])",
    re.I,
)
PEM_BEGIN = re.compile(r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY-----")
PEM_END = re.compile(r"-----END [A-Z ]{0,32}PRIVATE KEY-----")
PEM_CHARS = 16384
MIN_ENTROPY = 3.5


def _secrets(text: str) -> Iterator[tuple[int, int]]:
    """Private keys, tokens of known form, and random-looking values assigned to telling names."""
    for begin in PEM_BEGIN.finditer(text) if "PRIVATE KEY-----" in text else ():
        if end := PEM_END.search(text, begin.end(), begin.end() + PEM_CHARS):
            yield begin.start(), end.end()
    for mark, pattern in TOKENS.items():
        for match in _at_each(mark, pattern, text, text):
            if not text[max(0, match.start() - 1) : match.start()].isalnum():
                yield match.span()
    lower = text.lower()
    lower = lower if len(lower) == len(text) else text  # some letters become two
    for name in SECRET_NAMES:
        for match in _at_each(name, ASSIGNED, lower, text):
            if _looks_random(match.group(1)):
                yield match.span(1)


def _at_each(
    mark: str, pattern: re.Pattern[str], haystack: str, text: str
) -> Iterator[re.Match[str]]:
    """Matches of a pattern in `text` at each place where `haystack` has the mark."""
    at = haystack.find(mark)
    while at >= 0:
        if match := pattern.match(text, at):
            yield match
        at = haystack.find(mark, at + 1)


def _looks_random(value: str) -> bool:
    """Letters and digits mixed, and at least 3.5 bits of entropy per character."""
    if not (any(c.isdigit() for c in value) and any(c.isalpha() for c in value)):
        return False
    shares = [n / len(value) for n in Counter(value).values()]
    return -sum(p * math.log2(p) for p in shares) >= MIN_ENTROPY


FINDERS: dict[str, Callable[[str], Iterator[tuple[int, int]]]] = {
    "secret": _secrets,
    "email": _emails,
    "iban": _ibans,
    "card": _cards,
    "ip": _addresses,
    "phone": _phones,
}
