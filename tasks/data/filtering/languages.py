"""The language of each text, by the n-gram models of Lingua (extra `language`).

Lingua weighs n-grams of one to five letters of a short text, and of three letters of a long one
(120 characters and more); 75 languages, each a model of its own, loaded when first needed.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from cluster.errors import MissingExtra
from cluster.settings import nearest

# What is looked at: the first words tell; the rest of a long text would cost and say the same.
CHARACTERS = 1000
SPACE = re.compile(r"\s+")


def identify(texts: Sequence[str], accuracy: str = "high") -> list[tuple[str | None, float]]:
    """For each text the ISO 639-1 code of its likeliest language and how likely that is, 0 to 1.

    None, 0 for a text without letters. `accuracy` "low" uses three-letter models only: a tenth of
    the memory and an eighth of the time, and as good on texts of 120 characters and more.
    Raises MissingExtra where Lingua is not installed.
    """
    detector = _detector(accuracy)
    return [_likeliest(detector, SPACE.sub(" ", text[:CHARACTERS])) for text in texts]


def known_languages() -> list[str]:
    """The ISO 639-1 codes that can be told apart."""
    from lingua import Language

    return sorted(_code(language) for language in Language.all())


def check_codes(codes: Sequence[str]) -> None:
    """Raise ValueError naming the nearest code for one that is not known."""
    known = known_languages()
    for code in codes:
        if code not in known:
            raise ValueError(f"unknown language '{code}': {nearest(code, known)}")


@cache
def _detector(accuracy: str) -> Any:
    try:
        from lingua import LanguageDetectorBuilder
    except ImportError as error:
        raise MissingExtra(
            "`filters.languages` needs Lingua: uv pip install 'headrace[language]'"
        ) from error
    builder = LanguageDetectorBuilder.from_all_languages()
    return (builder.with_low_accuracy_mode() if accuracy == "low" else builder).build()


def _likeliest(detector: Any, text: str) -> tuple[str | None, float]:
    first = next(iter(detector.compute_language_confidence_values(text)), None)
    return (_code(first.language), first.value) if first and first.value > 0 else (None, 0.0)


def _code(language: Any) -> str:
    return str(language.iso_code_639_1.name.lower())
