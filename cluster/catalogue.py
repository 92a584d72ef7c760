"""What a store holds, asked many times: each stage's folder is listed once, here and in the bucket.

The name of an artifact's folder ends in the beginning of its fingerprint, so that only manifests
that may be the right one are read, whatever else the store holds.
"""

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from cluster.artifact import Artifact, is_fetched
from cluster.errors import BadInput
from cluster.home import apart
from cluster.manifest import FETCHED, MANIFEST, Manifest
from cluster.object_store import ObjectStore

log = logging.getLogger("headrace.store")


class Shelf(NamedTuple):
    """The names of a stage's folders, `RECIPE-FINGERPRINT[:8]`, by either part."""

    by_print: dict[str, list[str]]
    by_recipe: dict[str, list[str]]


class Found(NamedTuple):
    """A whole artifact; or none, and what is wrong with the one that is there."""

    artifact: Artifact | None = None
    damage: str = ""


class Catalogue:
    """The artifacts of a home, and those of the shared store if there is one, of which nothing but
    manifests is read: files are fetched when they are asked for. Of a run apart only the latter
    count, as other nodes do not have the former.
    """

    def __init__(self, root: Path, shared: ObjectStore | None):
        self.root, self.shared = root, shared
        self._here: dict[str, Shelf] = {}
        self._there: dict[str, Shelf] = {}
        self._loaded: dict[Path, Artifact] = {}

    def find(self, stage: str, fingerprint: str) -> Found:
        """The newest whole artifact with this fingerprint, whatever recipe made it."""
        whole, damage = [], ""
        here = {} if apart() else self._local(stage).by_print
        for name in here.get(fingerprint[:8], ()):
            try:
                artifact = self._load(stage, name)
            except BadInput as error:
                damage = f"its {MANIFEST} is damaged"
                warn_once(str(error))
                continue
            # The eight digits in a name may begin another fingerprint too; and what was fetched of
            # the store is asked of the store, below.
            if artifact.fingerprint != fingerprint or is_fetched(artifact.path):
                continue
            if fault := artifact.fault():
                damage = fault
                warn_once(f"{artifact.name} is not used: {fault}")
            else:
                whole.append(artifact)
        if whole:
            return Found(max(whole, key=lambda a: a.manifest.created))
        shared = self._look_in(self.shared, stage, fingerprint) if self.shared else Found()
        return shared if shared.artifact else Found(None, damage or shared.damage)

    def earlier(self, stage: str, recipe: str, label: str) -> Manifest | None:
        """The newest manifest that a stage left for a recipe, to compare with."""
        found = []
        name = "-".join(filter(None, (recipe, label)))
        for folder in self._local(stage).by_recipe.get(name, ()):
            with contextlib.suppress(BadInput):  # named where it is looked for
                found.append(self._load(stage, folder).manifest)
        same = [m for m in found if (m.recipe, m.label) == (recipe, label)]
        return max(same, key=lambda m: m.created, default=None)

    def made_by(self, stage: str) -> list[Artifact]:
        """The whole artifacts that a stage left here, the newest first."""
        found = []
        for names in list(self._local(stage).by_print.values()):
            for name in names:
                with contextlib.suppress(BadInput):
                    found.append(self._load(stage, name))
        newest = sorted(found, key=lambda a: a.manifest.created, reverse=True)
        return [artifact for artifact in newest if not artifact.fault()]

    def newest(self, stage: str, count: int) -> list[Manifest]:
        """The manifests of the newest artifacts that a stage left here, whole or not."""
        found: list[tuple[float, str]] = []
        for names in list(self._local(stage).by_print.values()):
            for name in names:
                with contextlib.suppress(OSError):
                    found.append(((self._place(stage, name) / MANIFEST).stat().st_mtime, name))
        manifests = []
        for _, name in sorted(found, reverse=True)[:count]:
            with contextlib.suppress(BadInput):  # named where it is looked for
                manifests.append(self._load(stage, name).manifest)
        return manifests

    def _load(self, stage: str, name: str) -> Artifact:
        """The artifact of a folder here, read when it is first asked for."""
        path = self._place(stage, name)
        if path not in self._loaded:
            self._loaded[path] = Artifact.load(path)
        return self._loaded[path]

    def _place(self, stage: str, name: str) -> Path:
        path = self.root / "artifacts" / stage / name
        return path if path.exists() else self.root / FETCHED / stage / name

    def _look_in(self, shared: ObjectStore, stage: str, fingerprint: str) -> Found:
        damage = ""
        shelf = _listed(self._there, stage, shared.names)
        for name in shelf.by_print.get(fingerprint[:8], ()):
            try:
                manifest = shared.manifest(f"{stage}/{name}")
                if manifest and manifest.fingerprint == fingerprint:
                    return Found(Artifact(self.root / FETCHED / stage / name, manifest))
            except BadInput as error:
                warn_once(f"{error}; it is built again")
                damage = "its copy in HEADRACE_STORE is damaged"
        return Found(None, damage)

    def _local(self, stage: str) -> Shelf:
        def names(stage: str) -> set[str]:
            folders = (self.root / tree / stage for tree in ("artifacts", FETCHED))
            return {path.name for f in folders if f.is_dir() for path in f.iterdir()}

        return _listed(self._here, stage, names)


def _listed(known: dict[str, Shelf], stage: str, names: Callable[[str], Iterable[str]]) -> Shelf:
    """The folders of a stage, listed when they are first asked for."""
    if stage not in known:
        shelf = known[stage] = Shelf(defaultdict(list), defaultdict(list))
        for name in sorted(names(stage)):
            if not name.startswith("."):
                shelf.by_print[name[-8:]].append(name)
                shelf.by_recipe[name[:-9]].append(name)
    return known[stage]


@cache
def warn_once(message: str) -> None:
    """Say what is wrong once, though a plan and each of its stages look again."""
    log.warning("%s", message)
