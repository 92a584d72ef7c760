"""Object storage that machines share: `HEADRACE_STORE=s3://bucket/prefix`, or another fsspec URL.

    <stage>/<recipe>-<fingerprint[:8]>/     finished artifacts, as in the local `artifacts/`
    work/<stage>-<fingerprint[:8]>/...      what a stage's processes on several nodes share

Objects cannot be renamed, so a folder exists there when its manifest does: it is written last, and
that of an artifact only if no other writer was first.
"""

import contextlib
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from cluster.errors import BadInput, no_file_system
from cluster.manifest import MANIFEST, Manifest

PARCEL = "parcel.json"
"""The manifest of a folder that a stage's processes share."""

log = logging.getLogger("headrace.store")


class ObjectStore:
    """A folder of an fsspec file system. Names are relative to it, `stage/folder/file`."""

    def __init__(self, url: str):
        import fsspec

        if "://" not in url and not Path(url).is_absolute():
            raise BadInput(
                f"HEADRACE_STORE={url} is no URL: write s3://bucket/prefix, or "
                f"{Path(url).absolute().as_uri()} for a folder that all machines see"
            )
        try:
            # Listings are not remembered: other nodes write there too.
            self.files, self.root = fsspec.core.url_to_fs(url, use_listings_cache=False)
        except (ImportError, ValueError) as error:
            raise no_file_system(f"HEADRACE_STORE={url}", url, error) from error

    def at(self, name: str) -> str:
        """Where something lies, in words of the file system."""
        return f"{self.root}/{name}"

    def names(self, folder: str) -> list[str]:
        """What lies in a folder."""
        try:
            found = self.files.ls(self.at(folder), detail=False, refresh=True)
        except FileNotFoundError:
            return []
        return [str(path).rstrip("/").rpartition("/")[2] for path in found]

    def read(self, name: str) -> bytes | None:
        """What a small file holds; None when it is not there."""
        try:
            return bytes(self.files.cat_file(self.at(name)))
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Make or replace a small file."""
        self.files.makedirs(self.at(name).rpartition("/")[0], exist_ok=True)
        self.files.pipe_file(self.at(name), content)

    def put(self, name: str, path: Path) -> None:
        """Copy a file out."""
        self.files.makedirs(self.at(name).rpartition("/")[0], exist_ok=True)
        self.files.put_file(str(path), self.at(name))

    def get(self, name: str, path: Path) -> None:
        """Copy a file here. Raises FileNotFoundError when it is not there."""
        self.files.get_file(self.at(name), str(path))

    def open(self, name: str) -> IO[bytes]:
        """A file, of which only what is read is transferred."""
        found: IO[bytes] = self.files.open(self.at(name), "rb", cache_type="readahead")
        return found

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with all that is in it, if it is there."""
        with contextlib.suppress(FileNotFoundError):
            self.files.rm(self.at(name), recursive=True)

    def manifest(self, name: str) -> Manifest | None:
        """The manifest of an artifact; None when it is not there. Raises BadInput for a damaged
        one.
        """
        text = self.read(f"{name}/{MANIFEST}")
        try:
            return None if text is None else Manifest.unsealed(text)
        except ValueError as error:
            raise BadInput(
                f"damaged in object storage: {self.at(name)}/{MANIFEST}: {error}"
            ) from error

    def push(self, name: str, folder: Path, replace: bool = False) -> None:
        """Copy a finished artifact out of its folder, its manifest last.

        One that is there stays, unless it is to be replaced or its manifest is damaged: it is taken
        out of use first.
        """
        if self.files.exists(self.at(f"{name}/{MANIFEST}")):
            if not replace and self._intact(name):
                return
            self.files.rm_file(self.at(f"{name}/{MANIFEST}"))
        manifest = (folder / MANIFEST).read_bytes()
        self.put_all(name, folder, Manifest.unsealed(manifest).files)
        self.files.makedirs(self.at(name), exist_ok=True)
        try:
            self.files.pipe_file(self.at(f"{name}/{MANIFEST}"), manifest, mode="create")
        except FileExistsError:
            log.info("%s was stored by another run at the same time", name)

    def put_all(self, name: str, folder: Path, files: Iterable[str]) -> None:
        """Copy some files of a folder out."""
        for file in files:
            self.put(f"{name}/{file}", folder / file)

    def withdraw(self, folder: str) -> None:
        """Take a damaged artifact, or shared folder, out of use, so that it is made again."""
        for manifest in (MANIFEST, PARCEL):
            self.remove(f"{folder}/{manifest}")

    def _intact(self, name: str) -> bool:
        try:
            return self.manifest(name) is not None
        except BadInput as error:
            log.warning("%s; it is replaced", error)
            return False


def from_environment() -> ObjectStore | None:
    """The object store named by `HEADRACE_STORE`, if any."""
    url = os.environ.get("HEADRACE_STORE")
    return ObjectStore(url) if url else None
