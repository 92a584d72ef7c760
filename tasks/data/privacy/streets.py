"""Street addresses by pattern: a house number beside a street name, post boxes, flats and suites.

A pattern finds addresses written in the usual forms of some languages; a street whose name has none
of the words below it does not recognise. An NER model with an address label finds more.
"""

import re
from collections.abc import Iterator

NAME = r"(?:[A-ZÀ-ÞĀ-ŽΑ-ΩА-Я][\w'’.-]{0,30})"
ENGLISH = (
    "street|st|avenue|ave|road|rd|boulevard|blvd|lane|ln|drive|dr|court|ct|square|sq|terrace|place|pl"
    "|parkway|pkwy|highway|hwy|circle|cir|crescent|close|grove|mews|alley|trail|way|row|walk|quay"
)
ROMANCE = (
    "rue|avenue|boulevard|place|chemin|impasse|allée|quai|route|via|viale|piazza|corso|largo|vicolo"
    "|calle|avenida|plaza|paseo|camino|carrer|carretera|rua|praça|travessa|estrada|strada|bulevardul"
    "|ulica|ul\\.|al\\.|улица|ул\\."
)
ENDINGS = (
    "strasse|straße|str\\.|weg|gasse|platz|allee|ring|damm|ufer|straat|laan|plein|gracht|kade|dijk"
    "|gatan|gata|vägen|väg|veien|vei|vej|gade|katu|tie|polku|utca|út|útja|tér|tere|ulice|náměstí"
)
UNIT = (
    r"(?i:(?:apt|apartment|suite|ste|unit|flat|floor|room|rm|p\.?o\.? box|postfach|psc|box)"
    r"\.? ?#?[0-9]+[a-z]?)"
)
NUMBER = r"[0-9]{1,5}(?:[/-][0-9]{1,4})?[A-Za-z]?"
OF = r"(?:(?:de|du|des|la|le|della|dei|del|da|do|dos|das|d'|l')[ ]?)*"
COMPASS = r"(?:(?i:[nsew]|north|south|east|west)\.? )?"
FORMS = (
    rf"\b{NUMBER},? {COMPASS}(?:{NAME} ){{1,4}}(?i:{ENGLISH})\b\.?",
    rf"\b(?:{NUMBER},? )?(?:bis )?(?i:{ROMANCE}) {OF}(?:{NAME}[ ,]+){{1,4}}"
    rf"(?:n[.º°]? ?)?{NUMBER}\b",
    rf"\b{NUMBER},? (?i:{ROMANCE}) {OF}{NAME}(?: {NAME}){{0,3}}",
    rf"\b(?:{NAME}[ -]){{0,3}}[A-ZÀ-Þ][\w-]{{1,30}}(?:{ENDINGS}) {NUMBER}\b",
    rf"\b(?:{NAME} ){{1,3}}(?i:{ENDINGS}) {NUMBER}\b\.?",
    rf"\b{UNIT}\b",
)
STREET = re.compile("|".join(f"(?:{form})" for form in FORMS))
TAIL = re.compile(rf"(?:,? {UNIT})|,? [A-Z]{{2}} [0-9]{{5}}(?:-[0-9]{{4}})?\b")


def addresses(text: str, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Street addresses within `lo` to `hi`, with the flat or suite and the zip code that follow."""
    for match in STREET.finditer(text, lo, hi):
        end = match.end()
        while tail := TAIL.match(text, end):
            end = tail.end()
        yield match.start(), end
