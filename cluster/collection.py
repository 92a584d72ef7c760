"""Garbage collection: artifacts that no kept run used, drafts and scratch that no process works on.

The manifest of a removed artifact is kept under `manifests/`, so that lineage outlives the bytes.
"""

import shutil
from collections import defaultdict
from collections.abc import Collection
from pathlib import Path
from typing import Any

from cluster.artifact import Artifact
from cluster.files import discard
from cluster.locks import is_held
from cluster.manifest import MANIFEST, parents
from cluster.names import inside
from cluster.runs import RunRecord, survey
from cluster.store import Store


def collect(
    keep: int = 1,
    dry_run: bool = False,
    spared: Collection[str] = (),
) -> dict[str, Any]:
    """Remove what the newest `keep` completed runs of each recipe do not need, nor a live run.

    Artifacts of `spared` stages stay, whatever they were made from. All stay while the manifest of
    an artifact or the record of a run cannot be read (`unreadable`, with the reason of each).
    """
    store = Store()
    artifacts, damaged = store.survey()
    runs, lost = survey(store.root)
    unreadable = {str(path): why for path, why in (damaged | lost).items()}
    needed = _needed(artifacts, _kept(runs, keep))
    unused = [a for a in artifacts if a.manifest.stage not in spared]
    unused = [a for a in unused if a.fingerprint not in needed]
    if unreadable:  # nobody knows what they need
        unused = []
    folders = [a.path for a in unused] + unfinished(store)
    freed = sum(_size(folder) for folder in folders)
    if not dry_run:
        for artifact in unused:
            _keep_manifest(store, artifact)
        for folder in folders:
            discard(folder)
    return {
        "freed_bytes": freed,
        "removed": [str(f) for f in folders],
        "unreadable": unreadable,
        "dry_run": dry_run,
    }


def _kept(runs: list[RunRecord], keep: int) -> list[RunRecord]:
    completed: dict[tuple[str, str], list[RunRecord]] = defaultdict(list)
    for run in runs:
        if run.status == "completed":
            completed[str(run.recipe.get("name")), run.goal].append(run)
    newest = [run for group in completed.values() for run in group[-keep:]]
    return newest + [run for run in runs if run.status == "running" and run.alive]


def _needed(artifacts: list[Artifact], runs: list[RunRecord]) -> set[str]:
    """Fingerprints used by these runs, and all they were made from."""
    by_fingerprint = {a.fingerprint: a for a in artifacts}
    queue = [stage.fingerprint for run in runs for stage in run.stages]
    needed: set[str] = set()
    while queue:
        fingerprint = queue.pop()
        if fingerprint not in needed:
            needed.add(fingerprint)
            if fingerprint in by_fingerprint:
                queue.extend(parents(by_fingerprint[fingerprint].manifest))
    return needed


def unfinished(store: Store) -> list[Path]:
    """Drafts and scratch folders whose writer is gone; names end in the fingerprint's beginning."""
    busy = {p.name[:8] for p in (store.root / "locks").glob("*") if is_held(p)}
    found = [*store.root.glob("artifacts/*/.*"), *store.root.glob("work/*")]
    return [path for path in found if path.is_dir() and path.name[-8:] not in busy]


def _keep_manifest(store: Store, artifact: Artifact) -> None:
    kept = inside(store.root / "manifests", f"{artifact.name}.json")
    kept.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(artifact.path / MANIFEST, kept)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
