"""Telephone numbers, by what is written around them and by the numbering plans of countries.

A number counts when it is international (`+`), has the North American form, follows a word that
announces a telephone, or is written the national way (groups after a trunk 0) and the numbering
plan of one of the regions has it (`phonenumbers`, Google's metadata).
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise

from tasks.data.privacy.obfuscation import fold
from tasks.data.privacy.spans import RUN, digits_of, is_alone

_REGIONS = (
    "US GB DE FR ES IT NL BE CH AT SE NO DK FI PL CZ PT IE GR HU RO AU NZ ZA IN BR MX AR JP CN KR "
    "RU UA TR IL"
)
REGIONS = tuple(_REGIONS.split())
FEWEST, MOST = 7, 15
# Announce a telephone whatever the digits look like: what it is called, to call, my number.
_STRONG = (
    "phone phones telephone tel tél telefon telefono teléfono telefone téléphone telefoon "
    "telefonnummer puhelin puh tlf phonenumber phone_number mobile mobil mobiltelefon móvil "
    "celular cellulare telemóvel mobiel portable handy rufnummer cell cellphone fax telefax dial "
    "call calls hotline helpline voicemail whatsapp viber телефон телефону тел моб мобильный факс "
    "мобільний τηλέφωνο τηλ κινητό φαξ טלפון נייד פקס 电话 手机 電話 携帯 전화 휴대폰 "
    "anrufen rufen chiamami chiamare chiamate llámame llámanos llamar appelez appeler ligue ligar "
    "zadzwoń dzwonić zavolejte volejte soita soittakaa hívjon hívja sunați arayın позвоните "
    "звоните подзвоніть телефонуйте καλέστε התקשר"
)
_MINE = (
    "my number,ring me,ring meg,ring mig,ring til,bel mij,bel ons,meine nummer,mon numéro,"
    "mi número,il mio numero,meu número,mijn nummer,mitt nummer,mit nummer,mój numer,numeroni"
)
STRONG = (*_STRONG.split(), *_MINE.split(","))
# Also said of other numbers: these need digits that look like a telephone's.
_WEAK = (
    "calling called ring ringing text texting sms reach contact contacted answering answer "
    "message messages registered dialed dialled number nummer numéro número numero numer numeroon "
    "číslo szám număr αριθμός номер номеру numara numarası 番号 号码 번호 מספר desk office "
    "work home direct extension kontakt contacto contatto signal telegram"
)
WEAK = tuple(_WEAK.split())
# Stand right behind a number.
_BEHIND = "office fax mobile cell home work phone desk tel direct mob"
BEHIND = (*_BEHIND.split(), "is my cell", "is my phone", "is my mobile", "is my number")
# Stand right before numbers that look like a telephone's and are none.
_NEVER = (
    "invoice order ticket tracking serial part model doi isbn issn arxiv patent case ref reference "
    "account acct sku id license licence passport policy"
)
NEVER = tuple(_NEVER.split())
BEFORE_REACH, BEHIND_REACH = 40, 16
NORTH_AMERICAN = re.compile(
    r"(?<![0-9])(?:(?:00)?1[ .-]|8 (?=\())?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])"
    r"[2-9][0-9]{2}[ .-][0-9]{4}(?![0-9])"
)
EXTENSION = re.compile(r" ?(?:x|ext\.? ?|# ?)[0-9]{1,6}(?![0-9A-Za-z])", re.I)
PLUS = re.compile(r"\+\(?[1-9]")
# Dates, times of day in digits, amounts and ratios.
OTHER = re.compile(
    r"(?:19|20)[0-9]{2}([-./])[0-9]{1,2}\1[0-9]{1,2}(?:[ -]+[0-9]{1,2})?"
    r"|[0-9]{1,2}([-./])[0-9]{1,2}\2(?:19|20)[0-9]{2}(?:[ -]+[0-9]{1,2})?"
    r"|[0-9]{5,}\.[0-9]+|(?:19|20)[0-9]{2} ?[-/] ?(?:19|20)[0-9]{2}|[0-9]{3}(?:\.[0-9]{3}){2,3}"
)
CENTS = re.compile(r"\.[0-9]{1,2}\Z")
TIME_BEFORE = re.compile(r"[0-9][:T]\Z")
SECURITY_NUMBER = re.compile(r"[0-9]{3}-[0-9]{2}-[0-9]{4}")
TRUNK = re.compile(r"0[0-9]{1,5}(?:(?:\) ?|[ /.-])[0-9]{2,8}){1,4}\Z")
AREA_CODE = re.compile(r"\(0[1-9][0-9]{1,3}\) ?[0-9]{2,8}(?:[ -][0-9]{2,5}){0,3}\Z")
ABROAD = re.compile(r"00[1-9][0-9]{0,2}(?:[ ./-][0-9]{2,8}){1,5}\Z")
DECIMAL = re.compile(r"[0-9]+\.[0-9]+\Z")
POST_CODE = re.compile(r"[0-9]+(?: [0-9]+)?\Z")
HOUSE_NUMBER = re.compile(r" [A-Z][a-z]")
CODE_BEFORE = re.compile(r"(?:[=(\[{*/<>!|&^%]|0[xX])\s?\Z")


def _words(words: Iterable[str]) -> str:
    """Any of the words in the plain spelling of each way to write it: `Т` of `Тел` looks Latin."""
    cased = {fold(c).text for w in words for c in (w, w.capitalize(), w.upper())}
    return "|".join(map(re.escape, sorted(cased, key=lambda w: (-len(w), w))))


# A word followed by "(", "_" or "." and a letter is a name in a program.
STRONG_WORD = re.compile(rf"(?<![A-Za-z0-9])(?:{_words(STRONG)})(?![A-Za-z(]|\.[A-Za-z])", re.I)
WEAK_WORD = re.compile(rf"(?<![A-Za-z0-9_])(?:{_words(WEAK)})(?![A-Za-z(_]|\.[A-Za-z])", re.I)
NEVER_WORD = re.compile(
    rf"(?<![A-Za-z0-9])(?:{_words(NEVER)})(?:[ .]{{1,2}}(?:number|no|nr)(?: is)?)?"
    r"[\s:#.(-]{0,3}\Z",
    re.I,
)
BEHIND_WORD = re.compile(rf"[\s,:;()-]{{1,3}}(?:{_words(BEHIND)})(?![A-Za-z(_])", re.I)


def phones(
    text: str, lo: int, hi: int, regions: tuple[str, ...] = REGIONS
) -> Iterator[tuple[int, int]]:
    """Telephone numbers among the runs of digits at `lo` to `hi`, extensions included."""
    for run in RUN.finditer(text, lo, hi):
        start, end = run.span()
        if end - start < FEWEST:
            continue
        found = (
            [*_international(text, start, end)]
            or [*_north_american(text, start, end)]
            or [*_by_context(text, start, end, regions)]
        )
        for first, last in found:
            extension = EXTENSION.match(text, last, last + 12)
            last = extension.end() if extension else last
            if is_alone(text, first + (text[first] == "+"), last) or _is_signed(text, first, last):
                yield first, last


def _is_signed(text: str, first: int, last: int) -> bool:
    """As `is_alone`, for a number whose own "+" would stand before it."""
    return text[first] == "+" and is_alone(text, first, last)


def _international(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    begin = start - (2 if text[max(0, start - 2) : start] == "+(" else 1)
    marks = [m.start() for m in PLUS.finditer(text, max(0, begin), end)]
    for place, nxt in pairwise([*marks, end]):
        number = _trimmed(text[place:nxt].rstrip(" ()./+-"))
        digits = digits_of(number)
        grouped = len(digits) + 1 < len(number)
        if "." in number[-3:] or not 8 <= len(digits) <= MOST:
            continue
        if (grouped or len(digits) >= 10) and _has_country(digits):
            yield place, place + len(number)


def _trimmed(number: str) -> str:
    """Without the last groups when these make it too long for a telephone number."""
    while len(digits_of(number)) > MOST and (cut := re.search(r"[ ()./-]+[0-9]+\Z", number)):
        number = number[: cut.start()]
    return number


@lru_cache(maxsize=4096)
def _has_country(digits: str) -> bool:
    from phonenumbers import COUNTRY_CODE_TO_REGION_CODE as CODES

    return any(int(digits[:n]) in CODES for n in (1, 2, 3))


def _north_american(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    first = start - (text[start - 1 : start] == "(")
    for match in NORTH_AMERICAN.finditer(text, first, end):
        lines = match.group()
        if lines.count(" ") >= 2 and (match.start() > start or match.end() < end):
            continue  # a column of numbers
        if not text[match.end() : end].startswith((".", "-", "/")):
            yield match.span()


def _by_context(
    text: str, start: int, end: int, regions: tuple[str, ...]
) -> Iterator[tuple[int, int]]:
    number = text[start:end]
    digits = digits_of(number)
    if not FEWEST <= len(digits) <= MOST or OTHER.fullmatch(number):
        return
    first = start - (text[start - 1 : start] == "(" and ")" in number)
    grouped = len(digits) < len(number)
    before = text[max(0, first - BEFORE_REACH) : first]
    if TIME_BEFORE.search(before) or (CODE_BEFORE.search(before) and not grouped):
        return
    strong = STRONG_WORD.search(before) or BEHIND_WORD.match(text, end, end + BEHIND_REACH)
    if strong:
        said = not SECURITY_NUMBER.fullmatch(number)
    elif NEVER_WORD.search(before) or _is_before_street(text, number, end):
        said = False
    else:
        said = _is_written_out(text[first:end], digits, regions) or (
            WEAK_WORD.search(before) is not None and _looks_dialled(number, digits, regions)
        )
    if said:
        yield first, end


def _looks_dialled(number: str, digits: str, regions: tuple[str, ...]) -> bool:
    """Two to five groups of two digits or more, the same mark between them, as people write them;
    in one piece only when a plan has it.
    """
    groups = re.findall("[0-9]+", number)
    if SECURITY_NUMBER.fullmatch(number) or len(digits) > 13 or "/" in number:
        return False
    if len(groups) == 1:
        return len(digits) >= 10 and _is_national(digits, regions)
    mixed = "." in number and "-" in number
    return (
        len(groups) <= 5 and min(map(len, groups)) >= 2 and not mixed and not CENTS.search(number)
    )


def _is_before_street(text: str, number: str, end: int) -> bool:
    """Whether this may be a house number, perhaps after a post code: `17031 2202 Main Street`."""
    return HOUSE_NUMBER.match(text, end) is not None and POST_CODE.match(number) is not None


def _is_written_out(number: str, digits: str, regions: tuple[str, ...]) -> bool:
    """Whether the form alone tells: an area code in brackets, 00 and a country, or a trunk 0 and a
    number of the plan. Two groups with a point are a decimal number.
    """
    if len(digits) < 9 or DECIMAL.match(number):
        return False
    if AREA_CODE.match(number):
        return True
    if ABROAD.match(number):
        return _is_planned(digits[2:])
    return bool(TRUNK.match(number)) and _is_national(digits, regions)


@lru_cache(maxsize=65536)
def _is_planned(digits: str) -> bool:
    """Whether a country's numbering plan has this number, which begins with the country's code."""
    import phonenumbers

    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(f"+{digits}"))
    except phonenumbers.NumberParseException:
        return False


@lru_cache(maxsize=65536)
def _is_national(digits: str, regions: tuple[str, ...]) -> bool:
    """Whether the numbering plan of a region has this number."""
    import phonenumbers

    for region in regions:
        try:
            parsed = phonenumbers.parse(digits, region)
        except phonenumbers.NumberParseException:
            continue
        if phonenumbers.is_valid_number(parsed):
            return True
    return False
