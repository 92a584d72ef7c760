"""The artifact store: immutable folders, each with an `artifact.json` written last.

    artifacts/<stage>/<recipe>-<fingerprint[:8]>/    data files and artifact.json
    artifacts/<stage>/.<recipe>-<fingerprint[:8]>/   the same, still being written
    work/<stage>-<fingerprint[:8]>/                  scratch: survives a kill (checkpoints)
    locks/<fingerprint>                              one writer at a time

A folder appears under its final name complete or not at all: files are written and synced under the
dotted name, then the manifest, then the folder is renamed and its parent synced.
"""

import contextlib
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field

from cluster.errors import BadInput
from cluster.home import home
from cluster.locks import lock
from cluster.placement import Placement
from cluster.settings import Settings
from cluster.tracking import NullTracker, Tracker

if TYPE_CHECKING:
    from cluster.object_store import ObjectStore

MANIFEST = "artifact.json"
BLOCK_BYTES = 1 << 20
LIBRARIES = ("torch", "deepspeed", "tokenizers", "pyarrow", "numpy")
log = logging.getLogger("headrace.store")


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


@dataclass(frozen=True)
class Spec:
    """What a stage run is: what its fingerprint covers, and under which name it is kept.

    `recipe` and `label` (which member of a sweep) are names, not identity.
    """

    stage: str
    version: int
    recipe: str
    settings: dict[str, Any]
    inputs: dict[str, str | list[str]]
    label: str = ""

    @property
    def fingerprint(self) -> str:
        """SHA-256 of stage name, stage version, settings and the inputs' fingerprints."""
        identity = [self.stage, self.version, self.settings, self.inputs]
        text = json.dumps(identity, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def folder(self) -> str:
        """The artifact's folder name."""
        return "-".join(filter(None, (self.recipe, self.label, self.fingerprint[:8])))


@dataclass
class Draft:
    """An artifact being written. A stage puts files in `path` and facts in the fields.

    `scratch` is a folder that outlives a killed process: the next attempt at the same fingerprint
    finds what is in it. `progress` may be called as often as one likes.
    """

    path: Path
    scratch: Path
    spec: Spec
    placement: Placement = field(default_factory=Placement)
    tracker: Tracker = field(default_factory=NullTracker)
    rows: int | None = None
    tokens: int | None = None
    ledger: Ledger | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    on_progress: Callable[[dict[str, Any]], None] | None = None
    _last_progress: float = 0.0

    def progress(self, done: float, total: float, unit: str, **figures: float) -> None:
        """Tell whoever watches how far the stage is; throttled to two reports a second."""
        now = time.monotonic()
        if now - self._last_progress < 0.5 and done < total:
            return
        self._last_progress = now
        report = {"done": done, "total": total, "unit": unit, **figures}
        write_atomically(self.scratch / "progress.json", json.dumps(report))
        if self.on_progress:
            self.on_progress(report)

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON data file."""
        (self.path / name).write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


class Store:
    """All artifacts under one root (default: `$HEADRACE_HOME`)."""

    def __init__(self, root: Path | None = None):
        self.root = root or home()

    def folder(self, spec: Spec) -> Path:
        """The final folder of a spec's artifact."""
        return self.root / "artifacts" / spec.stage / spec.folder

    def scratch(self, spec: Spec) -> Path:
        """The folder of a spec's unfinished work."""
        return self.root / "work" / f"{spec.stage}-{spec.fingerprint[:8]}"

    def artifacts(self) -> list[Artifact]:
        """Every artifact, oldest first; folders with a broken manifest are logged and left out."""
        found = []
        for path in sorted((self.root / "artifacts").glob(f"*/[!.]*/{MANIFEST}")):
            try:
                found.append(Artifact.load(path.parent))
            except BadInput as error:
                log.warning("%s", error)
        return sorted(found, key=lambda a: a.manifest.created)

    def find(self, stage: str, fingerprint: str) -> Artifact | None:
        """The artifact with this fingerprint, whatever recipe made it; None when there is none.

        One that only the shared object store has is fetched.
        """
        pattern = f"artifacts/{stage}/[!.]*-{fingerprint[:8]}/{MANIFEST}"
        for path in self.root.glob(pattern):
            artifact = Artifact.load(path.parent)
            if artifact.fingerprint == fingerprint:
                return artifact
        if shared := self._shared():
            return shared.pull(stage, fingerprint, self.root / "artifacts")
        return None

    def _shared(self) -> "ObjectStore | None":
        from cluster.object_store import from_environment

        return from_environment()

    def get(self, name: str) -> Artifact:
        """The artifact a user names: its folder, `stage/folder`, `stage` (its newest) or the
        beginning of its fingerprint. Raises BadInput when not exactly one answers to the name.
        """
        if (Path(name) / MANIFEST).exists():
            return Artifact.load(Path(name))
        everything = self.artifacts()
        if newest := [a for a in everything if a.manifest.stage == name]:
            return newest[-1]
        found = [a for a in everything if a.name == name or a.fingerprint.startswith(name)]
        if len(found) != 1:
            what = "no artifact" if not found else f"{len(found)} artifacts"
            raise BadInput(f"{what} named '{name}'; `headrace ls` lists them")
        return found[0]

    @contextlib.contextmanager
    def draft(
        self,
        spec: Spec,
        placement: Placement | None = None,
        tracker: Tracker | None = None,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> Iterator[Draft]:
        """A draft that becomes the artifact when the block ends without an error.

        The caller holds `self.writer(spec)`. A draft left by a killed process is cleared.
        """
        final, scratch = self.folder(spec), self.scratch(spec)
        temporary = final.with_name("." + final.name)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        scratch.mkdir(parents=True, exist_ok=True)
        draft = Draft(temporary, scratch, spec, placement or Placement(), tracker or NullTracker())
        started = time.monotonic()
        yield draft
        self._commit(draft, final, time.monotonic() - started)

    def writer(self, spec: Spec) -> contextlib.AbstractContextManager[None]:
        """The lock that lets one process at a time build an artifact."""
        return lock(self.root / "locks" / spec.fingerprint)

    def _commit(self, draft: Draft, final: Path, seconds: float) -> None:
        if draft.ledger:
            draft.ledger.check()
        manifest = Manifest(
            **vars(draft.spec),
            fingerprint=draft.spec.fingerprint,
            rows=draft.rows,
            tokens=draft.tokens,
            ledger=draft.ledger,
            metrics=draft.metrics,
            facts=draft.facts,
            files={name: record(draft.path / name) for name in data_files(draft.path)},
            libraries=library_versions(),
            created=datetime.now(UTC).isoformat(timespec="milliseconds"),
            seconds=round(seconds, 3),
            tracking_run=draft.tracker.run_id,
        )
        text = manifest.model_dump_json(indent=1, by_alias=True)
        write_atomically(draft.path / MANIFEST, text)
        if final.exists():  # a forced rebuild replaces the artifact of the same fingerprint
            shutil.rmtree(final)
        draft.path.rename(final)
        sync(final.parent)
        if shared := self._shared():
            shared.push(Artifact.load(final))
        shutil.rmtree(draft.scratch, ignore_errors=True)

    def lineage(self, artifact: Artifact) -> list[Artifact]:
        """The artifact and all it was made from that is still in the store, nearest first."""
        by_fingerprint = {a.fingerprint: a for a in self.artifacts()}
        order, queue = {artifact.fingerprint: artifact}, [artifact]
        while queue:
            for parent in parents(queue.pop(0).manifest):
                if parent in by_fingerprint and parent not in order:
                    order[parent] = by_fingerprint[parent]
                    queue.append(by_fingerprint[parent])
        return list(order.values())


def parents(manifest: Manifest) -> list[str]:
    """The fingerprints of an artifact's direct inputs."""
    flat: list[str] = []
    for value in manifest.inputs.values():
        flat.extend([value] if isinstance(value, str) else value)
    return flat


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


def write_atomically(path: Path, text: str) -> None:
    """Replace a small text file so that a reader or a crash sees the old or the new one, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync(path.parent)


def sync(folder: Path) -> None:
    """Make a rename in this folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def library_versions(names: Iterable[str] = LIBRARIES) -> dict[str, str]:
    """Installed versions of the libraries that shape results."""
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
