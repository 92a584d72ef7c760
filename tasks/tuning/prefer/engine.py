"""The engine of stage `prefer`: preferences to a tuned model, and rewards of held-out answers.

Letters: N answers, B samples of a batch, R answers of a sample.
"""

import logging
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file

from cluster.artifact import Artifact, brought
from cluster.store import Draft
from model import hub
from model.flops import flops_per_token
from model.objectives.preference import PreferenceLM
from model.transformer import Transformer
from tasks.data.row_files import write_json_lines
from tasks.evaluation.statistics.wilson import wilson_interval
from tasks.inference.generation import load_model
from tasks.tokens.chat import NO_LOSS
from tasks.training.job import Program
from tasks.training.launch import launch, load_trained
from tasks.tuning.common import HISTORY, save_model, track, tuning_job, write_history
from tasks.tuning.prefer.encode import SIDES, Arrays, rows_of, scored
from tasks.tuning.prefer.settings import PreferSettings
from tasks.tuning.sources import describe
from tasks.tuning.supervised import parted, sample_numbers
from tasks.tuning.trained_part import trained_part

SCORED = 8
TOLD = ("reward_accuracy", "reward_margin")
log = logging.getLogger("headrace.prefer")


def tune(
    model: Artifact, preferences: Artifact, settings: PreferSettings, seed: int, draft: Draft
) -> None:
    """Carry out the stage."""
    track(draft, settings, seed, model=model, preferences=preferences)
    base = model.path
    network, _ = load_model(base)
    assert isinstance(network, Transformer), "stage `preferences` refuses others"
    train, heldout = (preferences.file(f"{side}.safetensors") for side in SIDES)
    build = partial(program, base, train, settings, seed)
    kept, _ = parted(preferences.manifest.facts["training_rows"], settings.early_stopping)
    steps = max(1, round(settings.epochs * len(kept) / settings.batch_rows))
    longest = preferences.manifest.facts["longest_train"]
    job = tuning_job(
        build,
        steps,
        settings.batch_rows // settings.sample_rows,
        settings,
        seed,
        draft,
        sample_tokens=2 * settings.sample_rows * longest,
        flops_per_token=flops_per_token(network.config),
    )
    log.info("%d rows, %d steps", len(kept), steps)
    weights = launch(job, draft.placement)
    module = preferring(network, settings, base)
    load_trained(module, weights)
    measure(module, load_file(heldout), draft)
    save_model(draft.path, network, base)
    shutil.copyfile(preferences.file("heldout.jsonl"), draft.path / "heldout.jsonl")
    write_history(draft, (*HISTORY, *TOLD))
    draft.rows, draft.facts["task"] = len(kept), describe(settings)


def preferring(network: Transformer, settings: PreferSettings, base: Path) -> PreferenceLM:
    """The network of a folder with the loss of these settings."""
    module = PreferenceLM(
        network, settings.loss, settings.beta, settings.desirable, settings.undesirable
    )
    return trained_part(module, settings, base)


def program(base: Path, rows: Path, settings: PreferSettings, seed: int) -> Program:
    """What every training process runs: the model that is tuned, and its samples."""
    arrays = load_file(brought(rows))
    network = hub.load(brought(base))
    assert isinstance(network, Transformer), "stage `preferences` refuses others"
    kept, apart = parted(count_rows(arrays), settings.early_stopping)
    feed = partial(batch, arrays, kept, settings, seed)
    return Program(
        preferring(network, settings, base), feed, list(validation_batches(arrays, apart, settings))
    )


def count_rows(arrays: Arrays) -> int:
    """How many rows the answers belong to: pairs, or with KTO one of each."""
    return len(np.unique(arrays["item"]))


def batch(
    arrays: Arrays, kept: np.ndarray, settings: PreferSettings, seed: int, first: int, count: int
) -> Arrays:
    """Samples `first` to `first + count` of the rows that are `kept` to train on: arrays
    `[B, R, T]`, and what the loss takes beside.
    """
    numbers = drawn_answers(arrays, kept, settings, seed, first, count)
    found = samples_of(arrays, numbers, settings)
    if not settings.has_reference:
        found["token_share"] = token_shares(arrays, kept, settings, seed, first, count)
    return found


def samples_of(arrays: Arrays, numbers: np.ndarray, settings: PreferSettings) -> Arrays:
    """The arrays of samples whose answers have these numbers `[B, R]`, and what the loss takes
    beside: the reference's log-probabilities, and for KTO which answers are wanted.
    """
    found = rows_of(arrays, numbers)
    if settings.has_reference:
        found["reference"] = arrays["log_probs"][numbers]
    if settings.loss == "kto":
        found["wanted"] = arrays["wanted"][numbers[:, : settings.sample_rows]]
    return found


def validation_batches(
    arrays: Arrays, apart: np.ndarray, settings: PreferSettings
) -> Iterator[Arrays]:
    """The rows by whose loss training may stop, in batches; the last group of KTO is filled up
    with rows from the beginning.
    """
    each = settings.sample_rows
    samples = answers_of(arrays, np.resize(apart, -(-len(apart) // each) * each), settings)
    for first in range(0, len(samples), SCORED):
        numbers = samples[first : first + SCORED]
        found = samples_of(arrays, numbers, settings)
        if not settings.has_reference:
            share = len(samples) / arrays["lengths"][samples[:, 0]].sum()
            found["token_share"] = np.full(len(numbers), share, np.float32)
        yield found


def drawn_answers(
    arrays: Arrays, kept: np.ndarray, settings: PreferSettings, seed: int, first: int, count: int
) -> np.ndarray:
    """The numbers of the answers of samples `first` to `first + count`, `[B, R]`, rows being drawn
    by the seed.
    """
    each = settings.sample_rows
    rows = kept[sample_numbers(first * each, count * each, len(kept), seed)]
    return answers_of(arrays, rows, settings)


def answers_of(arrays: Arrays, rows: np.ndarray, settings: PreferSettings) -> np.ndarray:
    """The numbers of the answers of these rows by samples, `[B, R]`: pairs; or groups of KTO,
    behind which are the mismatched ones.
    """
    if settings.loss == "kto":
        groups = rows.reshape(-1, settings.sample_rows)
        return np.concatenate([groups, count_rows(arrays) + groups], axis=1)
    return np.stack([2 * rows, 2 * rows + 1], axis=1)


def token_shares(
    arrays: Arrays, kept: np.ndarray, settings: PreferSettings, seed: int, first: int, count: int
) -> np.ndarray:
    """For each sample: over all tokens of the wanted rows of its whole batch, its samples."""
    size, numbers = settings.batch_rows, np.arange(first, first + count) // settings.batch_rows
    shares = {}
    for step in np.unique(numbers):
        whole = drawn_answers(arrays, kept, settings, seed, int(step) * size, size)
        shares[step] = size / arrays["lengths"][whole[:, 0]].sum()
    return np.array([shares[step] for step in numbers], np.float32)


def measure(module: PreferenceLM, arrays: Arrays, draft: Draft) -> None:
    """Metrics of held-out answers, and `rewards.jsonl` with what each was found worth."""
    assert isinstance(module.network, Transformer)
    reference = arrays["log_probs"]
    found = torch.from_numpy(scored(module.network, arrays, draft))
    answers = torch.from_numpy(arrays["answers"])
    by = None if module.loss == "orpo" else torch.from_numpy(reference)
    rewards = (module.beta * module.scores(found, answers, by)).numpy()
    draft.metrics |= figures(rewards, arrays) | {"rows": float(count_rows(arrays))}
    rows = zip(arrays["item"], arrays["wanted"], rewards, reference, strict=True)
    write_json_lines(
        draft.path / "rewards.jsonl",
        (
            {"row": int(item), "wanted": bool(yes), "reward": float(r), "log_prob_before": float(b)}
            for item, yes, r, b in rows
        ),
    )


def figures(rewards: np.ndarray, arrays: Arrays) -> dict[str, float]:
    """How many couples of a wanted and an unwanted answer the rewards `[N]` put in order, and by
    how much, beside what the length alone, and the model before, would have made of them.
    """
    yes, no, paired = couples(arrays)
    if not len(yes):
        return {}
    lengths, before = (arrays["answers"] != NO_LOSS).sum(-1), arrays["log_probs"]
    ahead = {
        name: values[yes] - values[no]
        for name, values in (("", rewards), ("_length", lengths), ("_before", before))
    }
    found = {f"reward_accuracy{name}": float((gap > 0).mean()) for name, gap in ahead.items()}
    shorter = float((ahead["_length"] < 0).mean())
    found["reward_accuracy_length"] = max(found["reward_accuracy_length"], shorter)
    found["reward_margin"] = float(ahead[""].mean())
    if paired:
        right = int((ahead[""] > 0).sum())
        low, high = wilson_interval(right, len(yes))
        found |= {"reward_accuracy_low": low, "reward_accuracy_high": high}
    return found


def couples(arrays: Arrays) -> tuple[np.ndarray, np.ndarray, bool]:
    """The numbers of wanted answers, and of the unwanted ones to compare each with: those of the
    same rows (the last is True), or where rows have one answer, each with all.
    """
    items, wanted = arrays["item"], arrays["wanted"].astype(bool)
    first = np.flatnonzero(items[:-1] == items[1:])
    if len(first):
        return first, first + 1, True
    yes, no = np.flatnonzero(wanted), np.flatnonzero(~wanted)
    return np.repeat(yes, len(no)), np.tile(no, len(yes)), False
