"""How far an erasure has come, so that the same command goes on with it after a kill.

erasures/.<id>.json      what was asked (a hash of it), the erasure, the ids of its rows, how far
erasures/<id>.json       the erasure as `read` knows it, from before anything is made
"""

from typing import Any, Literal

from cluster.files import write_atomically
from cluster.home import home
from cluster.settings import Record
from tasks.data.reading.erasures import FOLDER, Erasure

State = Literal["making", "removing", "done"]


class Journal(Record):
    """An erasure under way. `changes` are names; `certificate` is what is certified so far."""

    asked: str
    erasure: Erasure
    ids: tuple[str, ...]
    state: State = "making"
    certificate: dict[str, Any] = {}

    def save(self) -> "Journal":
        """Itself, written into the home."""
        folder = home() / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / f".{self.erasure.id}.json", self.model_dump_json(indent=1))
        return self

    def now(self, state: State, **certified: Any) -> "Journal":
        """The journal at a later state, written; more is certified."""
        told = {**self.certificate, **certified}
        return self.model_copy(update={"state": state, "certificate": told}).save()


def journals() -> list[Journal]:
    """All of this home, the oldest first."""
    paths = sorted((home() / FOLDER).glob(".*.json"))
    found = [Journal.model_validate_json(path.read_bytes()) for path in paths]
    return sorted(found, key=lambda one: one.erasure.created)
