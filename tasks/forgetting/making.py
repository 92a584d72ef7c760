"""Makes what takes the place of artifacts that need no stage, and puts the checkpoints where the
training stage looks for its own.
"""

import json
import shutil
from collections.abc import Collection

from cluster.artifact import Artifact
from cluster.store import Draft, Store
from tasks.forgetting.changes import CARRIED, MADE_HERE, REPLAYED, Change
from tasks.forgetting.influences import kept_steps
from tasks.forgetting.text import is_text, without_rows
from tasks.forgetting.tombstones import buried
from tasks.tokens.packing.settings import PackingSettings
from tasks.training.job import CHECKPOINTS, METRICS


def make(change: Change, ids: Collection[str], store: Store) -> None:
    """Make what is rewritten or carried, unless it is there."""
    assert change.way in MADE_HERE, f"{change.name} is made by its stage"
    with store.writer(change.spec):
        if store.find(change.spec.stage, change.spec.fingerprint):
            return
        with store.draft(change.spec) as draft:
            if change.way == CARRIED:
                _carry(change.old, draft)
            elif is_text(change.old):
                without_rows(change.old, ids, draft)
            else:
                buried(change.old, ids, draft)
            draft.facts["taken_from"] = change.old.fingerprint


def pack_again(change: Change, store: Store) -> None:
    """The packing of shards with tombstones: what training from a checkpoint needs the hash of."""
    from cluster.stage import build
    from tasks.tokens.packing.stage import packing

    shards = store.find("shards", str(change.spec.inputs["shards"]))
    assert shards is not None, "shards are made before their packing"
    settings = PackingSettings(**change.spec.settings["settings"])
    build(packing, store, spec=change.spec, shards=shards, settings=settings)


def rewind(change: Change, store: Store) -> None:
    """Let the training of what takes a model's place begin with its kept checkpoints, up to the
    step that it goes back to. Does nothing where that has gone on already.
    """
    from tasks.training.checkpoint import complete, graft, step_of
    from tasks.training.pretraining import bytes_of
    from tasks.training.spikes import SKIPPED

    assert change.way == REPLAYED, f"{change.name} begins at its first step"
    scratch = store.scratch(change.spec)
    folder = scratch / CHECKPOINTS
    folder.mkdir(parents=True, exist_ok=True)
    if any(step_of(path) > change.step for path in complete(folder)):
        return
    lines = change.old.file(METRICS).read_text().splitlines(keepends=True)
    rows = [line for line in lines if json.loads(line)["step"] <= change.step]
    (scratch / METRICS).write_text("".join(rows))
    skipped = change.old.manifest.facts.get("skipped_batches", [])
    (scratch / SKIPPED).write_text(json.dumps([batch for batch in skipped if batch <= change.step]))
    inputs = [store.find(name, str(change.spec.inputs.get(name))) for name in ("shards", "packing")]
    for step in kept_steps(change.old):
        if step <= change.step:
            source = change.old.folder() / CHECKPOINTS / f"step-{step:08d}"
            graft(source, folder, {"data": bytes_of(*inputs)})


def _carry(old: Artifact, draft: Draft) -> None:
    """The same content, of what rows only shaped, and of a model that never saw them."""
    about = old.manifest
    for name in about.files:
        (draft.path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(old.file(name), draft.path / name)
    draft.rows, draft.tokens, draft.ledger = about.rows, about.tokens, about.ledger
    draft.metrics, draft.facts = dict(about.metrics), dict(about.facts)
