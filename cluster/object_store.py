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
from cluster.errors import BadInput

log = logging.getLogger("headrace.store")


class ObjectStore:
    """A folder of an fsspec file system, laid out like the local `artifacts/`."""

    def __init__(self, url: str):
        import fsspec

        try:
            self.files, self.root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise BadInput(f"HEADRACE_STORE={url}: {error}; install its fsspec package") from error

    def push(self, artifact: Artifact) -> None:
        """Copy a finished artifact out, its manifest last."""
        target = f"{self.root}/{artifact.name}"
        if self.files.exists(f"{target}/{MANIFEST}"):
            return
        for name in artifact.manifest.files:
            self.files.makedirs(f"{target}/{name}".rpartition("/")[0], exist_ok=True)
            self.files.put_file(str(artifact.path / name), f"{target}/{name}")
        manifest = (artifact.path / MANIFEST).read_bytes()
        try:
            self.files.pipe_file(f"{target}/{MANIFEST}", manifest, mode="create")
        except FileExistsError:
            log.info("%s was stored by another run at the same time", artifact.name)

    def pull(self, stage: str, fingerprint: str, artifacts: Path) -> Artifact | None:
        """Fetch the artifact with this fingerprint into the local store; None when it is not there.

        Raises BadInput when what arrives does not match its manifest.
        """
        for found in self.files.glob(f"{self.root}/{stage}/*-{fingerprint[:8]}/{MANIFEST}"):
            text = self.files.cat_file(found)
            manifest = Manifest.model_validate_json(text)
            if manifest.fingerprint == fingerprint:
                return self._fetch(found.rpartition("/")[0], manifest, text, artifacts / stage)
        return None

    def _fetch(self, source: str, manifest: Manifest, text: bytes, folder: Path) -> Artifact:
        final = folder / source.rpartition("/")[2]
        temporary = final.with_name(f".{final.name}.{os.getpid()}")
        shutil.rmtree(temporary, ignore_errors=True)
        for name in manifest.files:
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            self.files.get_file(f"{source}/{name}", str(temporary / name))
        temporary.mkdir(parents=True, exist_ok=True)
        (temporary / MANIFEST).write_bytes(text)
        if bad := faults(Artifact(temporary, manifest)):
            shutil.rmtree(temporary)
            raise BadInput(
                f"{source}: damaged in object storage: {'; '.join(bad)}; remove it there"
            )
        temporary.rename(final)
        log.info("fetched %s", source)
        return Artifact.load(final)


def from_environment() -> ObjectStore | None:
    """The object store named by `HEADRACE_STORE`, if any."""
    url = os.environ.get("HEADRACE_STORE")
    return ObjectStore(url) if url else None
