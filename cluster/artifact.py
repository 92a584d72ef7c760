"""An artifact: a folder of data files and an `artifact.json` that says what they are.

The manifest holds the size of every file and the SHA-256 of each of its blocks: Arrow, Parquet and
safetensors all load a flipped bit without complaint.
"""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from cluster.errors import BadInput
from cluster.settings import Settings

MANIFEST = "artifact.json"
BLOCK_BYTES = 1 << 20


class Ledger(Settings):
    """Rows in = rows out + rejects by reason."""

    rows_in: int = Field(serialization_alias="in", validation_alias="in")
    rows_out: int = Field(serialization_alias="out", validation_alias="out")
    rejects: dict[str, int] = {}

    def check(self) -> None:
        """Raise AssertionError when a row is unaccounted for."""
        rejected = sum(self.rejects.values())
        assert self.rows_in == self.rows_out + rejected, f"ledger does not balance: {self}"


class FileRecord(Settings):
    """Size in bytes and the SHA-256 of each 1 MiB block of one file."""

    size: int
    blocks: list[str]


class Manifest(Settings):
    """What an artifact is, what it was made from, and how to tell that it is intact."""

    stage: str
    version: int
    recipe: str
    label: str = ""
    fingerprint: str
    settings: dict[str, Any]
    inputs: dict[str, str | list[str]]
    rows: int | None = None
    tokens: int | None = None
    ledger: Ledger | None = None
    metrics: dict[str, float] = {}
    facts: dict[str, Any] = {}
    files: dict[str, FileRecord] = {}
    libraries: dict[str, str] = {}
    created: str = ""
    seconds: float = 0.0
    tracking_run: str | None = None


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

    def file(self, name: str) -> Path:
        """The path of one data file, its size checked against the manifest.

        Raises BadInput when the file is missing, unknown to the manifest or of another size.
        """
        record, path = self.manifest.files.get(name), self.path / name
        if record is None:
            raise BadInput(
                f"{self.name} has no file '{name}'; it has {sorted(self.manifest.files)}"
            )
        size = path.stat().st_size if path.exists() else None
        if size != record.size:
            found = "is missing" if size is None else f"has {size} bytes"
            raise BadInput(
                f"{path} {found}, its manifest says {record.size} bytes; "
                f"run `headrace verify {self.name}`, then `headrace run --rebuild "
                f"{self.manifest.stage}`"
            )
        return path

    def verified(self, name: str) -> Path:
        """The path of one data file, every byte of it compared with the manifest.

        Raises BadInput as `file` does, and when a block changed.
        """
        path = self.file(name)
        if (got := record(path)) != (want := self.manifest.files[name]):
            raise BadInput(
                f"{path}: {difference(want, got)}; run `headrace run --rebuild "
                f"{self.manifest.stage}`"
            )
        return path

    def files(self, pattern: str) -> list[Path]:
        """The paths of all data files that match a glob, sorted, sizes checked."""
        names = sorted(n for n in self.manifest.files if Path(n).match(pattern))
        return [self.file(n) for n in names]

    def read_json(self, name: str) -> Any:
        """A JSON data file, parsed."""
        return json.loads(self.file(name).read_text())

    @classmethod
    def load(cls, path: Path) -> "Artifact":
        """The artifact in a folder. Raises BadInput when the folder holds no readable manifest."""
        try:
            return cls(path, Manifest.model_validate_json((path / MANIFEST).read_text()))
        except FileNotFoundError:
            raise BadInput(f"{path} is not an artifact: it has no {MANIFEST}") from None
        except ValueError as error:
            raise BadInput(f"{path / MANIFEST} cannot be read: {error}") from error


def parents(manifest: Manifest) -> list[str]:
    """The fingerprints of an artifact's direct inputs, and of earlier artifacts that its settings
    name under `against`: it was made from them too.
    """
    flat: list[str] = []
    for value in manifest.inputs.values():
        flat.extend([value] if isinstance(value, str) else value)
    return [*flat, *manifest.settings.get("settings", {}).get("against", ())]


def faults(artifact: Artifact) -> list[str]:
    """What is wrong with an artifact's files, by reading every byte; empty when it is intact."""
    found, manifest = [], artifact.manifest
    for name, want in manifest.files.items():
        path = artifact.path / name
        if not path.exists():
            found.append(f"{path}: missing")
        elif (got := record(path)) != want:
            found.append(f"{path}: {difference(want, got)}")
    extra = set(data_files(artifact.path)) - set(manifest.files)
    return found + [f"{artifact.path / name}: not in the manifest" for name in sorted(extra)]


def difference(want: FileRecord, got: FileRecord) -> str:
    """How a file differs from its record, with the place of the first changed block."""
    if got.size != want.size:
        return f"{got.size} bytes, expected {want.size}"
    block = next(i for i, (a, b) in enumerate(zip(want.blocks, got.blocks, strict=True)) if a != b)
    return (
        f"bytes {block * BLOCK_BYTES} to {min((block + 1) * BLOCK_BYTES, want.size)} changed: "
        f"SHA-256 {got.blocks[block][:12]}, expected {want.blocks[block][:12]}"
    )


def data_files(folder: Path) -> list[str]:
    """All files below a folder except the manifest, as sorted relative names."""
    names = (p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    return sorted(n for n in names if n != MANIFEST)


def record(path: Path) -> FileRecord:
    """Sync a file to disk and hash it block by block."""
    blocks = []
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            blocks.append(hashlib.sha256(block).hexdigest())
        os.fsync(file.fileno())
    return FileRecord(size=path.stat().st_size, blocks=blocks)
