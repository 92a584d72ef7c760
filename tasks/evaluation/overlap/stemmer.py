"""English stems by Porter's algorithm, with the extensions that NLTK and rouge-score use.

Source: Porter, An algorithm for suffix stripping, 1980; the extensions are those of NLTK's default:
a few irregular words, y -> i after any consonant (`spy`, `spies`), `-ied`, `-fulli`, `-logi`.
"""

from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise

SIGNATURE = "porter-nltk"
VOWELS = frozenset("aeiou")
IRREGULAR = {
    "sky": "sky",
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "news": "news",
    "inning": "inning",
    "innings": "inning",
    "outing": "outing",
    "outings": "outing",
    "canning": "canning",
    "cannings": "canning",
    "howe": "howe",
    "proceed": "proceed",
    "exceed": "exceed",
    "succeed": "succeed",
}
Rules = tuple[tuple[str, str], ...]
STEP_2: Rules = (
    ("ational", "ate"),
    ("tional", "tion"),
    ("enci", "ence"),
    ("anci", "ance"),
    ("izer", "ize"),
    ("bli", "ble"),
    ("alli", "al"),
    ("entli", "ent"),
    ("eli", "e"),
    ("ousli", "ous"),
    ("ization", "ize"),
    ("ation", "ate"),
    ("ator", "ate"),
    ("alism", "al"),
    ("iveness", "ive"),
    ("fulness", "ful"),
    ("ousness", "ous"),
    ("aliti", "al"),
    ("iviti", "ive"),
    ("biliti", "ble"),
    ("fulli", "ful"),
)
STEP_3: Rules = (
    ("icate", "ic"),
    ("ative", ""),
    ("alize", "al"),
    ("iciti", "ic"),
    ("ical", "ic"),
    ("ful", ""),
    ("ness", ""),
)
# fmt: off
STEP_4 = (
    "al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion", "ou",
    "ism", "ate", "iti", "ous", "ive", "ize",
)
# fmt: on


@lru_cache(maxsize=1 << 17)
def stem(word: str) -> str:
    """The stem of a lower-case word; words of one or two letters stay as they are."""
    if len(word) <= 2 or word in IRREGULAR:
        return IRREGULAR.get(word, word)
    word = _past(_plural(word))
    if word.endswith("y") and len(word) > 2 and _consonants(word)[-2]:
        word = word[:-1] + "i"
    word = _first(_double(word), STEP_3, lambda rest: _measure(rest) > 0)
    return _tidy(_ending(word))


def _plural(word: str) -> str:
    """Step 1a."""
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _past(word: str) -> str:
    """Step 1b."""
    if word.endswith("ied"):
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    suffix = next((s for s in ("ed", "ing") if word.endswith(s)), "")
    rest = word[: len(word) - len(suffix)]
    if not suffix or all(_consonants(rest)):
        return word
    if rest.endswith(("at", "bl", "iz")):
        return rest + "e"
    if len(rest) > 1 and rest[-1] == rest[-2] and _consonants(rest)[-1]:
        return rest if rest[-1] in "lsz" else rest[:-1]
    return rest + "e" if _measure(rest) == 1 and _short(rest) else rest


def _double(word: str) -> str:
    """Step 2: suffixes made of two."""
    if word.endswith("alli") and _measure(word[:-4]) > 0:
        return _double(word[:-2])
    if word.endswith("logi") and not word.endswith(tuple(suffix for suffix, _ in STEP_2)):
        return word[:-1] if _measure(word[:-3]) > 0 else word
    return _first(word, STEP_2, lambda rest: _measure(rest) > 0)


def _ending(word: str) -> str:
    """Step 4."""
    for suffix in STEP_4:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            fits = _measure(rest) > 1 and (suffix != "ion" or rest[-1] in "st")
            return rest if fits else word
    return word


def _tidy(word: str) -> str:
    """Step 5: a last e, a double l."""
    if word.endswith("e"):
        rest = word[:-1]
        if _measure(rest) > 1 or (_measure(rest) == 1 and not _short(rest)):
            word = rest
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word


def _first(word: str, rules: Rules, fits: Callable[[str], bool]) -> str:
    """The first rule whose suffix the word has decides, whether or not what is left fits."""
    for suffix, replacement in rules:
        if word.endswith(suffix):
            rest = word[: -len(suffix)]
            return rest + replacement if fits(rest) else word
    return word


def _consonants(word: str) -> list[bool]:
    """Whether each letter is a consonant; y is one unless it follows one."""
    flags: list[bool] = []
    for letter in word:
        flags.append(not flags or not flags[-1] if letter == "y" else letter not in VOWELS)
    return flags


def _measure(word: str) -> int:
    """How often a consonant follows a vowel: m of the paper."""
    flags = _consonants(word)
    return sum(after and not before for before, after in pairwise(flags))


def _short(word: str) -> bool:
    """Whether it ends consonant, vowel, consonant (not w, x, y), or is a vowel and a consonant."""
    flags = _consonants(word)
    if len(word) == 2:
        return flags == [False, True]
    return flags[-3:] == [True, False, True] and word[-1] not in "wxy"
