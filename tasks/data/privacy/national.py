"""National identity, tax and insurance numbers, by form, check digits (`python-stdnum`) and, where
those let too many other numbers through, a word that announces one.
"""

import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from tasks.data.privacy.spans import digits_of, is_alone


class Rule(NamedTuple):
    """A form of number, the `stdnum` module that checks it, and words one of which must precede it
    ("": the form and its check are enough).
    """

    country: str
    form: str
    module: str
    words: str = ""


class Checker(Protocol):
    """A module of `stdnum`."""

    def is_valid(self, number: str) -> bool:
        """Whether form and check digits are right."""


D2, D3, D4 = "[0-9]{2}", "[0-9]{3}", "[0-9]{4}"
DAY = f"{D2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])"
REACH = 48
# Forms that no date, version, price or hash takes stand alone; plain runs of digits need a word.
RULES = (
    Rule("US", rf"{D3}-{D2}-{D4}", "us.ssn"),
    Rule("US", rf"9{D2}-{D2}-{D4}", "us.itin"),
    Rule("US", rf"{D3} ?{D2} ?{D4}", "us.ssn", "ssn|social security|taxpayer"),
    Rule("GB", r"[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D]", ""),
    Rule("GB", rf"{D3} ?{D3} ?{D4}", "gb.nhs", "nhs"),
    Rule("ES", r"[0-9]{8}-?[A-Z]", "es.dni"),
    Rule("ES", r"[XYZ]-?[0-9]{7}-?[A-Z]", "es.nie"),
    Rule("FR", rf"[12] {D2} (?:0[1-9]|1[0-2]|[2-9][0-9]) (?:{D2}|2[AB]) {D3} {D3} ?{D2}", "fr.nir"),
    Rule("FR", r"[12][0-9]{4}[0-9AB]{2}[0-9]{8}", "fr.nir", "nir|sécurité sociale|insee|numéro"),
    Rule(
        "IT",
        r"[A-Z]{6}[0-9LMNP-V]{2}[A-EHLMPRST][0-9LMNP-V]{2}[A-Z][0-9LMNP-V]{3}[A-Z]",
        "it.codicefiscale",
    ),
    Rule("DE", r"[1-9][0-9](?: ?[0-9]{3}){3}", "de.idnr", "steuer|idnr|tax"),
    Rule("NL", r"[0-9]{9}|[0-9]{4}\.[0-9]{2}\.[0-9]{3}", "nl.bsn", "bsn|sofi|burgerservice"),
    Rule("PL", r"[0-9]{11}", "pl.pesel", "pesel"),
    Rule("BR", rf"{D3}\.{D3}\.{D3}-{D2}", "br.cpf"),
    Rule("BR", r"[0-9]{11}", "br.cpf", "cpf"),
    Rule("SE", rf"(?:19|20)?{DAY}[-+]?{D4}", "se.personnummer", "personn|personal"),
    Rule("FI", rf"(?:0[1-9]|[12][0-9]|3[01])(?:0[1-9]|1[0-2]){D2}[-+A]{D3}[0-9A-Z]", "fi.hetu"),
    Rule("NO", r"[0-9]{6} ?[0-9]{5}", "no.fodselsnummer", "fødsels|fodsels|personn"),
    Rule("DK", rf"[0-9]{{6}}-?{D4}", "dk.cpr", "cpr|personn"),
    Rule("CH", rf"756\.{D4}\.{D4}\.{D2}", "ch.ssn"),
    Rule("BE", rf"{D2}\.{D2}\.{D2}-{D3}\.{D2}", "be.nn"),
    Rule("PT", r"[0-9]{8} ?[0-9] ?[A-Z]{2}[0-9]", "pt.cc"),
    Rule("IE", r"[0-9]{7}[A-W][A-IW]?", "ie.pps", "pps"),
    Rule("GR", r"[0-9]{11}", "gr.amka", "amka|αμκα"),
    Rule("HR", r"[0-9]{11}", "hr.oib", "oib"),
    Rule("RO", r"[1-9][0-9]{12}", "ro.cnp", "cnp"),
    Rule("CZ", rf"[0-9]{{6}}/{D3}[0-9]?", "cz.rc", "rodné|rodne|rč|r\\.č"),
    Rule("BG", r"[0-9]{10}", "bg.egn", "egn|егн"),
    Rule("TR", r"[1-9][0-9]{10}", "tr.tckimlik", "kimlik|tckn"),
    Rule("IL", r"[0-9]{9}", "il.idnr", "teudat|zehut|israeli id"),
    Rule("CA", rf"{D3}[ -]?{D3}[ -]?{D3}", "ca.sin", r"\bsin\b|social insurance"),
    Rule("MX", r"[A-Z]{4}[0-9]{6}[HM][A-Z]{5}[0-9A-Z][0-9]", "mx.curp"),
    Rule("CL", rf"[0-9]{{1,2}}\.{D3}\.{D3}-[0-9kK]", "cl.rut"),
    Rule("AR", rf"[0-9]{{1,2}}\.{D3}\.{D3}", "ar.dni", "dni"),
    Rule("AU", rf"{D3} ?{D3} ?{D3}", "au.tfn", "tfn|tax file"),
    Rule("IN", rf"{D4} ?{D4} ?{D4}", "in_.aadhaar", "aadhaar|uidai"),
    Rule("IN", r"[A-Z]{3}[ABCFGHLJPT][A-Z][0-9]{4}[A-Z]", "in_.pan", r"\bpan\b|tax"),
    Rule("CN", rf"[1-9][0-9]{{5}}(?:19|20){DAY}{D3}[0-9Xx]", "cn.ric"),
    Rule("KR", rf"{DAY}-[1-4][0-9]{{6}}", "kr.rrn"),
    Rule("ZA", r"[0-9]{13}", "za.idnr", r"\bid\b|identity"),
)
ANY = re.compile("|".join(rf"(?:{rule.form})(?![A-Za-z0-9])" for rule in RULES))
FORMS = tuple(re.compile(rf"(?:{rule.form})(?![A-Za-z0-9])") for rule in RULES)
WORDS = tuple(re.compile(rule.words, re.I) if rule.words else None for rule in RULES)
WORD_START = re.compile(r"(?<![A-Za-z0-9_.])(?=[A-Z0-9])")


def national_ids(text: str, lo: int, hi: int) -> Iterator[tuple[int, int]]:
    """Numbers of persons that begin at `lo` to `hi`."""
    for start in WORD_START.finditer(text, lo, hi):
        place = start.start()
        if ANY.match(text, place):
            spans = (_span(text, place, *rule) for rule in zip(RULES, FORMS, WORDS, strict=True))
            if span := next(filter(None, spans), None):
                yield span


def _span(
    text: str, place: int, rule: Rule, form: re.Pattern[str], words: re.Pattern[str] | None
) -> tuple[int, int] | None:
    """Where a number of this rule lies that begins at a place."""
    match = form.match(text, place)
    if not (match and is_alone(text, *match.span()) and _is_meant(text, place, words)):
        return None
    made_up = len(set(digits_of(match.group()))) == 1
    if made_up or (rule.module and not _checker(rule.module).is_valid(match.group())):
        return None
    return match.span()


def _is_meant(text: str, start: int, words: re.Pattern[str] | None) -> bool:
    return words is None or bool(words.search(text[max(0, start - REACH) : start]))


@cache
def _checker(module: str) -> Checker:
    return cast(Checker, import_module(f"stdnum.{module}"))
