"""The artifact store: immutable folders, each with an `artifact.json` written last.

    artifacts/<stage>/<recipe>-<fingerprint[:8]>/    data files and artifact.json
    artifacts/<stage>/.<recipe>-<fingerprint[:8]>/   the same, still being written
    work/<stage>-<fingerprint[:8]>/                  scratch: survives a kill (checkpoints)
    locks/<fingerprint>                              one writer at a time
    fetched/                                         what was asked for of the shared store's

A folder appears under its final name complete or not at all: files are written and synced under the
dotted name, then the manifest, then the folder is renamed and its parent synced. One that is
replaced or removed first loses its name (`.old-...`), then its files.
"""

import contextlib
import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from cluster import energy, handover
from cluster.artifact import Artifact, is_fetched
from cluster.catalogue import Catalogue, warn_once
from cluster.errors import BadInput
from cluster.files import leftovers, put_in_place, sync, write_atomically
from cluster.home import apart, home
from cluster.locks import lock
from cluster.manifest import (
    FETCHED,
    MANIFEST,
    FileRecord,
    Ledger,
    Manifest,
    data_files,
    parents,
    record,
)
from cluster.names import inside
from cluster.node_cache import keep_manifest
from cluster.object_store import ObjectStore, from_environment
from cluster.placement import Placement
from cluster.resources import Usage, measured
from cluster.settings import nearest
from cluster.tracking import NullTracker, Tracker

PROGRESS = "progress.json"
SHOWN_BYTES = 64 << 20
LIBRARIES = ("torch", "deepspeed", "tokenizers", "pyarrow", "numpy", "gensim")


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
        # Equal values must make equal bytes, in whatever order they were set.
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
    work: Mapping[str, float] = field(default_factory=dict)
    joules: float | None = None
    _last_progress: float = 0.0
    _phase: tuple[str, float, float, float] = ("", 0.0, 0.0, 0.0)
    _published: float = 0.0
    _bytes: float = 0.0

    def progress(self, done: float, total: float, unit: str, **figures: float) -> None:
        """Tell whoever watches how far the stage is; throttled to two reports a second."""
        if unit == "bytes":
            self._bytes = max(self._bytes, total)
        now = time.monotonic()
        if now - self._last_progress < 0.5 and done < total:
            return
        self._last_progress = now
        if self._phase[:2] != (unit, total):  # a rate is that since the phase began
            self._phase = (unit, total, time.time(), done)
        began = {"began": self._phase[2], "from": self._phase[3]}
        report = {"done": done, "total": total, "unit": unit, **began, **figures}
        write_atomically(self.scratch / PROGRESS, json.dumps(report))
        if apart() and now - self._published > handover.FOLLOW_SECONDS:
            self._published = now
            handover.publish(self.scratch / PROGRESS)
        if self.on_progress:
            self.on_progress(report)

    def resources(self, seconds: float, usage: Usage) -> dict[str, float]:
        """What the stage took: CPU seconds and peak memory of one process, and bytes a second where
        it counts its progress in bytes.
        """
        found = {"cpu_seconds": round(usage.cpu_seconds, 6), "peak_bytes": usage.peak_bytes}
        found |= {} if self.joules is None else {"joules": round(self.joules, 3)}
        if self._bytes and seconds:
            found |= {"bytes": self._bytes, "bytes_per_second": round(self._bytes / seconds, 1)}
        return found

    def write_json(self, name: str, value: Any) -> None:
        """Write a JSON data file."""
        (self.path / name).write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


class Store:
    """All artifacts under one root (default: `$HEADRACE_HOME`)."""

    def __init__(self, root: Path | None = None):
        self.root = root or home()

    def folder(self, spec: Spec) -> Path:
        """The final folder of a spec's artifact. Of a run apart the store has it, and this node no
        more than a cached copy.
        """
        tree = self.root / (FETCHED if apart() else "artifacts")
        return inside(tree, f"{spec.stage}/{spec.folder}")

    def open(self, name: str, shown: bool = False) -> Artifact:
        """The artifact of a name, `stage/folder`, as another process of a run passes it on. With
        `shown`, to people, all files of one of up to 64 MiB are fetched. Raises BadInput when there
        is none.
        """
        # The path of one that lies elsewhere stays as it is.
        own, cached = self.root / "artifacts" / name, self.root / FETCHED / name
        if not apart() and ((own / MANIFEST).exists() or not self.shared):
            return Artifact.load(own)
        keep_manifest(cached)
        artifact = Artifact.load(cached)
        if shown and artifact.manifest.size <= SHOWN_BYTES:
            for file in artifact.manifest.files:
                artifact.data(file).sized()
        return artifact

    def offer(self, artifact: Artifact) -> str:
        """The name by which other processes of a run `open` an artifact. Where their nodes have
        homes of their own it is put into the shared store, unless that has it.
        """
        if apart() and self.shared:
            if not is_fetched(artifact.path):
                self.shared.push(artifact.name, artifact.path)
            return artifact.name
        return artifact.name if artifact.path.is_relative_to(self.root) else str(artifact.path)

    def scratch(self, spec: Spec) -> Path:
        """The folder of a spec's unfinished work."""
        return self.root / "work" / f"{spec.stage}-{spec.fingerprint[:8]}"

    def artifacts(self) -> list[Artifact]:
        """Every artifact, oldest first; folders with a broken manifest are named and left out."""
        found, damaged = self.survey()
        for why in damaged.values():
            warn_once(why)
        return found

    def survey(self) -> tuple[list[Artifact], dict[Path, str]]:
        """Every artifact, oldest first, and why each of the other folders cannot be read."""
        found, damaged = [], {}
        folders = {"/".join(path.parts[-2:]): path for path in self._folders()}
        for folder in sorted(folders.values()):
            try:
                found.append(Artifact.load(folder))
            except BadInput as error:
                if folder.exists():  # else it was removed meanwhile
                    damaged[folder] = str(error)
        return sorted(found, key=lambda a: a.manifest.created), damaged

    def _folders(self) -> Iterator[Path]:
        """Those with artifacts; where there are two of a name, the one that is whole comes last."""
        for path in (self.root / FETCHED).glob("*/[!.]*"):
            if (path / MANIFEST).exists():
                yield path
        yield from (self.root / "artifacts").glob("*/[!.]*")

    def find(self, stage: str, fingerprint: str) -> Artifact | None:
        """The artifact with this fingerprint, whatever recipe made it; None when there is none, or
        a file of it is missing or of another size. One that only the shared store has is not
        fetched before its files are asked for.
        """
        return self.catalogue().find(stage, fingerprint).artifact

    def catalogue(self) -> Catalogue:
        """What is there now, to ask many times."""
        return Catalogue(self.root, self.shared)

    @cached_property
    def shared(self) -> ObjectStore | None:
        """The object store that machines share, if there is one."""
        return from_environment()

    def get(self, name: str) -> Artifact:
        """The artifact a user names: its folder, `stage/folder`, `stage` (its newest) or the
        beginning of its fingerprint. Raises BadInput when not exactly one answers to the name.
        """
        for folder in (Path(name), self.root / "artifacts" / name, self.root / FETCHED / name):
            if (folder / MANIFEST).exists():
                return Artifact.load(folder)
        everything = self.artifacts()
        if newest := [a for a in everything if a.manifest.stage == name]:
            return newest[-1]
        found = [a for a in everything if a.name == name or a.fingerprint.startswith(name)]
        if len(found) != 1:
            what = "no artifact" if not found else f"{len(found)} artifacts"
            near = nearest(name, {a.manifest.stage for a in everything})
            hint = f"{near} " if near.startswith("did you mean") and not found else ""
            raise BadInput(f"{what} named '{name}'; {hint}`headrace ls` lists them")
        return found[0]

    def path_of(self, name: str) -> Path:
        """The folder that a user names: one on this disk, or an artifact's. Raises BadInput as
        `get` does.
        """
        return Path(name) if Path(name).is_dir() else self.get(name).path

    @contextlib.contextmanager
    def draft(
        self,
        spec: Spec,
        placement: Placement | None = None,
        tracker: Tracker | None = None,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
        forced: bool = False,
        work: Mapping[str, float] | None = None,
    ) -> Iterator[Draft]:
        """A draft that becomes the artifact when the block ends without an error; `forced` replaces
        the shared store's. The manifest keeps the figures of its `work`, to tell times by.

        The caller holds `self.writer(spec)`. A draft left by a killed process is cleared.
        """
        final, scratch = self.folder(spec), self.scratch(spec)
        temporary = final.with_name("." + final.name)
        for left in (temporary, *leftovers(final), *leftovers(scratch)):
            shutil.rmtree(left, ignore_errors=True)
        temporary.mkdir(parents=True)
        if scratch.exists():
            work = None  # what is left to do is less: its time tells nothing of another's
        scratch.mkdir(parents=True, exist_ok=True)
        draft = Draft(
            temporary,
            scratch,
            spec,
            placement or Placement(),
            tracker or NullTracker(),
            on_progress=on_progress,
            work=work or {},
        )
        started, before = time.monotonic(), energy.reading()
        with measured() as usage:
            yield draft
        draft.joules = before.joules_since(usage.cpu_seconds)
        self._commit(draft, final, time.monotonic() - started, usage, forced)

    def writer(self, spec: Spec) -> contextlib.AbstractContextManager[None]:
        """The lock that lets one process at a time build an artifact."""
        return lock(self.lock_file(spec))

    def lock_file(self, spec: Spec) -> Path:
        """The file that `writer` locks."""
        return self.root / "locks" / spec.fingerprint

    def _commit(
        self, draft: Draft, final: Path, seconds: float, usage: Usage, forced: bool
    ) -> None:
        """Make the artifact of a complete draft: every file safe on the disk, the manifest after
        them, then its place, and that in the shared store.
        """
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
            files={name: _durable(draft.path / name) for name in data_files(draft.path)},
            libraries=library_versions(),
            created=datetime.now(UTC).isoformat(timespec="milliseconds"),
            seconds=round(seconds, 3),
            work=dict(draft.work),
            resources=draft.resources(seconds, usage),
            tracking_run=draft.tracker.run_id,
        )
        # The name of a file is an entry of its folder, which has to be synced as well; the top
        # folder is when the manifest is written.
        for folder in (path for path in draft.path.rglob("*") if path.is_dir()):
            sync(folder)
        write_atomically(draft.path / MANIFEST, manifest.sealed())
        put_in_place(draft.path, final)
        if self.shared:
            name = f"{draft.spec.stage}/{final.name}"
            self.shared.push(name, final, replace=forced and apart())
        # Last: until the artifact lies there, a killed attempt goes on from its scratch.
        handover.forget(draft.scratch)

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


def _durable(path: Path) -> FileRecord:
    """What the manifest says of a file that is safe on the disk."""
    sync(path)
    return record(path)


def library_versions() -> dict[str, str]:
    """Installed versions of the libraries that shape results."""
    found = {}
    for name in LIBRARIES:
        with contextlib.suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
