"""An artifact: a folder of data files and an `artifact.json` that says what they are. Of one in the
shared store a node has only the files that were asked for.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from cluster.errors import BadInput
from cluster.manifest import FETCHED, MANIFEST, FileRecord, Manifest, data_files, difference, record
from cluster.names import inside
from cluster.node_cache import fetched, keep_manifest, store


@dataclass(frozen=True)
class DataFile:
    """A data file and what the manifest says of it: all that a worker needs to prove it, and to
    fetch it where it is not on the worker's node.
    """

    folder: Path
    name: str
    record: FileRecord
    artifact: str

    @property
    def path(self) -> Path:
        """Where it lies, or would on the node that made the artifact."""
        return inside(self.folder, self.name)

    @property
    def remedy(self) -> str:
        """What to do about damage."""
        return (
            f"run `headrace verify {self.artifact}`, then `headrace run RECIPE --rebuild "
            f"{self.artifact.split('/')[0]}`"
        )

    @property
    def elsewhere(self) -> bool:
        """Whether it is the shared store's: here only once it was asked for."""
        return is_fetched(self.folder)

    def fault(self) -> str | None:
        """Whether it is missing or of another size, in words; nothing where it can be fetched."""
        size = self.path.stat().st_size if self.path.is_file() else None
        if size == self.record.size or self.elsewhere:
            return None
        found = "is missing" if size is None else f"has {size} bytes"
        return f"{found}, its manifest says {self.record.size} bytes"

    def open(self) -> IO[bytes]:
        """The file, for a few bytes that are not compared with its hashes; one that only the
        shared store has is read there and not fetched.
        """
        if self.elsewhere and not self.path.exists():
            return store().open(f"{self.artifact}/{self.name}")
        return self.path.open("rb")

    def sized(self) -> Path:
        """Its path on this node, the size checked; it is fetched if it is elsewhere. Raises
        BadInput when it is missing or of another size.
        """
        if self.elsewhere:
            return fetched(self.folder, self.name, self.record)
        self.check()
        return self.path

    def check(self) -> None:
        """Raise BadInput when it is missing or of another size, unless it would be fetched."""
        if fault := self.fault():
            raise BadInput(f"{self.path} {fault}; {self.remedy}")

    def verified(self) -> Path:
        """Its path on this node, every byte compared with the manifest. Raises BadInput for any
        difference.
        """
        path = self.sized()
        changed = difference(self.record, record(path))
        if changed and self.elsewhere:
            path.unlink()
            path = self.sized()  # which compares what it fetches
        elif changed:
            raise BadInput(f"{path}: {changed}; {self.remedy}")
        return path


@dataclass(frozen=True)
class Artifact:
    """A handle on a finished artifact folder; small enough to pass between processes."""

    path: Path
    manifest: Manifest

    @property
    def fingerprint(self) -> str:
        """The full fingerprint."""
        return self.manifest.fingerprint

    @property
    def name(self) -> str:
        """How commands name it: `stage/recipe-fingerprint8`."""
        return f"{self.manifest.stage}/{self.path.name}"

    def data(self, name: str) -> DataFile:
        """One data file, not looked at yet. Raises BadInput when the manifest does not know it."""
        record = self.manifest.files.get(name)
        if record is None:
            raise BadInput(
                f"{self.name} has no file '{name}'; it has {sorted(self.manifest.files)}"
            )
        return DataFile(self.path, name, record, self.name)

    def file(self, name: str) -> Path:
        """The path of one data file, every byte of it compared with the manifest.

        Raises BadInput when the file is missing, unknown to the manifest or changed.
        """
        return self.data(name).verified()

    def files(self, pattern: str) -> list[DataFile]:
        """All data files that match a glob, sorted, the sizes checked of those on this node.

        Raises BadInput when one is missing, of another size, or not in the manifest.
        """
        found = {n for n in data_files(self.path) if Path(n).match(pattern)}
        names = sorted(n for n in self.manifest.files if Path(n).match(pattern))
        for name in sorted(found.difference(names)):
            raise BadInput(
                f"{self.path / name} is not in the manifest of {self.name}; remove the file, or "
                f"run `headrace run RECIPE --rebuild {self.manifest.stage}`"
            )
        files = [self.data(name) for name in names]
        for file in files:
            file.check()
        return files

    def folder(self) -> Path:
        """Its folder on this node, every byte of every file compared with the manifest: for other
        libraries to read from. Raises BadInput as `file` does.
        """
        for name in self.manifest.files:
            self.file(name)
        return self.path

    def fault(self) -> str | None:
        """The first of its files that is missing or of another size, in words."""
        found = ((name, self.data(name).fault()) for name in self.manifest.files)
        return next((f"its {name} {fault}" for name, fault in found if fault), None)

    def read_json(self, name: str) -> Any:
        """A JSON data file, parsed."""
        return json.loads(self.file(name).read_text())

    @classmethod
    def load(cls, path: Path) -> "Artifact":
        """The artifact in a folder, of which the shared store may have what is not there. Raises
        BadInput unless its manifest is there and intact.
        """
        if is_fetched(path) and not (path / MANIFEST).exists():
            keep_manifest(path)
        try:
            return cls(path, Manifest.unsealed((path / MANIFEST).read_bytes()))
        except FileNotFoundError:
            raise BadInput(f"{path} is not an artifact: it has no {MANIFEST}") from None
        except (OSError, ValueError) as error:
            raise BadInput(
                f"{path / MANIFEST} cannot be read: {error}; run `headrace run RECIPE --rebuild "
                f"{path.parent.name}`, or remove the folder"
            ) from error


def brought(folder: Path) -> Path:
    """A folder for other libraries to read: one of the shared store's, all of it on this node."""
    return Artifact.load(folder).folder() if is_fetched(folder) else folder


def is_fetched(folder: Path) -> bool:
    """Whether an artifact is the shared store's: of its files only those asked for are here."""
    return folder.parent.parent.name == FETCHED and "HEADRACE_STORE" in os.environ


def faults(artifact: Artifact) -> list[str]:
    """What is wrong with an artifact, by reading every byte; empty when it is intact."""
    found = []
    for name in artifact.manifest.files:
        file = artifact.data(name)
        if not file.path.is_file():
            if file.elsewhere:  # it is compared when it is fetched
                continue
            found.append(f"{file.path}: missing")
        elif changed := difference(file.record, record(file.path)):
            found.append(f"{file.path}: {changed}")
    extra = set(data_files(artifact.path)) - set(artifact.manifest.files)
    return found + [f"{artifact.path / name}: not in the manifest" for name in sorted(extra)]


def misplaced(artifact: Artifact) -> list[str]:
    """What is wrong with where an artifact lies: its fingerprint could not find it there."""
    about, path = artifact.manifest, artifact.path
    if path.parent.name == about.stage and path.name.endswith(f"-{about.fingerprint[:8]}"):
        return []
    return [f"{path}: holds {about.stage} {about.fingerprint[:8]}, not what its name says"]
