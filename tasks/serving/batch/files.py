"""A file of rows answered by a model, and its answers where the user wants them.

headrace infer MODEL rows.jsonl --to out.jsonl

The result is an artifact of stage `infer`: the same command finds it, or goes on from what was
answered when it was killed. The file is a copy of it, there whole or not at all.
"""

import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.files import sync
from cluster.placement import Placement
from cluster.settings import contents
from cluster.stage import build, specify
from cluster.store import Store
from tasks.adoption.stage import AdoptSettings
from tasks.serving.batch.settings import ANSWERS, REJECTS, InferSettings
from tasks.serving.batch.stage import infer
from tasks.tokens.origins import folder_of, known_artifact

LONGEST_NAME = 64


def infer_file(
    store: Store,
    model: str,
    settings: InferSettings,
    seed: int,
    to: Path,
    rejects: Path,
    placement: Placement,
    rebuild: bool,
    on_progress: Callable[[dict[str, Any]], None],
) -> dict[str, Any]:
    """Answer the rows and copy answers and rejects; a file of rejects only where there are any, or
    was one.

    Returns `rows`, `written`, `failed` {reason: n}, `tokens`, `asked` in this invocation, `reused`
    from killed ones, `ended` {stop, length: n}, `cached`, `artifact`, `to` and `rejects`. `model`
    is a folder, `hf://org/name` or an artifact's name. Raises BadInput as the stage does, and for a
    place that cannot be written to.
    """
    for path in (to, rejects):
        if path.is_dir() or not path.absolute().parent.is_dir():
            raise BadInput(f"{path} cannot be written: name a file in a folder that exists")
    inputs, origin = _model(store, model)
    literals: dict[str, Any] = {"settings": settings, "seed": seed, **origin}
    fingerprints: dict[str, Any] = {name: one.fingerprint for name, one in inputs.items()}
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", Path(settings.data).name.split(".")[0]).strip("-.")
    recipe = name[:LONGEST_NAME] or "rows"
    spec = specify(infer, recipe, fingerprints, literals, found=contents(*literals.values()))
    cached = not rebuild and store.find(spec.stage, spec.fingerprint) is not None
    given: dict[str, Any] = {**inputs, **literals, "force": rebuild, "on_progress": on_progress}
    artifact = build(infer, store, spec=spec, placement=placement, **given)
    _copy(artifact.file(ANSWERS), to)
    failed = artifact.file(REJECTS)
    if failed.stat().st_size or rejects.exists():
        _copy(failed, rejects)
    return _summary(artifact, cached) | {"to": str(to), "rejects": str(rejects)}


def _summary(artifact: Artifact, cached: bool) -> dict[str, Any]:
    about = artifact.manifest
    assert about.ledger is not None
    now = {"asked": 0, "reused": about.ledger.rows_out} if cached else {}
    counts = {name: about.facts[name] for name in ("asked", "reused", "ended")}
    return {
        "rows": about.ledger.rows_in,
        "written": about.ledger.rows_out,
        "failed": about.ledger.rejects,
        "tokens": about.tokens,
        **counts,
        **now,
        "cached": cached,
        "artifact": str(artifact.path),
    }


def _model(store: Store, model: str) -> tuple[dict[str, Artifact], dict[str, AdoptSettings]]:
    """The model as an input, where it is an artifact, else by its folder or place on the hub."""
    if model.startswith("hf://") or Path(model).is_dir():
        folder = folder_of(model)
        artifact = known_artifact(folder)
        if artifact is None:
            origin = model if model.startswith("hf://") else str(folder.resolve())
            return {}, {"origin": AdoptSettings(model=origin)}
    else:
        artifact = store.get(model)
    return {"model": store.open(store.offer(artifact))}, {}


def _copy(file: Path, to: Path) -> None:
    """Copy a file so that a reader or a crash sees what was there or all of it."""
    temporary = to.with_name(f".{to.name}.{os.getpid()}")
    try:
        shutil.copyfile(file, temporary)
        with temporary.open("rb") as copied:
            os.fsync(copied.fileno())
        temporary.replace(to)
    finally:
        temporary.unlink(missing_ok=True)
    sync(to.absolute().parent)
