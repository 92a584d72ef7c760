"""Artifacts in object storage: `HEADRACE_STORE=s3://bucket/prefix` shares them between machines.

The local store stays the place where stages read and write; this copies finished artifacts out and
fetches missing ones. Objects cannot be renamed, so an artifact exists there when its
`artifact.json` does: it is written last, and only if no other writer was first.
"""

import logging
import os
import shutil
from pathlib import Path

from cluster.artifact import MANIFEST, Artifact, Manifest, faults
from cluster.errors import BadInput, no_file_system
from cluster.files import put_in_place

log = logging.getLogger("headrace.store")


class ObjectStore:
    """A folder of an fsspec file system, laid out like the local `artifacts/`."""

    def __init__(self, url: str):
        import fsspec

        try:
            self.files, self.root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise no_file_system(f"HEADRACE_STORE={url}", url, error) from error
        self._damaged: set[str] = set()

    def names(self, stage: str) -> list[str]:
        """The folders of a stage."""
        try:
            found = self.files.ls(f"{self.root}/{stage}", detail=False, refresh=True)
        except FileNotFoundError:
            return []
        return [str(path).rstrip("/").rpartition("/")[2] for path in found]

    def manifest(self, stage: str, name: str) -> tuple[bytes, Manifest]:
        """The manifest in a folder, and its text. Raises BadInput where it is damaged or absent."""
        path = f"{self.root}/{stage}/{name}/{MANIFEST}"
        try:
            text: bytes = self.files.cat_file(path)
            return text, Manifest.unsealed(text)
        except (FileNotFoundError, ValueError) as error:
            self._damaged.add(f"{stage}/{name}")
            raise BadInput(f"damaged in object storage: {path}: {error}") from error

    def push(self, artifact: Artifact) -> None:
        """Copy a finished artifact out, its manifest last.

        One that is there stays, unless it was found damaged: it is taken out of use and replaced.
        """
        target = f"{self.root}/{artifact.name}"
        if self.files.exists(f"{target}/{MANIFEST}"):
            if self._intact(artifact.name):
                return
            self.files.rm_file(f"{target}/{MANIFEST}")
        self.files.makedirs(target, exist_ok=True)
        for name in artifact.manifest.files:
            self.files.makedirs(f"{target}/{name}".rpartition("/")[0], exist_ok=True)
            self.files.put_file(str(artifact.path / name), f"{target}/{name}")
        manifest = (artifact.path / MANIFEST).read_bytes()
        try:
            self.files.pipe_file(f"{target}/{MANIFEST}", manifest, mode="create")
        except FileExistsError:
            log.info("%s was stored by another run at the same time", artifact.name)
        self._damaged.discard(artifact.name)

    def _intact(self, name: str) -> bool:
        """Whether nothing that was read of a copy was damaged; its manifest is read now."""
        try:
            self.manifest(*name.split("/"))
        except BadInput as error:
            log.warning("%s; it is replaced", error)
        return name not in self._damaged

    def fetch(self, stage: str, name: str, text: bytes, artifacts: Path) -> Artifact:
        """Copy an artifact, whose manifest's text is given, into the local store.

        Raises BadInput when what arrives does not match its manifest.
        """
        final, source = artifacts / stage / name, f"{self.root}/{stage}/{name}"
        temporary = final.with_name(f".{os.getpid()}-{name}")
        shutil.rmtree(temporary, ignore_errors=True)
        arrived = Artifact(temporary, Manifest.unsealed(text))
        try:
            self._copy(source, arrived)
            (temporary / MANIFEST).write_bytes(text)
            if bad := faults(arrived):
                self._damaged.add(f"{stage}/{name}")
                there = "; ".join(bad).replace(str(temporary), source)
                raise BadInput(f"damaged in object storage: {there}")
            put_in_place(temporary, final)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        log.info("fetched %s", source)
        return Artifact(final, arrived.manifest)

    def _copy(self, source: str, arrived: Artifact) -> None:
        """Copy what is there; a file that is not is a fault of what arrived."""
        arrived.path.mkdir(parents=True)
        for name in arrived.manifest.files:
            (arrived.path / name).parent.mkdir(parents=True, exist_ok=True)
            try:
                self.files.get_file(f"{source}/{name}", str(arrived.path / name))
            except FileNotFoundError:
                log.warning("%s/%s is missing", source, name)


def from_environment() -> ObjectStore | None:
    """The object store named by `HEADRACE_STORE`, if any."""
    url = os.environ.get("HEADRACE_STORE")
    return ObjectStore(url) if url else None
