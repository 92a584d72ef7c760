"""Exams put to models: results kept in the store, so that only what is new is ever asked.

    headrace exam MODEL EXAM.yaml...

MODEL is an artifact, a model folder, a folder of model folders (checkpoints, say), or `all`: every
model of the store that writes text. Each result is an artifact of stage `exam` and a tracked run,
its figures as metrics, its rows as a table.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.manifest import MANIFEST
from cluster.settings import contents
from cluster.stage import build, specify
from cluster.store import Spec, Store
from cluster.tracking import JournalTracker
from tasks.data.reading.hashes import FILE
from tasks.data.row_files import read_row_file
from tasks.evaluation.exams.definition import read_exam
from tasks.evaluation.exams.settings import MODEL_FILES, ROWS, ExamSettings, sets_of
from tasks.evaluation.exams.stage import exam
from tasks.tokens.roles import WEIGHT_FILES

ALL = "all"
EXPERIMENT = "exams"
WRITERS = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


@dataclass(frozen=True)
class NamedCandidate:
    """A model that sits exams: an artifact, a folder, a name at an endpoint or of given answers."""

    name: str
    artifact: Artifact | None = None
    folder: Path | None = None
    url: str | None = None
    answers: Path | None = None


def named_candidates(
    store: Store, model: str, url: str | None = None, answers: Path | None = None
) -> list[NamedCandidate]:
    """The models that a user names. Raises BadInput where there is none."""
    if url is not None or answers is not None:
        return [NamedCandidate(model, url=url, answers=answers)]
    folder = Path(model)
    if model == ALL and not folder.exists():
        found = [NamedCandidate(a.name, a) for a in store.artifacts() if writes(a.path)]
    elif (folder / "config.json").is_file():
        found = [_of_folder(folder)]
    elif folder.is_dir():
        found = [_of_folder(path) for path in sorted(folder.iterdir()) if writes(path)]
    else:
        artifact = store.get(model)
        found = [NamedCandidate(artifact.name, artifact)]
    if not found:
        raise BadInput(f"'{model}' holds no model that writes text; `headrace ls` lists models")
    return found


def writes(folder: Path) -> bool:
    """Whether a folder is a whole model with a decoder, and no classifier."""
    weights = any((folder / name).is_file() for name in WEIGHT_FILES)
    if not weights or not all((folder / name).is_file() for name in MODEL_FILES):
        return False
    about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if (folder / "classifier").exists():
        return False
    kind = str((about.get("architectures") or [""])[0])
    return kind.endswith(WRITERS) or about.get("family") in ("decoder", "encoder_decoder")


def take_exam(
    store: Store,
    candidate: NamedCandidate,
    path: Path,
    concurrency: int = 16,
    contamination: Path | None = None,
    rebuild: bool = False,
) -> tuple[Artifact, bool]:
    """The result of one exam, and whether it was there already.

    Without `contamination`, what the model's own training text held of the exam is looked up among
    the stages it was made by. Raises BadInput for an unusable exam or model.
    """
    settings, inputs = _settings_and_inputs(store, candidate, path, concurrency, contamination)
    fingerprints: dict[str, Any] = {name: one.fingerprint for name, one in inputs.items()}
    found = contents(settings)
    spec = specify(exam, settings.exam.name, fingerprints, {"settings": settings}, found=found)
    if not rebuild and (known := store.find(spec.stage, spec.fingerprint)):
        return known, True
    arguments = {"settings": settings, "force": rebuild, **inputs}
    return _track(store, spec, candidate, arguments), False


def shown(artifact: Artifact, rows: bool = True) -> dict[str, Any]:
    """A result as commands print it; every figure by its name, too."""
    manifest = artifact.manifest
    found = {**manifest.facts, **manifest.metrics, "artifact": str(artifact.path)}
    if rows:
        found["rows"] = [row for _, row in read_row_file(artifact.file(ROWS))]
    return found


def _settings_and_inputs(
    store: Store,
    candidate: NamedCandidate,
    path: Path,
    concurrency: int,
    contamination: Path | None,
) -> tuple[ExamSettings, dict[str, Artifact]]:
    """The exam put to this model, and the artifacts that its result is made from."""
    settings = ExamSettings(
        exam=read_exam(path),
        model=candidate.name,
        folder=str(candidate.folder.resolve()) if candidate.folder else None,
        url=candidate.url,
        answers=str(candidate.answers.resolve()) if candidate.answers else None,
        concurrency=concurrency,
    )
    inputs = {"model": candidate.artifact} if candidate.artifact else {}
    found = contents(settings)
    hashes = [found[FILE, path] for path in settings.exam.asked_files]
    if searched := _searched(store, candidate, contamination, hashes):
        return settings, inputs | {"searched": searched}
    items = {"contamination": str(_items(contamination))} if contamination else {}
    return settings.model_copy(update=items), inputs


def _track(
    store: Store, spec: Spec, candidate: NamedCandidate, arguments: dict[str, Any]
) -> Artifact:
    """Build the result in a tracked run of its own."""
    settings: ExamSettings = arguments["settings"]
    name = settings.exam.name
    about = {
        "name": f"{name} {candidate.name}",
        "experiment": EXPERIMENT,
        "tags": {"headrace.exam": name, "headrace.model": candidate.name},
    }
    tracker = JournalTracker(f"exam-{spec.fingerprint[:8]}", about)
    tracker.params({"model": candidate.name, **settings.exam.model_dump(mode="json")})
    try:
        artifact = build(exam, store, spec=spec, tracker=tracker, **arguments)
    except BaseException:
        tracker.close("FAILED")
        raise
    tracker.table("exam.json", artifact.file(ROWS))
    tracker.close()
    return artifact


def _of_folder(folder: Path) -> NamedCandidate:
    if (folder / MANIFEST).is_file():
        artifact = Artifact.load(folder)
        return NamedCandidate(artifact.name, artifact)
    return NamedCandidate(folder.resolve().name, folder=folder)


def _items(contamination: Path) -> Path:
    return contamination / "items.jsonl" if contamination.is_dir() else contamination


def _searched(
    store: Store, candidate: NamedCandidate, contamination: Path | None, hashes: Sequence[str]
) -> Artifact | None:
    """The stage `decontaminate` that is named or, if it looked for these rows, the one this model's
    text went through.
    """
    if contamination is not None:
        named = (contamination / MANIFEST).is_file()
        return Artifact.load(contamination) if named else None
    made_by = store.lineage(candidate.artifact) if candidate.artifact else []
    found = (a for a in made_by if sets_of(a.manifest.settings.get("settings"), hashes))
    return next(found, None)
