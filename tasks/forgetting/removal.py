"""Takes away what others have taken the place of: in this home, in the shared store, and what was
unfinished.
"""

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from cluster.artifact import Artifact
from cluster.collection import unfinished
from cluster.files import discard
from cluster.manifest import FETCHED, MANIFEST
from cluster.store import Store

SHARED = "HEADRACE_STORE:"


def manifest_hash(artifact: Artifact) -> str:
    """SHA-256 of an artifact's manifest, which has the hashes of all its files."""
    return hashlib.sha256((artifact.path / MANIFEST).read_bytes()).hexdigest()


def places(names: Sequence[str], store: Store) -> list[str]:
    """Where artifacts of these names lie: in this home, fetched, as a manifest that was kept, in
    the shared store; and what is unfinished, as nobody knows which texts are in it.
    """
    found = [store.root / tree / name for name in names for tree in ("artifacts", FETCHED)]
    found += [store.root / "manifests" / f"{name}.json" for name in names]
    here = [str(path) for path in (*found, *unfinished(store)) if path.exists()]
    return here + [SHARED + name for name in names if store.shared and store.shared.names(name)]


def remove(lying: Sequence[str], store: Store) -> None:
    """Remove what lies in these places, if it is still there."""
    for place in lying:
        path = Path(place)
        if place.startswith(SHARED):
            assert store.shared is not None, "it was there when it was looked at"
            name = place.removeprefix(SHARED)
            store.shared.withdraw(name)  # first out of use, then its files
            store.shared.remove(name)
        elif path.is_dir():
            discard(path)
        else:
            path.unlink(missing_ok=True)
    for left in store.root.glob("artifacts/*/.old-*"):  # of a removal that was cut short
        shutil.rmtree(left, ignore_errors=True)
