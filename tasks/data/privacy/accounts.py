"""Payment card numbers and international bank account numbers, both with their check digits."""

import re
from collections.abc import Iterator

from tasks.data.privacy.spans import RUN, digits_of, is_alone

# Issuer ranges, first and last prefix, and the lengths in use (ISO/IEC 7812; the issuers' tables).
ISSUERS: tuple[tuple[str, str, tuple[int, ...]], ...] = (
    ("4", "4", (13, 16, 19)),  # Visa
    ("51", "55", (16,)),  # Mastercard
    ("2221", "2720", (16,)),
    ("34", "34", (15,)),  # American Express
    ("37", "37", (15,)),
    ("300", "305", (14, 16)),  # Diners Club
    ("3095", "3095", (14, 16)),
    ("36", "36", (14, 16)),
    ("38", "39", (14, 16)),
    ("6011", "6011", (16, 19)),  # Discover
    ("644", "659", (16, 19)),
    ("62", "62", (16, 17, 18, 19)),  # UnionPay
    ("81", "81", (16,)),
    ("35", "35", (16, 19)),  # JCB
    ("2131", "2131", (15,)),
    ("1800", "1800", (15,)),
    ("2200", "2205", (16, 19)),  # Mir
    ("60", "60", (16,)),  # RuPay
    ("508", "508", (16,)),
    ("9792", "9792", (16,)),  # Troy
    ("5019", "5019", (16,)),  # Dankort
    ("50", "50", (12, 16)),  # Maestro; its other lengths need a word
    ("56", "58", (12, 16)),
    ("6304", "6304", (12, 16)),
    ("6390", "6390", (12, 16)),
    ("67", "67", (12, 16)),
)
CARD = re.compile(
    r"(?<![0-9])(?:[0-9]{12,19}|[0-9]{4}(?P<s>[ -])[0-9]{4}(?P=s)[0-9]{4}(?P=s)[0-9]{1,4}"
    r"(?:(?P=s)[0-9]{3})?|[0-9]{4}(?P<t>[ -])[0-9]{6}(?P=t)[0-9]{4,5})(?![0-9])"
)
CARD_WORD = re.compile(
    r"\b(?:card|visa|maestro|mastercard|debit|credit|karte|carte|tarjeta|cc\b)", re.I
)
# Article numbers have 12 or 13 digits too, and one in ten passes the check.
ARTICLE = re.compile(r"\b(?:ean|isbn|gtin|upc|barcode)\W{0,3}\Z", re.I)
CARD_REACH = 48
# What may share a run of numbers with a card: an expiry date, a security code, a house number.
BESIDE_DIGITS = 10


def cards(text: str, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Card numbers: alone, passing the Luhn check, of a known issuer's range and length or after a
    word for card; in one piece, or in groups as printed on the card with nothing but a date and a
    code beside them.
    """
    for run in RUN.finditer(text, lo, hi):
        if run.end() - run.start() < 12:
            continue
        for match in CARD.finditer(text, *run.span()):
            number = digits_of(match.group())
            beside = len(run.group()) - len(match.group())
            if len(number) < len(match.group()) and beside > BESIDE_DIGITS:
                continue
            if _is_card(text, match.start(), number) and is_alone(text, *match.span()):
                yield match.span()


def _is_card(text: str, start: int, number: str) -> bool:
    before = text[max(0, start - CARD_REACH) : start]
    if not luhn(number) or ARTICLE.search(before):
        return False
    if any(
        len(number) in lengths and low <= number[: len(low)] <= high
        for low, high, lengths in ISSUERS
    ):
        return True
    return CARD_WORD.search(before) is not None


def luhn(number: str) -> bool:
    """Whether the last digit is the Luhn check digit (ISO/IEC 7812-1, annex B) of the others."""
    digits = [int(c) for c in reversed(number) if c.isdigit()]
    doubled = (d * 2 - 9 if d > 4 else d * 2 for d in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0 and len(set(digits)) > 1


# Countries by the length of their numbers: the ISO 13616 registry.
IBAN_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "LY PT ST",
    26: "IS TR",
    27: "BI DJ FR GR IT MC MR SM",
    28: "AL AZ BY CY DO GT HN HU LB NI PL SV",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
IBAN_LENGTHS = {c: n for n, countries in IBAN_COUNTRIES.items() for c in countries.split()}
IBAN = re.compile(r"(?<![A-Za-z0-9_])[A-Za-z]{2}[0-9]{2}(?=[ -]?[A-Za-z0-9])")
REST = re.compile(r"(?:[ -]?[A-Za-z0-9]){11,30}")


def ibans(text: str, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Account numbers of a registered country, of its length, with a valid mod-97 check."""
    for match in IBAN.finditer(text, lo, hi):
        start = match.start()
        length = IBAN_LENGTHS.get(text[start : start + 2].upper(), 99)
        rest = REST.match(text, match.end())
        if not rest or length > 33:
            continue
        places = [i for i in range(start, rest.end()) if text[i] not in " -"][:length]
        account = "".join(text[i] for i in places)
        if len(places) == length and mod97(account) and is_alone(text, start, places[-1] + 1):
            yield start, places[-1] + 1


def mod97(account: str) -> bool:
    """Whether the check digits of an IBAN without spaces are right (ISO 7064, MOD 97-10)."""
    return int("".join(str(int(c, 36)) for c in account[4:] + account[:4])) % 97 == 1
