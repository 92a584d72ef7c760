"""Checkpoints on disk: a folder of tensors that is complete and intact, or is not used.

    checkpoints/step-00000120/      rank-00000.safetensors .. and checkpoint.json
    checkpoints/.step-00000160/     one that is being written, or whose writer was killed

Every rank writes and syncs its own file, in a thread, while training goes on up to the next update,
or, where the tensors are copies, beyond it. Rank 0 then writes `checkpoint.json` with the size and
SHA-256 of each, renames the folder to its final name and syncs the parent. The newest two are kept,
and those of steps that a job names. Files are safetensors: nothing that is loaded can run code.

Where nodes have homes of their own, each file is copied to the shared store when it is written, and
`checkpoint.json` last: what lies there counts, and a node copies it back to go on from.
"""

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError

from cluster import handover
from cluster.errors import BadInput
from cluster.files import sync, write_atomically
from cluster.home import apart
from cluster.locks import lock
from cluster.names import inside
from cluster.world import World

if TYPE_CHECKING:
    import torch

RECORD = "checkpoint.json"
KEPT = 2
log = logging.getLogger("headrace.checkpoint")


class CheckpointFailed(RuntimeError):
    """A checkpoint could not be written; earlier ones are untouched."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: after which step, of which training, and its files' fingerprints.

    `team`: how many ranks had the network together (`tasks.training.tensor_parallel`).
    """

    path: Path
    step: int
    tokens: int
    job: dict[str, Any]
    files: dict[str, dict[str, Any]]
    team: int = 1

    def fault(self) -> str | None:
        """What is wrong with its files, by reading every byte; None when they are intact."""
        for name, want in self.files.items():
            path = self.path / name
            if not path.exists():
                return f"{path} is missing"
            if (got := fingerprint(path)) != want:
                return f"{path}: {got['size']} bytes, SHA-256 {got['sha256'][:12]}, expected {want}"
            try:
                _open(path)
            except SafetensorError as error:
                return f"{path} holds no tensors: {error}"
        return None

    def check_job(self, job: Mapping[str, Any]) -> None:
        """Raise BadInput, naming what differs, when it belongs to another training."""
        keys = sorted(self.job.keys() | job.keys())
        different = [k for k in keys if self.job.get(k) != job.get(k)]
        if different:
            told = "; ".join(f"{k} {self.job.get(k)} -> {job.get(k)}" for k in different)
            raise BadInput(
                f"{self.path} is a checkpoint of another training ({told}); go back to its "
                f"settings, or delete {self.path.parent} to start from step 0"
            )


class Writing:
    """A checkpoint on its way to the disk: `Writing(...)` begins it, `commit` makes it one.

    Every rank makes one of its own `tensors`, which must not change until `wait_read` returns, and
    all commit together.
    """

    def __init__(
        self,
        folder: Path,
        world: World,
        tensors: "dict[str, torch.Tensor]",
        *,
        step: int,
        tokens: int,
        job: Mapping[str, Any],
        team: int = 1,
        kept: Collection[int] = (),
    ) -> None:
        self.world, self.step, self.kept = world, step, kept
        self._about = Checkpoint(folder / f"step-{step:08d}", step, tokens, dict(job), {}, team)
        self._temporary = folder / f".{self._about.path.name}"
        if world.leads:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary.mkdir(parents=True)
        # No rank writes before the folder is there.
        world.broadcast(None)
        self._temporary.mkdir(parents=True, exist_ok=True)  # of a node apart
        path = self._temporary / f"rank-{world.rank:05d}.safetensors"
        # Two tasks for one thread: after the first the tensors are
        # free again, while the disk still works.
        pool = ThreadPoolExecutor(1, thread_name_prefix="checkpoint")
        self._written = pool.submit(_write, path, tensors)
        self._file = pool.submit(_finish, self._written, path, self._about.path / path.name)
        pool.shutdown(wait=False)

    @property
    def written(self) -> bool:
        """Whether this rank's file is on the disk."""
        return self._file.done()

    def wait_read(self) -> None:
        """Until the tensors are no longer needed."""
        futures.wait([self._written])

    def wait(self) -> None:
        """Until the thread has ended, whatever came of it."""
        futures.wait([self._file])

    def commit(self) -> Path:
        """The checkpoint's folder, once all files are written; earlier ones but one are removed,
        save those of steps to be kept.

        Raises CheckpointFailed on all ranks when any of them could not write, a full disk for one.
        """
        final = self._about.path
        # What a rank says here it says after its file was synced:
        # record and name come after all files.
        files = _checked(self.world.gather(self._file.result()))
        fault = None
        if self.world.leads:
            try:
                _write_record(self._temporary / RECORD, replace(self._about, files=files))
                handover.copy_out(self._temporary / RECORD, final / RECORD)
                # There is one where it was found damaged, and training has come to this step again.
                shutil.rmtree(final, ignore_errors=True)
                if not apart():
                    self._temporary.rename(final)
                    sync(final.parent)
            except Exception as error:  # of the disk, or of the library of the shared store
                fault = str(error)
        # All raise or none: a rank that went on alone would wait for the others in its next step.
        _checked([{"fault": self.world.broadcast(fault)}])
        if self.world.leads:
            # Not earlier: until the new one has its name the old ones are all there is.
            passing = [path for path in complete(final.parent) if step_of(path) not in self.kept]
            for old in passing[KEPT:]:
                handover.forget(old)
        if apart():  # whole it is in the store alone: here are the files of this node's ranks
            shutil.rmtree(self._temporary, ignore_errors=True)
        return final


def graft(source: Path, folder: Path, changes: Mapping[str, Any]) -> None:
    """Let a training begin with the checkpoint of another: the same state under a job that differs
    by `changes`. Does nothing where the training has a checkpoint of that step already.
    """
    if folder / source.name in complete(folder):
        return
    record = read(source)
    temporary = folder / f".{source.name}"
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(source, temporary)
    _write_record(temporary / RECORD, replace(record, job=record.job | dict(changes)))
    for path in (*temporary.iterdir(), temporary):
        sync(path)
    for file in sorted(temporary.iterdir(), key=lambda path: path.name == RECORD):
        handover.copy_out(file, folder / source.name / file.name)
    temporary.rename(folder / source.name)
    sync(folder)


def newest(folder: Path) -> Checkpoint | None:
    """The newest intact checkpoint; None when none was ever completed.

    A damaged one is named in a warning and the one before it is used. Raises BadInput when there
    are checkpoints and none is intact: training never starts afresh over a lost one.
    """
    for leftover in (*folder.glob(".step-*"), *folder.glob(".old-*")):
        shutil.rmtree(leftover, ignore_errors=True)
    faults = []
    for path in complete(folder):
        try:
            checkpoint = read(brought(path))
            fault = checkpoint.fault()
        except (OSError, ValueError, TypeError) as error:
            fault = f"{path / RECORD} cannot be read: {error}"
        if fault is None:
            return checkpoint
        log.warning("checkpoint %s is damaged and passed over: %s", path.name, fault)
        faults.append(fault)
    if faults:
        raise BadInput(
            f"no usable checkpoint in {folder}: {'; '.join(faults)}. "
            f"Restore it, or delete {folder} to start from step 0"
        )
    return None


def agreed(folder: Path, world: World) -> Checkpoint | None:
    """What rank 0 finds to be the newest, on every rank, and on its node. Raises BadInput as
    `newest` does, and when it is damaged on the way.
    """
    checkpoint, error = world.agree(lambda: newest(folder)), None
    if checkpoint and apart():
        try:
            fault = read(brought(checkpoint.path)).fault()
            error = BadInput(f"{fault}; run the same command again") if fault else None
        except Exception as found:  # of the library of the shared store
            error = found
        if any(world.gather(error is not None)):  # none goes on alone, to wait for the others
            world.fail(error)
    return checkpoint


def step_of(path: Path) -> int:
    """The step of a checkpoint, by its name."""
    return int(path.name.removeprefix("step-"))


def complete(folder: Path) -> list[Path]:
    """The folders under a final name, newest first: of a run apart, those in the shared store."""
    found = [folder / name for name in handover.names_in(folder) if name.startswith("step-")]
    if apart():
        found = [path for path in found if RECORD in handover.names_in(path)]
    return sorted(found, reverse=True)


def brought(path: Path) -> Path:
    """A complete checkpoint on this node: copied from the store, once for all of its ranks."""
    if apart() and not (path / RECORD).exists():
        with lock(path.parent / "arriving"):
            if not (path / RECORD).exists():
                _copy_in(path)
    return path


def _copy_in(path: Path) -> None:
    arriving = path.with_name(f".{path.name}-arriving")
    shutil.rmtree(arriving, ignore_errors=True)
    arriving.mkdir(parents=True)
    handover.copy_in(path / RECORD, arriving / RECORD)
    for name in json.loads((arriving / RECORD).read_text())["files"]:
        handover.copy_in(path / name, inside(arriving, name))
    shutil.rmtree(path, ignore_errors=True)
    arriving.rename(path)


def read(path: Path) -> Checkpoint:
    """The record of a checkpoint folder. Raises ValueError when it was tampered with."""
    values = json.loads((path / RECORD).read_text())
    if values.pop("digest") != _digest(values) or path.name != f"step-{values['step']:08d}":
        raise ValueError("its contents do not match its digest")
    return Checkpoint(path=path, **values)


def reader(checkpoint: Checkpoint) -> "Callable[[str], torch.Tensor]":
    """Reads the tensors of a checkpoint by name, flat, from whichever ranks' files have them."""
    import torch

    pieces: dict[str, list[tuple[int, str, Any]]] = {}
    for path in checkpoint.files:
        file = _open(checkpoint.path / path)
        for key in file.keys():  # noqa: SIM118
            name, _, start = key.partition("@")
            pieces.setdefault(name, []).append((int(start or 0), key, file))

    def read(name: str) -> torch.Tensor:
        # By where they begin: which rank wrote what, and how many there were, does not matter.
        return torch.cat([file.get_tensor(key).flatten() for _, key, file in sorted(pieces[name])])

    return read


def check_space(folder: Path, size: int, more: int = 0) -> None:
    """Raise BadInput when checkpoints of this many bytes, as many as there are at a time and `more`
    that stay, will not fit onto the disk beside those that are there.
    """
    # One more than are kept: the oldest goes when the newest is whole.
    need = size * (KEPT + 1 + more - len(complete(folder)))
    free = shutil.disk_usage(folder.parent).free
    if free < need:
        raise BadInput(
            f"checkpoints need {need:,} bytes, and the disk of {folder} has {free:,} free; "
            "make room there, or set HEADRACE_HOME to a folder on a larger disk"
        )


def fingerprint(path: Path) -> dict[str, Any]:
    """Size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"size": path.stat().st_size, "sha256": digest}


def _write(path: Path, tensors: "dict[str, torch.Tensor]") -> str | None:
    """Write one rank's file; the fault that kept it from being written."""
    from safetensors.torch import save_file

    try:
        save_file(tensors, path)
    except (OSError, SafetensorError) as error:
        return f"{path}: {error}"
    return None


def _finish(written: "futures.Future[str | None]", path: Path, final: Path) -> dict[str, Any]:
    """Sync what was written, and copy it out under its final name where that takes more than a
    rename; its fingerprint, or the fault.
    """
    try:
        if fault := written.result():
            return {"fault": fault}
        with path.open("rb") as file:
            os.fsync(file.fileno())
        handover.copy_out(path, final)
        return {"name": path.name, **fingerprint(path)}
    except Exception as error:  # of the disk, or of the library of the shared store
        return {"fault": f"{path}: {error}"}


def _open(path: Path) -> Any:
    from safetensors import safe_open

    return safe_open(path, framework="pt")


def _checked(results: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    results = list(results)
    if faults := [r["fault"] for r in results if r.get("fault")]:
        raise CheckpointFailed(
            f"checkpoint not written: {'; '.join(faults)}. Earlier checkpoints are untouched; "
            "run the same command again to go on from the newest"
        )
    return {r.pop("name"): r for r in results if "name" in r}


def _write_record(path: Path, checkpoint: Checkpoint) -> None:
    values: dict[str, Any] = asdict(checkpoint)
    del values["path"]
    write_atomically(path, json.dumps(values | {"digest": _digest(values)}, indent=1))


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
