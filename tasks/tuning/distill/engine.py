"""The engine of stage `distill`: rows, training, and figures of student and teacher."""

import logging
from collections import Counter
from functools import partial
from pathlib import Path

from safetensors.numpy import load_file

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.handover import here
from cluster.store import Draft
from model import hub
from model.flops import flops_per_token, parameter_count
from model.heads import Headed
from model.objectives.distillation import Distilled
from tasks.inference.generation import load_model
from tasks.tokens.encoder import Encoder
from tasks.tokens.origins import folder_of
from tasks.training.job import Program
from tasks.training.launch import launch, load_trained
from tasks.tuning.common import HISTORY, keep_ledger, save_model, track, tuning_job, write_history
from tasks.tuning.distill.learners import distilled, readable
from tasks.tuning.distill.lessons import ClassLessons, Lessons, TokenLessons, count_rows, learners
from tasks.tuning.distill.settings import DistillSettings
from tasks.tuning.files import row_file
from tasks.tuning.headed import share_rows
from tasks.tuning.rows import Snippet, read_snippets, sides
from tasks.tuning.sources import describe
from tasks.tuning.supervised import parted

TOLD = ("soft_loss", "hard_loss", "hidden_loss")
log = logging.getLogger("headrace.distill")


def tune(model: Artifact, settings: DistillSettings, seed: int, draft: Draft) -> None:
    """Carry out the stage."""
    track(draft, settings, seed, model=model)
    base = model.path
    _, encoder = load_model(base)
    module = distilled(base, settings)
    lessons = lessons_of(module, base, settings, encoder)
    train, heldout, rejects = texts_of(settings)
    arrays, held = lessons.arrays(train), lessons.arrays(heldout)
    config = module.student.network.config
    before = lessons.loss(module.student, held) if isinstance(lessons, TokenLessons) else None
    rows, _ = parted(count_rows(arrays), settings.early_stopping)
    steps = max(1, round(settings.epochs * len(rows) / settings.batch_rows))
    length = min(settings.length, config.context)
    job = tuning_job(
        partial(program, base, share_rows(draft, arrays), settings, encoder, seed),
        steps,
        settings.batch_rows,
        settings,
        seed,
        draft,
        sample_tokens=length,
        flops_per_token=flops_per_token(
            config, length, lm_head=not isinstance(module.student, Headed)
        ),
    )
    log.info("%d texts, %d rows, %d steps", len(train), len(rows), steps)
    load_trained(module, launch(job, draft.placement))
    write(draft, module, lessons, base)
    draft.metrics |= lessons.measure(module, held) | {"rows": float(len(heldout))}
    draft.metrics |= {} if before is None else {"loss_before": before}
    keep_ledger(draft, len(train) + len(heldout), rejects)
    draft.facts |= {"task": describe(settings), "training_rows": len(train)}


def write(draft: Draft, module: Distilled, lessons: Lessons, base: Path) -> None:
    """The student's model folder, its history, and the sizes of both."""
    names = (
        {"id2label": dict(enumerate(lessons.names))} if isinstance(lessons, ClassLessons) else {}
    )
    student, network = module.student, readable(module.student.network, base)
    save_model(draft.path, student if isinstance(student, Headed) else network, base, **names)
    write_history(draft, (*HISTORY, *TOLD))
    counts = [float(parameter_count(one.network.config)) for one in learners(module)]
    draft.metrics |= {"params": counts[0], "params_teacher": counts[1]}


def texts_of(settings: DistillSettings) -> tuple[list[Snippet], list[Snippet], Counter[str]]:
    """Texts to learn from, texts to measure on, and why others are neither; no text is on both
    sides. Raises BadInput where a side is empty.
    """

    def read(data: str) -> list[Snippet]:
        fields = {"text": settings.text, "label": settings.label}
        return read_snippets(row_file(data), **fields, written=settings, unlabelled=True)

    return sides(settings.data, settings.heldout, settings.heldout_share, read)


def lessons_of(
    module: Distilled, base: Path, settings: DistillSettings, encoder: Encoder
) -> Lessons:
    """What there is to learn from the teacher."""
    if not isinstance(module.student, Headed):
        return TokenLessons(encoder, module.student, settings.length)
    folder = folder_of(settings.teacher) if settings.teacher else base
    names = hub.read_config(folder).get("id2label") or {}
    known = [str(names[key]) for key in sorted(names, key=int)]
    if len(known) != module.student.head.outputs:
        raise BadInput(f"teacher {folder} does not name its classes: config.json has no id2label")
    return ClassLessons(known, encoder, module.student, settings.length)


def program(
    base: Path, rows: Path, settings: DistillSettings, encoder: Encoder, seed: int
) -> Program:
    """What every training process runs."""
    module, arrays = distilled(base, settings), load_file(here(rows))
    lessons = lessons_of(module, base, settings, encoder)
    train, apart = parted(count_rows(arrays), settings.early_stopping)
    batch = partial(lessons.batch, arrays, train, seed)
    return Program(module, batch, list(lessons.in_order(arrays, apart)))
