"""Personal data and secrets in one text: where they are, by pattern and by check digit.

Person names need a model (names.py) and are not looked for here. Every pattern is bounded, so that
no text takes more than linear time.
"""

from collections.abc import Callable, Iterable, Iterator

from tasks.data.privacy.accounts import cards, ibans
from tasks.data.privacy.credentials import private_keys, secrets
from tasks.data.privacy.electronic import emails, ip_addresses
from tasks.data.privacy.national import national_ids
from tasks.data.privacy.obfuscation import fold
from tasks.data.privacy.phones import phones
from tasks.data.privacy.spans import Span, settle, substitute
from tasks.data.privacy.streets import addresses

Finder = Callable[[str, int, int], Iterator[tuple[int, int]]]
# By kind; each takes the plain spelling of a text and where instances may begin to show.
FINDERS: dict[str, tuple[Finder, ...]] = {
    "secret": (secrets, private_keys),
    "email": (emails,),
    "iban": (ibans,),
    "card": (cards,),
    "national_id": (national_ids,),
    "ip": (ip_addresses,),
    "phone": (phones,),
    "address": (addresses,),
}
DEFAULT_KINDS = ("email", "ip", "phone", "card", "iban", "national_id", "secret")


def find(text: str, kinds: Iterable[str] = DEFAULT_KINDS) -> list[Span]:
    """Every instance in text order, none overlapping; of two that overlap the earlier kind of
    `spans.KINDS` wins. The disguises of `obfuscation.py` hide none.
    """
    plain = fold(text)
    return settle(
        Span(*plain.unfold(start, end), kind)
        for kind in kinds
        if kind in FINDERS
        for finder in FINDERS[kind]
        for start, end in finder(plain.text, 0, len(plain.text))
    )


def mask(text: str) -> str:
    """The text with every instance replaced by its kind: `<EMAIL>`."""
    return substitute(text, find(text), lambda kind, value: f"<{kind.upper()}>")
