"""Manifests: what a folder of data files is, and how to tell that it is intact.

A manifest proves itself and them: its second line is the SHA-256 of all lines after it, and it
holds the size of every file and the SHA-256 of each of its blocks. Arrow, Parquet, JSON and
safetensors all load a flipped bit without complaint.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from cluster.settings import Record

MANIFEST = "artifact.json"
FETCHED = "fetched"
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
    """What an artifact is, what it was made from, and how to tell that it is intact.

    `label` tells members of a sweep apart. `inputs` are fingerprints, by the stage's argument.
    `facts` are what the stage tells those behind it (`cluster.facts`), `work` figures of what there
    was to do, by which the times of later stages are foretold, `resources` what it took.
    `tracking_run` is the id of its run in MLflow.
    """

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
    work: dict[str, float] = {}
    resources: dict[str, float] = {}
    tracking_run: str | None = None

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(about.size for about in self.files.values())

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


def named_inputs(inputs: Mapping[str, str | list[str]]) -> Iterator[tuple[str, str]]:
    """The fingerprint of each of a manifest's `inputs`, with the argument that it is."""
    for name, value in inputs.items():
        yield from ((name, one) for one in ([value] if isinstance(value, str) else value))


def parents(manifest: Manifest) -> list[str]:
    """The fingerprints of an artifact's direct inputs."""
    return [fingerprint for _, fingerprint in named_inputs(manifest.inputs)]


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
