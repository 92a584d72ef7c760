"""What `headrace compare` knows: how two runs differ in settings, data, training and scores.

From their records, and from what the store still has of their stages. What is gone is named in
`notes`, and the rest compared: the manifest that `gc` keeps has the figures of an artifact, the
journal of a training its losses, also where it failed.
"""

import contextlib
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.manifest import Manifest
from cluster.runs import RunRecord, StageRecord
from cluster.tracking import events
from flows.plan.reasons import changes
from tasks.report.page import training_rows

Pair = list[Any]
Row = dict[str, Any]
CURVE_POINTS = 200
SOURCE_KEYS = ("files", "bytes", "rows", "license")
GONE, MOST_NAMES = "are gone from the store", 5
COSTS = re.compile(r"(^|[._])(seconds|per_second|bytes|mfu)$")
"""Figures of the machine, which differ whenever something is built again."""


class Made(NamedTuple):
    """One stage of a run, and what is left of what it made: nothing where it failed."""

    record: StageRecord
    manifest: Manifest | None
    rows: list[Row]
    lost: str = ""


Stages = dict[str, Made]


def differences(root: Path, records: Sequence[RunRecord]) -> dict[str, Any]:
    """How two runs differ; every pair is of the first and the second, None where one has nothing.

    `runs`: what they are. `settings`, `placement`: dotted keys. `data`: `sources`, `stages` and
    `libraries`. `metrics`: all, with `values`, `difference` (second less first) and `intervals`.
    `curves`: of each training. `notes`: what to bear in mind. `same`: whether nothing differs but
    placement and the machine's figures.
    """
    one, two = (_stages(root, record) for record in records)
    recipes = [{k: v for k, v in r.recipe.items() if k != "placement"} for r in records]
    found: dict[str, Any] = {
        "runs": [_about(record) for record in records],
        "settings": settings_apart(*recipes),
        "placement": settings_apart(*(r.recipe.get("placement") or {} for r in records)),
        "data": {
            "sources": _sources(one, two),
            "stages": {n: d for n in _names(one, two) if (d := _stage(one.get(n), two.get(n)))},
            "libraries": _libraries(one, two),
        },
        "metrics": _metrics(records, one, two),
        "curves": _curves(one, two),
    }
    return found | {"same": _same(found), "notes": list(dict.fromkeys(_notes(records, one, two)))}


def settings_apart(one: Any, two: Any, *, key: str = "") -> dict[str, Pair]:
    """Dotted keys, list items by number, that two nested settings have different values of.

    A section that one of them leaves out is one entry, not one for each of its keys.
    """
    if one == two:
        return {}
    keys: Sequence[Any] = ()
    if isinstance(one, dict) and isinstance(two, dict):
        keys = list(one | two)
    elif _sections(one) and _sections(two):
        one, two = dict(enumerate(one)), dict(enumerate(two))
        keys = list(one | two)
    if not keys:
        return {key: [one, two]}
    apart: dict[str, Pair] = {}
    for name in keys:
        apart |= settings_apart(
            one.get(name), two.get(name), key=f"{key}.{name}" if key else str(name)
        )
    return apart


def _sections(value: Any) -> bool:
    """Whether it is a list of sections, such as sources."""
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _about(record: RunRecord) -> dict[str, Any]:
    errors = {s.name: s.error for s in record.stages if s.state == "failed"}
    return {
        "id": record.id,
        "recipe": record.recipe.get("name"),
        "goal": record.goal,
        "status": record.status,
        "started": record.started,
        "seconds": record.seconds,
        "stages": len(record.stages),
        "failed": errors,
        "report": record.report,
    }


def _stages(root: Path, record: RunRecord) -> Stages:
    return {stage.name: _made(root, stage) for stage in record.stages}


def _made(root: Path, stage: StageRecord) -> Made:
    """What is left of a stage: its artifact, else the manifest that `gc` kept and its journal."""
    if stage.artifact is None:
        return Made(stage, None, _journal(root, stage))
    folder, manifest = Path(stage.artifact), None
    try:
        artifact = Artifact.load(folder)
        manifest = artifact.manifest
        return Made(stage, manifest, _rows(training_rows(artifact)))
    except BadInput as error:
        lost = str(error) if folder.exists() else GONE
    kept = root / "manifests" / stage.stage / f"{folder.name}.json"
    with contextlib.suppress(OSError, ValueError):  # there is none, or it is damaged too
        manifest = manifest or Manifest.unsealed(kept.read_bytes())
    return Made(stage, manifest, _journal(root, stage), lost)


def _journal(root: Path, stage: StageRecord) -> list[Row]:
    """The steps of a training that its journal tells of."""
    steps: dict[float, Row] = {}
    for journal in (root / "tracking").glob(f"{stage.stage}-{stage.fingerprint[:8]}.*.jsonl"):
        for event, _ in events(journal):
            steps |= {row["step"]: row for row in event.get("rows", ()) if "lr" in row}
    return _rows([steps[step] for step in sorted(steps)])


def _rows(rows: Sequence[Row]) -> list[Row]:
    """Steps with their tokens and loss, as far as the loss is a number."""
    return [
        {"step": int(row["step"]), "tokens": int(row.get("tokens", 0)), "loss": row["loss"]}
        for row in rows
        if "loss" in row and math.isfinite(row["loss"])
    ]


def _names(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    """The keys of either, those of the first in its order."""
    return list({**one, **two})


def _stage(one: Made | None, two: Made | None) -> dict[str, Any]:
    """How what a stage made differs, and why; empty where it does not."""
    sides = [_figures(made) for made in (one, two)]
    apart: dict[str, Any] = {
        key: pair
        for key in _names(*sides)
        if (pair := [side.get(key) for side in sides])[0] != pair[1]
    }
    if apart and one and two and one.manifest and two.manifest:
        apart["why"] = changes(one.manifest, two.manifest)
    return apart


def _figures(made: Made | None) -> dict[str, Any]:
    if made is None:
        return {}
    found: dict[str, Any] = {"fingerprint": made.record.fingerprint}
    if made.record.state in ("failed", "skipped"):
        found["state"] = made.record.state
    if made.manifest:
        found |= {"rows": made.manifest.rows, "tokens": made.manifest.tokens}
    if ledger := made.record.ledger:
        found["ledger"] = ledger.model_dump(by_alias=True)
    return found


def _sources(one: Stages, two: Stages) -> dict[str, dict[str, Pair]]:
    """How the sources differ in what was read from them, by path."""
    sides = [_read(stages) for stages in (one, two)]
    apart = {path: settings_apart(*(s.get(path, {}) for s in sides)) for path in _names(*sides)}
    return {path: found for path, found in apart.items() if found}


def _read(stages: Stages) -> dict[str, dict[str, Any]]:
    manifest = _manifest(stages, "read")
    sources = manifest.facts.get("sources", []) if manifest else []
    return {s["path"]: {key: s.get(key) for key in SOURCE_KEYS} for s in sources}


def _libraries(one: Stages, two: Stages) -> dict[str, Pair]:
    """Versions that stages of both runs were built with, where they differ."""
    apart: dict[str, Pair] = {}
    for name in one.keys() & two.keys():
        if (a := one[name].manifest) and (b := two[name].manifest):
            apart |= settings_apart(a.libraries, b.libraries)
    return dict(sorted(apart.items()))


def _metrics(records: Sequence[RunRecord], one: Stages, two: Stages) -> dict[str, dict[str, Any]]:
    """Every figure of either run: scores, which have plain names, first, the machine's last."""
    sides, doubts = [r.metrics for r in records], [_intervals(one), _intervals(two)]
    found = {}
    for name in sorted(_names(*sides), key=lambda n: (bool(COSTS.search(n)), "." in n)):
        a, b = values = [side.get(name) for side in sides]
        found[name] = {"values": values, "difference": None if None in values else b - a}  # pyrefly: ignore[unsupported-operation]
        if any(name in doubt for doubt in doubts):
            found[name]["intervals"] = [doubt.get(name) for doubt in doubts]
    return found


def _intervals(stages: Stages) -> dict[str, Any]:
    """The 95 % intervals that stages found for figures, by the run's names of these."""
    found: dict[str, Any] = {}
    for name, made in stages.items():
        facts = made.manifest.facts if made.manifest else {}
        for key, ends in (facts.get("intervals") or {}).items():
            for known in (key, f"{made.record.stage}_{key}", f"{name}.{key}"):
                found.setdefault(known, ends)
    return found


def _curves(one: Stages, two: Stages) -> dict[str, dict[str, Any]]:
    """The losses of each training of either run, by steps, or by tokens where steps differ in size.

    `parts` is where the first losses differ, None where all that both have are equal.
    """
    curves = {}
    for name in _names(one, two):
        rows = [stages[name].rows if name in stages else [] for stages in (one, two)]
        if any(rows):
            by = _axis(rows)
            losses = [{row[by]: row["loss"] for row in side} for side in rows]
            shared = sorted(losses[0].keys() & losses[1].keys())
            curves[name] = {
                "by": by,
                "steps": [len(side) for side in rows],
                "last": [side[-1]["loss"] if side else None for side in rows],
                "shared": len(shared),
                "parts": next((x for x in shared if losses[0][x] != losses[1][x]), None),
                "rows": [_thinned(side, by) for side in rows],
            }
    return curves


def _axis(rows: Sequence[Sequence[Row]]) -> str:
    """`step`, or `tokens` where a step of one is not of as many as that of the other."""
    return "step" if len({side[0]["tokens"] for side in rows if side}) == 1 else "tokens"


def _thinned(rows: Sequence[Row], by: str) -> list[Pair]:
    """At most so many rows, the first and the last among them, as place and loss."""
    every = max(1, -(-len(rows) // CURVE_POINTS))
    kept = [*rows[:-1:every], *rows[-1:]]
    return [[row[by], row["loss"]] for row in kept]


def _same(found: Mapping[str, Any]) -> bool:
    scores = [m for name, m in found["metrics"].items() if not COSTS.search(name)]
    return not (
        found["settings"]
        or any(found["data"].values())
        or any(m["values"][0] != m["values"][1] for m in scores)
        or any(c["parts"] is not None or len(set(c["steps"])) > 1 for c in found["curves"].values())
    )


def _notes(records: Sequence[RunRecord], one: Stages, two: Stages) -> Iterator[str]:
    """What a reader must bear in mind: what is missing, and what figures do not say."""
    for record, stages in zip(records, (one, two), strict=True):
        if record.status == "running":
            yield f"{record.id} has not ended: only its settings are known yet"
        elif record.status == "crashed":
            yield f"{record.id} was ended before its time, with {len(stages)} stages done"
        for name, made in stages.items():
            if made.record.state == "failed":
                yield f"{name} of {record.id} failed: {(made.record.error or '').splitlines()[0]}"
        yield from _lost(record.id, stages)
    yield from _incomparable(one, two)


def _lost(run: str, stages: Stages) -> Iterator[str]:
    """What of a run is gone, or cannot be read, and what there is instead."""
    groups: dict[tuple[bool, bool], list[str]] = defaultdict(list)
    for name, made in stages.items():
        if made.lost:
            groups[made.lost == GONE, made.manifest is not None].append(name)
    for (gone, kept), names in groups.items():
        few = ", ".join(names[:MOST_NAMES])
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        left = "their figures are kept" if kept else "only the run's record tells of them"
        error = "" if gone else f"; {stages[names[0]].lost}"
        yield f"of {run} {GONE if gone else 'cannot be read'}: {few}{more}; {left}{error}"


def _incomparable(one: Stages, two: Stages) -> Iterator[str]:
    """Which figures say less than they seem to."""
    shards = [_manifest(stages, "shards") for stages in (one, two)]
    scores = [_manifest(stages, "evaluate") for stages in (one, two)]
    if all(scores) and _differ([_heldout(*pair) for pair in zip(shards, scores, strict=True)]):
        yield (
            "they were not scored on the same held-out text, and differ for that alone; one exam "
            "for both models is put by `headrace exam`"
        )
    if all(shards) and _differ([m.inputs.get("tokenizer") for m in shards if m]):
        yield "their tokens differ, so losses are of unlike targets; bits per byte are of one unit"


def _heldout(shards: Manifest | None, score: Manifest | None) -> list[Any]:
    """What decides which text a model is scored on: documents, their share, how much of it."""
    settings = (shards.settings.get("settings") or {}) if shards else {}
    text = shards.inputs.get("text") if shards else None
    return [text, settings.get("heldout_share"), score.facts.get("bytes") if score else None]


def _differ(pair: Pair) -> bool:
    return bool(pair[0] != pair[1])


def _manifest(stages: Stages, name: str) -> Manifest | None:
    return stages[name].manifest if name in stages else None
