"""Texts that were erased, as salted hashes: what stage `read` leaves out ever after.

`$HEADRACE_HOME/erasures/<id>.json` has of each erasure the salted hashes of texts (up to white
space and Unicode form), and of their MinHash signatures, by which near copies that come later are
told (`tasks.data.reading.refusals`). The texts cannot be read from them; whoever guesses one can
prove the guess.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from cluster.errors import BadInput
from cluster.files import write_atomically
from cluster.home import home
from cluster.settings import Record

FOLDER = "erasures"


class Sign(Record):
    """The signature of a text: a hash of each band and of each value."""

    bands: tuple[str, ...]
    values: tuple[str, ...]


class Erasure(Record):
    """One erasure. `spared` are texts that only look like near copies by their signatures, and
    were found not to be any; `clear` the sources, by `source_key`, that have no such text.
    """

    id: str
    salt: str
    created: str
    texts: tuple[str, ...]
    signs: tuple[Sign, ...] = ()
    spared: tuple[str, ...] = ()
    clear: tuple[str, ...] = ()

    def save(self) -> None:
        """Write it into the home."""
        folder = home() / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f"{self.id}.json", self.model_dump_json(indent=1))

    def hash(self, text: str) -> str:
        """The salted hash of a normalised text."""
        return hashlib.sha256(f"{self.salt}:{text}".encode()).hexdigest()

    def hashes(self, kind: str, numbers: Iterable[int]) -> tuple[str, ...]:
        """Short salted hashes of numbers, each for its place."""
        said = (f"{self.salt}:{kind}:{i}:{int(n)}" for i, n in enumerate(numbers))
        return tuple(hashlib.blake2b(one.encode(), digest_size=8).hexdigest() for one in said)


def kept(root: Path | None = None) -> list[Erasure]:
    """The erasures of a home, the oldest first. Raises BadInput for one that cannot be read: what
    it forbids would come back.
    """
    found = []
    for path in sorted(((root or home()) / FOLDER).glob("[!.]*.json")):
        try:
            found.append(Erasure.model_validate_json(path.read_bytes()))
        except ValueError as error:
            raise BadInput(
                f"{path} cannot be read ({error}): without it erased texts would come back; put "
                "back a copy of it"
            ) from error
    return sorted(found, key=lambda one: (one.created, one.id))


def source_key(content: str, reading: dict[str, object]) -> str:
    """What stands for a source by its content and how it is read."""
    return hashlib.sha256(json.dumps([content, reading], sort_keys=True).encode()).hexdigest()


def applying(erasures: Sequence[Erasure], key: str) -> tuple[str, ...]:
    """The ids of the erasures that may take a row from a source."""
    return tuple(one.id for one in erasures if key not in one.clear)
