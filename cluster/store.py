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
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.artifact import MANIFEST, Artifact, Ledger, Manifest, data_files, parents, record
from cluster.errors import BadInput
from cluster.files import sync, write_atomically
from cluster.home import home
from cluster.locks import lock
from cluster.placement import Placement
from cluster.tracking import NullTracker, Tracker

if TYPE_CHECKING:
    from cluster.object_store import ObjectStore

LIBRARIES = ("torch", "deepspeed", "tokenizers", "pyarrow", "numpy")
log = logging.getLogger("headrace.store")


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
        draft = Draft(
            temporary,
            scratch,
            spec,
            placement or Placement(),
            tracker or NullTracker(),
            on_progress=on_progress,
        )
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


def library_versions(names: Iterable[str] = LIBRARIES) -> dict[str, str]:
    """Installed versions of the libraries that shape results."""
    found = {}
    for name in names:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
