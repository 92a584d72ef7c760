"""What all tuning stages do alike: describe the training job, keep its history, save the model."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.manifest import Ledger
from cluster.store import Draft
from tasks.tokens.roles import ID_FILES, TOKENIZER_FILES
from tasks.training.early_stopping import VALIDATION, EarlyStopping, Looks
from tasks.training.job import METRICS, Program, TrainJob
from tasks.training.telemetry import read_rows, thin
from tasks.tuning.settings import EarlyStoppingSettings, TuningSettings

if TYPE_CHECKING:
    from model.heads import Headed
    from model.objectives.base import Network, Objective

ADAPTERS = "adapter"
HISTORY = ("step", "loss", "lr")
MULTIPLE = 8


def padded(lengths: np.ndarray, longest: int) -> np.ndarray:
    """Lengths as batches have them: the next multiple of 8, but no more than the longest row's.

    On a CPU, oneDNN compiles a product for every shape that it meets and keeps the last thousand:
    in bfloat16 a training whose every step has another shape takes four times as long.
    """
    return np.minimum(-(-lengths // MULTIPLE) * MULTIPLE, longest)


def track(draft: Draft, settings: TuningSettings, seed: int, **inputs: Artifact) -> None:
    """Tell the tracker what a tuning is of: settings, seed, and the artifacts it begins with."""
    draft.tracker.params({**settings.model_dump(mode="json"), "seed": seed})
    draft.tracker.datasets(inputs)


def tuning_job(
    build: Callable[[], Program],
    steps: int,
    batch_samples: int,
    settings: TuningSettings,
    seed: int,
    draft: Draft,
    *,
    sample_tokens: int,
    flops_per_token: float,
) -> TrainJob:
    """The job of a tuning stage, whose samples have so many tokens at most. Raises BadInput where
    workers are to share rows or a network.
    """
    kinds = {
        "context_parallel": "on the objective causal shares rows",
        "tensor_parallel": "divides networks",
    }
    for name, kind in kinds.items():
        if (workers := getattr(draft.placement, name)) > 1:
            raise BadInput(f"placement.{name} is {workers}: only pretraining {kind}; set it to 1")
    if settings.train == "lora" and settings.lora.bits and draft.placement.zero_stage == 3:
        raise BadInput("placement.zero_stage is 3, which cannot shard lora.bits: set it to 2")
    return TrainJob(
        build=build,
        steps=steps,
        batch_samples=batch_samples,
        micro_samples=draft.placement.micro_samples(sample_tokens),
        scratch=draft.scratch,
        optimizer=settings.optimizer,
        layer_decay=settings.layer_decay,
        stopping=stopping(settings.early_stopping, steps),
        precision=settings.precision,
        seed=seed,
        flops_per_token=flops_per_token,
        tracker=draft.tracker,
        on_progress=draft.progress,
        checkpoint_seconds=draft.placement.checkpoint_seconds,
    )


def stopping(asked: EarlyStoppingSettings | None, steps: int) -> EarlyStopping | None:
    """When a tuning of so many steps may end before them."""
    if asked is None:
        return None
    return EarlyStopping(max(1, steps // asked.looks), asked.patience)


def keep_ledger(draft: Draft, rows: int, rejects: Counter[str]) -> None:
    """Rows used, and rows set aside by reason."""
    draft.rows = rows
    draft.ledger = Ledger.model_validate(
        {"in": rows + rejects.total(), "out": rows, "rejects": dict(sorted(rejects.items()))}
    )


def write_history(draft: Draft, figures: tuple[str, ...] = HISTORY) -> None:
    """Copy the training's `metrics.jsonl` into the artifact, and a thinned part into the facts."""
    rows = list(read_rows(draft.scratch / METRICS))
    shutil.copyfile(draft.scratch / METRICS, draft.path / METRICS)
    draft.tokens = rows[-1]["tokens"]
    draft.facts["history"] = thin(rows, figures)
    looks = Looks.of(None, len(rows), rows)
    if looks.best is not None:
        draft.metrics[VALIDATION] = looks.found[looks.best]
        draft.facts |= {"best_step": looks.best, "steps_trained": len(rows)}


def save_model(
    folder: Path, module: "Network | Headed | Objective", base: Path, **extra: Any
) -> None:
    """A model folder, with its head if it has one, with the tokenizer, chat template and special
    ids of `base`, and `extra` keys of the config. Adapters are in its weights, and apart in
    `adapter/`, as PEFT has them.
    """
    from model import hub
    from model.dropout import set_dropout
    from model.heads import Headed
    from model.hub_lora import save_adapter
    from model.lora import adapted, merged
    from model.objectives.base import Objective

    if isinstance(module, Objective):
        module = module.network
    network = module.network if isinstance(module, Headed) else module
    # How it was tuned is no part of what it is.
    set_dropout(network, hub.load_config(hub.base_of(base) or base).dropout)
    if adapted(network):
        save_adapter(folder / ADAPTERS, network, hub.read_config(base)["model_type"], base)
    with merged(network):
        hub.save(folder, module, {**hub.special_ids(base), **extra})
    for name in TOKENIZER_FILES:
        if (base / name).is_file():
            shutil.copyfile(base / name, folder / name)


def add_ends(folder: Path, ends: Iterable[int]) -> None:
    """Let what a model folder generates end at these tokens, too, as `transformers` has it."""
    file = folder / ID_FILES[0]
    known = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    file.write_text(json.dumps(known | {"eos_token_id": sorted(ends)}, indent=1) + "\n")
