"""Exact duplicates: equal texts after Unicode normalisation, white space aside."""

import hashlib
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable

Texts = Callable[[], Iterable[str]]


def normalise(text: str) -> str:
    """NFC, with every run of white space as one space and none at the ends."""
    return " ".join(unicodedata.normalize("NFC", text).split())


def digest(text: str) -> bytes:
    """128 bits of a normalised text."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def exact_duplicates(texts: Texts) -> list[int]:
    """For each text the number of the first one equal to it (its own, where there is none before).

    `texts` is called twice. Memory: 16 bytes per text, and one normalised text per group of equals,
    because equal hashes are trusted only to find candidates: the texts themselves are compared.
    """
    digests = [digest(normalise(text)) for text in texts()]
    repeated = {d for d, n in Counter(digests).items() if n > 1}
    first: dict[bytes, list[tuple[int, str]]] = {}
    keepers = []
    for number, text in enumerate(texts()):
        keeper = number
        if digests[number] in repeated:
            text = normalise(text)
            seen = first.setdefault(digests[number], [])
            keeper = next((n for n, other in seen if other == text), number)
            if keeper == number:
                seen.append((number, text))
        keepers.append(keeper)
    return keepers
