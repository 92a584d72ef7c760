"""The engine of all stages that put a head on a network: what they do alike.

    1. the stage's `prepare` reads its rows and makes a `Task` of them: token ids, labels, the head;
    2. network and head are trained on them;
    3. the head's scores of held-out rows go to the task's `measure`, and all is written.

The folder that is left is a model with its head, which Transformers loads where it has a class for
such a head (`model.hub_heads`).
"""

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from cluster.artifact import Artifact, brought
from cluster.errors import BadInput
from cluster.handover import here, share
from cluster.store import Draft
from model import hub
from model.config import ModelConfig
from model.flops import flops_per_token
from model.head_config import Head, Pooling
from model.heads import Headed
from tasks.data.row_files import write_json_lines
from tasks.inference.generation import load_model
from tasks.tokens.encoder import Encoder
from tasks.tokens.frames import Row
from tasks.training.job import Program
from tasks.training.launch import launch, load_trained
from tasks.training.micro_batches import on_device
from tasks.tuning.common import keep_ledger, padded, save_model, track, tuning_job, write_history
from tasks.tuning.settings import HeadSettings
from tasks.tuning.sources import describe
from tasks.tuning.supervised import parted, sample_numbers
from tasks.tuning.trained_part import trained_part

ROWS = "rows.safetensors"
SCORED_ROWS = 32
EXAMPLES = 5
Arrays = dict[str, np.ndarray]
log = logging.getLogger("headrace.tuning")


@dataclass(frozen=True)
class Outcome:
    """What a head made of held-out rows: figures, a record of each row, facts for the report."""

    metrics: dict[str, float]
    records: list[dict[str, Any]]
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Task:
    """What one task brings: rows as arrays (`arrays_of`), with `labels` and, where some count more,
    `class_weights`; its head, and what is to be made of the scores of each held-out row: `[C]`, or
    `[T, C]` of tokens and spans.

    `names` are those of the outputs, `config` more keys of the model's, `used` is the number of
    rows on both sides.
    """

    head: Head
    train: Arrays
    heldout: Arrays
    measure: Callable[[list[np.ndarray]], Outcome]
    used: int
    rejects: Counter[str]
    names: Sequence[str] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


Prepare = Callable[[Encoder, ModelConfig], Task]
"""From the tokenizer and the shape of the network that is tuned."""


def tune(
    model: Artifact, settings: HeadSettings, seed: int, draft: Draft, prepare: Prepare
) -> None:
    """Carry out a stage."""
    track(draft, settings, seed, model=model)
    base = model.path
    network, encoder = load_model(base)
    task = prepare(encoder, network.config)
    rows, _ = parted(len(task.train["lengths"]), settings.early_stopping)
    steps = max(1, round(settings.epochs * len(rows) / settings.batch_rows))
    job = tuning_job(
        partial(program, base, share_rows(draft, task.train), task.head, settings, seed),
        steps,
        settings.batch_rows,
        settings,
        seed,
        draft,
        sample_tokens=task.train["inputs"].shape[1],
        flops_per_token=flops_per_token(network.config, settings.length, lm_head=False),
    )
    log.info("%d rows, %d steps", len(rows), steps)
    weights = launch(job, draft.placement)
    module = trained_part(Headed(network, task.head), settings, base)
    load_trained(module, weights)
    names = {"id2label": dict(enumerate(task.names))} if task.names else {}
    save_model(draft.path, module, base, pad_token_id=encoder.pad, **names, **task.config)
    # What is measured is what the folder holds.
    module, device = hub.load_headed(draft.path), draft.placement.device
    outcome = task.measure(scores(module, task.heldout, device))
    write(draft, task, outcome)
    draft.facts["task"] = describe(settings)


def pooling_of(asked: Pooling | None, config: ModelConfig) -> Pooling:
    """What of a row a head reads. Raises BadInput for a decoder's first token, which sees itself
    alone, or with what the encoder makes of the rest.
    """
    if asked == "first" and config.family != "encoder":
        raise BadInput(
            "pooling is first, but the first token of a decoder sees nothing of the rest; "
            "it must be last or mean"
        )
    if config.family != "encoder":
        return asked or "last"
    return asked or ("mean" if config.recurrent else "first")


def arrays_of(rows: Sequence[Row], config: ModelConfig, pad: int) -> Arrays:
    """Rows side by side: `inputs` [rows, longest], `lengths`, and `segments` where the network has
    kinds of them.
    """
    lengths = np.array([len(row.ids) for row in rows], np.int32)
    shape = (len(rows), int(lengths.max(initial=1)))
    found: Arrays = {"inputs": np.full(shape, pad, np.int32), "lengths": lengths}
    if config.segments > 1:
        found["segments"] = np.zeros(shape, np.uint8)
    for number, row in enumerate(rows):
        found["inputs"][number, : len(row.ids)] = row.ids
        if config.segments > 1:
            found["segments"][number, : len(row.ids)] = row.segments
    return found


def batch_of(arrays: Arrays, numbers: np.ndarray) -> Arrays:
    """Some rows as a batch, about as long as the longest; `documents` is 1 on text only."""
    lengths = arrays["lengths"][numbers]
    longest = max(1, int(padded(lengths.max(), arrays["inputs"].shape[1])))
    places = np.arange(longest)
    found = {
        name: array[numbers, :longest].astype(np.int64)
        for name, array in arrays.items()
        if name in ("inputs", "segments", "tags")
    }
    found["documents"] = (places < lengths[:, None]).astype(np.int64)
    found["positions"] = np.broadcast_to(places, found["inputs"].shape).copy()
    if "tags" in found:
        found["labels"] = found.pop("tags")
    elif "labels" in arrays:
        found["labels"] = arrays["labels"][numbers]
    return found


def share_rows(draft: Draft, arrays: Arrays) -> Path:
    """Write the rows where every training process finds them; the file."""
    folder = draft.scratch / "rows"
    folder.mkdir(exist_ok=True)
    save_file(arrays, folder / ROWS)
    share(folder)
    return folder / ROWS


def program(base: Path, rows: Path, head: Head, settings: HeadSettings, seed: int) -> Program:
    """What every training process runs: the pretrained network, a new head, and its batches."""
    arrays = load_file(here(rows))
    train, apart = parted(len(arrays["lengths"]), settings.early_stopping)

    def batch(first: int, count: int) -> Arrays:
        return batch_of(arrays, train[sample_numbers(first, count, len(train), seed)])

    module = Headed(hub.load(brought(base)), head)
    if "class_weights" in arrays:
        module.class_weights = torch.from_numpy(arrays["class_weights"])
    pieces = (apart[first : first + SCORED_ROWS] for first in range(0, len(apart), SCORED_ROWS))
    validation = [batch_of(arrays, piece) for piece in pieces]
    return Program(trained_part(module, settings, base), batch, validation)


@torch.no_grad()
def scores(module: Headed, arrays: Arrays, device: str) -> list[np.ndarray]:
    """The scores of every row, without those of padding."""
    module.eval().to(device)
    found: list[np.ndarray] = []
    lengths = arrays["lengths"]
    for first in range(0, len(lengths), SCORED_ROWS):
        numbers = np.arange(first, min(first + SCORED_ROWS, len(lengths)))
        batch = on_device(batch_of(arrays, numbers), module, device)
        batch.pop("labels", None)
        rows = module.scores(**batch).float().cpu().numpy()
        whole = module.head.kind == "sequence"
        found += [row if whole else row[:n] for row, n in zip(rows, lengths[numbers], strict=True)]
    return found


def write(draft: Draft, task: Task, outcome: Outcome) -> None:
    """Predictions, history, figures and what the report shows."""
    write_json_lines(draft.path / "predictions.jsonl", outcome.records)
    write_history(draft)
    keep_ledger(draft, task.used, task.rejects)
    draft.metrics |= outcome.metrics
    draft.facts |= {
        "training_rows": len(task.train["lengths"]),
        "tokens_per_row": int(task.train["inputs"].shape[1]),
        "examples": outcome.records[:EXAMPLES],
        **task.facts,
        **outcome.facts,
    }
