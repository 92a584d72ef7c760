"""An artifact: a folder of data files and an `artifact.json` that says what they are.

The manifest proves itself and them: its second line is the SHA-256 of all lines after it, and it
holds the size of every file and the SHA-256 of each of its blocks. Arrow, Parquet, JSON and
safetensors all load a flipped bit without complaint.
"""

import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from cluster.errors import BadInput
from cluster.settings import Record

MANIFEST = "artifact.json"
BLOCK_BYTES = 1 << 20
SEALED = re.compile(rb'\{\n "sha256": "([0-9a-f]{64})",\n(.*)', re.DOTALL)


class Ledger(Record):
    """Rows in = rows out + rejects by reason."""

    rows_in: int = Field(serialization_alias="in", validation_alias="in")
    rows_out: int = Field(serialization_alias="out", validation_alias="out")
    rejects: dict[str, int] = {}

    def check(self) -> None:
        """Raise AssertionError when a row is unaccounted for."""
        rejected = sum(self.rejects.values())
        assert self.rows_in == self.rows_out + rejected, f"ledger does not balance: {self}"


class FileRecord(Record):
    """Size in bytes and the SHA-256 of each 1 MiB block of one file."""

    size: int
    blocks: list[str]


class Manifest(Record):
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
    resources: dict[str, float] = {}
    tracking_run: str | None = None

    def sealed(self) -> str:
        """The text of `artifact.json`; `tail -n +3 artifact.json | sha256sum` gives its hash."""
        lines = self.model_dump_json(indent=1, by_alias=True).removeprefix("{\n")
        return f'{{\n "sha256": "{_sha256(lines.encode())}",\n{lines}'

    @classmethod
    def unsealed(cls, text: bytes) -> "Manifest":
        """The manifest in a sealed text. Raises ValueError unless it proves itself."""
        parts = SEALED.fullmatch(text)
        if parts is None:
            raise ValueError("it does not begin with its own hash: damaged, or of an older version")
        said, lines = parts[1].decode(), parts[2]
        if (found := _sha256(lines)) != said:
            raise ValueError(f"its content changed: SHA-256 {found[:12]}, it says {said[:12]}")
        return cls.model_validate_json(b"{\n" + lines)


@dataclass(frozen=True)
class DataFile:
    """A data file and what the manifest says of it: all that a worker needs to prove it."""

    path: Path
    record: FileRecord
    artifact: str

    @property
    def remedy(self) -> str:
        """What to do about damage."""
        return (
            f"run `headrace verify {self.artifact}`, then `headrace run RECIPE --rebuild "
            f"{self.artifact.split('/')[0]}`"
        )

    def fault(self) -> str | None:
        """Whether it is missing or of another size, in words."""
        size = self.path.stat().st_size if self.path.is_file() else None
        if size == self.record.size:
            return None
        found = "is missing" if size is None else f"has {size} bytes"
        return f"{found}, its manifest says {self.record.size} bytes"

    def sized(self) -> Path:
        """Its path, the size checked. Raises BadInput when it is missing or of another size."""
        if fault := self.fault():
            raise BadInput(f"{self.path} {fault}; {self.remedy}")
        return self.path

    def verified(self) -> Path:
        """Its path, every byte compared with the manifest. Raises BadInput for any difference."""
        if changed := difference(self.record, record(self.sized())):
            raise BadInput(f"{self.path}: {changed}; {self.remedy}")
        return self.path


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
        return DataFile(self.path / name, record, self.name)

    def file(self, name: str) -> Path:
        """The path of one data file, every byte of it compared with the manifest.

        Raises BadInput when the file is missing, unknown to the manifest or changed.
        """
        return self.data(name).verified()

    def files(self, pattern: str) -> list[DataFile]:
        """All data files that match a glob, sorted, sizes checked.

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
            file.sized()
        return files

    def folder(self) -> Path:
        """Its folder, every byte of every file compared with the manifest: for other libraries to
        read from. Raises BadInput as `file` does.
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
        """The artifact in a folder. Raises BadInput unless its manifest is there and intact."""
        try:
            return cls(path, Manifest.unsealed((path / MANIFEST).read_bytes()))
        except FileNotFoundError:
            raise BadInput(f"{path} is not an artifact: it has no {MANIFEST}") from None
        except (OSError, ValueError) as error:
            raise BadInput(
                f"{path / MANIFEST} cannot be read: {error}; run `headrace run RECIPE --rebuild "
                f"{path.parent.name}`, or remove the folder"
            ) from error


def parents(manifest: Manifest) -> list[str]:
    """The fingerprints of an artifact's direct inputs."""
    flat: list[str] = []
    for value in manifest.inputs.values():
        flat.extend([value] if isinstance(value, str) else value)
    return flat


def faults(artifact: Artifact) -> list[str]:
    """What is wrong with an artifact, by reading every byte; empty when it is intact."""
    found = []
    for name in artifact.manifest.files:
        file = artifact.data(name)
        if not file.path.is_file():
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


def difference(want: FileRecord, got: FileRecord) -> str | None:
    """How a file differs from its record, with the place of the first changed block."""
    if got.size != want.size:
        return f"{got.size} bytes, expected {want.size}"
    if got.blocks == want.blocks:
        return None
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
    """Size and hashes of a file as it is."""
    blocks = []
    with path.open("rb") as file:
        while block := file.read(BLOCK_BYTES):
            blocks.append(_sha256(block))
        return FileRecord(size=file.tell(), blocks=blocks)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
