"""What the nodes of a Ray cluster share: the home of the command, or a store between their own."""

import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.errors import BadInput
from cluster.files import write_atomically
from cluster.home import home
from cluster.nodes import Nodes
from cluster.object_store import ObjectStore, from_environment

BEACON = "beacon"


def without_home() -> list[str]:
    """The nodes of the Ray session that do not see the home of this process. Raises BadInput where
    one cannot tell.
    """
    token = secrets.token_hex(16)
    write_atomically(home() / BEACON, token)
    found = _asked(_lacks, home() / BEACON, token)
    if silent := [f"{name}: {why}" for name, why in found.items() if isinstance(why, str)]:
        raise BadInput(f"{'; '.join(silent)}; `headrace doctor` says what is wrong with a node")
    return sorted(found)


def check_there_is_a_store(hosts: list[str]) -> ObjectStore:
    """The shared store. Raises BadInput where none is named to carry what these hosts, and this
    process, leave for each other.
    """
    if (shared := from_environment()) is None:
        raise BadInput(
            f"{', '.join(hosts)}: these nodes of the Ray cluster do not see the home of this "
            f"command, {home()}, and there is no shared store. Name one that all of them reach, "
            "HEADRACE_STORE=s3://bucket/prefix or another fsspec URL; or set HEADRACE_HOME to a "
            "folder that they share"
        )
    return shared


def check_store() -> None:
    """Raise BadInput, which names the hosts, where there is no shared store, a node of the session
    cannot read what this process writes to it, or has no home to write to.
    """
    shared, token = check_there_is_a_store(list(Nodes.of_session().ids)), secrets.token_hex(16)
    shared.write(BEACON, token.encode())
    if deaf := _asked(_cannot_read, token):
        why = "; ".join(f"{host}: {told}" for host, told in sorted(deaf.items()))
        raise BadInput(
            f"nodes of the Ray cluster cannot work with HEADRACE_STORE, {shared.root}: "
            f"{why}. Install its package there (extras `s3`, `gcs`), give them its credentials, "
            "and name a place that is the same from every node"
        )


def _asked(question: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """What a function returns on each node, or a sentence why it could not be called; nodes with
    an empty answer are left out.
    """
    nodes = Nodes.of_session()
    told = nodes.ask(question, dict.fromkeys(nodes.ids, arguments))
    return {name: answer for name, answer in told.items() if answer}


def _lacks(beacon: Path, token: str) -> bool:
    """Whether a node does not see the beacon of a home."""
    try:
        return beacon.read_text() != token
    except OSError:
        return True


def _cannot_read(token: str) -> str:
    """Why a node cannot read from the store, or write to its own home; nothing if it can."""
    try:
        shared = from_environment()
        if shared is None or shared.read(BEACON) != token.encode():
            return "what the command wrote there is not there"
        write_atomically(home() / f"{BEACON}.{os.getpid()}", token)
        (home() / f"{BEACON}.{os.getpid()}").unlink()
    except Exception as error:  # of whatever library the store needs
        return f"{type(error).__name__}: {error}"
    return ""
