"""WordNet's words: irregular forms and synonyms, read from its own files where it is installed.

The files are in $WNSEARCHDIR, or where Debian's package `wordnet-base` puts them. Words are looked
up as WordNet's `morphy` does: listed exceptions, else endings detached, then what the index has.
Source: Fellbaum, WordNet: an electronic lexical database, 1998; wndb(5WN), morphy(7WN).
"""

import os
from functools import cache
from pathlib import Path

from cluster.errors import BadInput

DEBIAN = "/usr/share/wordnet"
ENDINGS: dict[str, tuple[tuple[str, str], ...]] = {
    "noun": (
        ("s", ""),
        ("ses", "s"),
        ("ves", "f"),
        ("xes", "x"),
        ("zes", "z"),
        ("ches", "ch"),
        ("shes", "sh"),
        ("men", "man"),
        ("ies", "y"),
    ),
    "verb": (
        ("s", ""),
        ("ies", "y"),
        ("es", "e"),
        ("es", ""),
        ("ed", "e"),
        ("ed", ""),
        ("ing", "e"),
        ("ing", ""),
    ),
    "adj": (("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
    "adv": (),
}


def folder() -> Path:
    """Where WordNet's files are, if they are anywhere."""
    return Path(os.environ.get("WNSEARCHDIR", DEBIAN))


def irregular_forms() -> dict[str, str]:
    """The lists of irregular forms, `was -> be`; empty where WordNet is not installed."""
    found: dict[str, str] = {}
    for kind in ("adj", "adv", "noun", "verb"):
        found |= {form: bases[0] for form, bases in _exceptions(folder(), kind).items()}
    return found


def synonyms(word: str) -> frozenset[str]:
    """The single words that share a meaning with `word`, itself included.

    Raises BadInput where WordNet is not installed.
    """
    return _synonyms(folder(), word)


@cache
def _synonyms(where: Path, word: str) -> frozenset[str]:
    if not (where / "data.noun").is_file():
        raise BadInput(
            f"WordNet is not in {where}; install it (Debian: wordnet-base), set WNSEARCHDIR to "
            "its folder, or score METEOR without synonyms"
        )
    found = {word}
    for kind in ENDINGS:
        index = _index(where, kind)
        for offset in dict.fromkeys(o for form in _forms(where, word, kind) for o in index[form]):
            found.update(_members(where, kind, offset))
    return frozenset(found)


def _forms(where: Path, word: str, kind: str) -> list[str]:
    """The base forms of a word that the index has."""
    listed = _exceptions(where, kind).get(word)
    detached = [word[: -len(old)] + new for old, new in ENDINGS[kind] if word.endswith(old)]
    return [form for form in [word, *(listed or detached)] if form in _index(where, kind)]


def _members(where: Path, kind: str, offset: int) -> list[str]:
    """The words of one synset, phrases left out."""
    data = _data(where, kind)
    fields = data[offset : data.index(b"\n", offset)].decode().split(" ")
    words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
    return [word.split("(")[0] for word in words if "_" not in word]


@cache
def _index(where: Path, kind: str) -> dict[str, list[int]]:
    found = {}
    for line in (where / f"index.{kind}").read_text().splitlines():
        if not line.startswith(" "):
            lemma, _, count, *rest = line.split()
            found[lemma] = [int(offset) for offset in rest[-int(count) :]]
    return found


@cache
def _data(where: Path, kind: str) -> bytes:
    return (where / f"data.{kind}").read_bytes()


@cache
def _exceptions(where: Path, kind: str) -> dict[str, list[str]]:
    path = where / f"{kind}.exc"
    lines = path.read_text().splitlines() if path.is_file() else []
    return {form: bases for form, *bases in map(str.split, lines)}
