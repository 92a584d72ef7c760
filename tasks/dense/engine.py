"""The engine of stage `dense`: the network in the loop that trains everything, and its figures.

Letters: N rows, D features, C outputs.
"""

import copy
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from safetensors.torch import save_model

from cluster.artifact import Artifact
from cluster.handover import here, share
from cluster.store import Draft
from model.dense import DenseNetwork
from tasks.data.row_files import write_json_lines
from tasks.dense import algorithm
from tasks.dense.rows import Rows, Side, read_rows
from tasks.dense.settings import DenseSettings
from tasks.evaluation.statistics.wilson import wilson_interval
from tasks.training.job import Program, TrainJob
from tasks.training.launch import launch, load_trained
from tasks.tuning.common import keep_ledger, write_history
from tasks.tuning.supervised import sample_numbers
from tasks.vectors.shown import principal
from tasks.vectors.table import FILE, read_vectors

ROWS = "rows.safetensors"
CHECKED, CHECKED_ROWS, NUDGE = 40, 16, 1e-5  # weights whose gradient is checked, and on how much
TINY_HIDDEN, TINY_STEPS, TINY_RATE = 2, 3, 0.5


def train(vectors: Artifact, settings: DenseSettings, seed: int, draft: Draft) -> None:
    """Train the network of stage `dense` and measure it; what the stage makes is in the draft."""
    rows = read_rows(settings, read_vectors(vectors.file(FILE)))
    count, features = rows.train.features_ND.shape
    sizes = (features, *settings.hidden, len(rows.names) or 1)
    network = DenseNetwork(sizes, settings.activation, settings.loss)
    params = sum(p.numel() for p in network.parameters())
    job = TrainJob(
        build=partial(program, handed(draft, rows.train), sizes, settings, seed),
        steps=max(1, round(settings.epochs * count / settings.batch_rows)),
        batch_samples=settings.batch_rows,
        scratch=draft.scratch,
        optimizer=settings.optimizer,
        precision=settings.precision,
        seed=seed,
        tracker=draft.tracker,
        on_progress=draft.progress,
        checkpoint_seconds=draft.placement.checkpoint_seconds,
    )
    load_trained(network, launch(job, draft.placement))
    save_model(network, str(draft.path / "network.safetensors"))
    write_history(draft)
    draft.tokens = None
    keep_ledger(draft, count + len(rows.heldout.rows), rows.rejects)
    told, found = measured(network, rows)
    write_json_lines(draft.path / "predictions.jsonl", told)
    gap = gradient_gap(network, rows.train, seed)
    draft.metrics |= found | {"params": float(params), "gradient_gap": gap}
    draft.facts |= {
        "loss": settings.loss,
        "sizes": list(sizes),
        "labels": rows.names,
        "steps": steps(rows, settings, seed),
    }


def handed(draft: Draft, side: Side) -> Path:
    """Where every training process finds the rows."""
    folder = draft.scratch / "rows"
    folder.mkdir(exist_ok=True)
    save_file({"inputs": side.features_ND, "labels": side.labels}, folder / ROWS)
    share(folder)
    return folder / ROWS


def program(path: Path, sizes: tuple[int, ...], settings: DenseSettings, seed: int) -> Program:
    """What every training process runs."""
    arrays = load_file(here(path))

    def batch(first: int, count: int) -> dict[str, np.ndarray]:
        numbers = sample_numbers(first, count, len(arrays["inputs"]), seed)
        return {name: array[numbers] for name, array in arrays.items()}

    return Program(DenseNetwork(sizes, settings.activation, settings.loss), batch)


@torch.no_grad()
def measured(network: DenseNetwork, rows: Rows) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """A record of each held-out row, and the figures."""
    outputs_NC = network.outputs(torch.from_numpy(rows.heldout.features_ND)).double().numpy()
    if rows.names:
        values, found = [rows.names[n] for n in outputs_NC.argmax(1)], _classes(outputs_NC, rows)
    else:
        seen = network.outputs(torch.from_numpy(rows.train.features_ND)).double().numpy()
        values, found = outputs_NC[:, 0].tolist(), _numbers(outputs_NC, seen, rows)
    records = [
        row.record() | {"prediction": value}
        for row, value in zip(rows.heldout.rows, values, strict=True)
    ]
    return records, found | {"rows": float(len(records))}


def _classes(outputs_NC: np.ndarray, rows: Rows) -> dict[str, float]:
    labels = rows.heldout.labels
    nats_N, _ = algorithm.losses(outputs_NC, labels, "cross_entropy")
    shares = np.bincount(rows.train.labels, minlength=len(rows.names)) / len(rows.train.labels)
    right = int((outputs_NC.argmax(1) == labels).sum())
    low, high = wilson_interval(right, len(labels))
    return {
        "accuracy": right / len(labels),
        "accuracy_low": low,
        "accuracy_high": high,
        "accuracy_majority": float((labels == shares.argmax()).mean()),
        "nats": float(nats_N.mean()),
        "nats_constant": float(-np.log(shares[labels]).mean()),
    }


def _numbers(outputs_N1: np.ndarray, seen_N1: np.ndarray, rows: Rows) -> dict[str, float]:
    labels, known = rows.heldout.labels, rows.train.labels
    mse, constant = (float(((labels - x) ** 2).mean()) for x in (outputs_N1, known.mean()))
    sigma2, spread2 = (float(((known - x) ** 2).mean()) for x in (seen_N1, known.mean()))
    return {
        "mse": mse,
        "mse_mean": constant,
        "deviation": math.sqrt(sigma2),
        "nats": _gaussian(mse, sigma2),
        "nats_constant": _gaussian(constant, spread2),
    }


def _gaussian(mse: float, sigma2: float) -> float:
    """-log likelihood of a number under Normal(output, sigma), in the mean over rows. With the
    likeliest sigma, sigma2 = mse, it is log(mse) / 2 and a constant: least squares.
    """
    sigma2 = max(sigma2, 1e-12)
    return 0.5 * (math.log(2 * math.pi * sigma2) + mse / sigma2)


def gradient_gap(network: DenseNetwork, side: Side, seed: int) -> float:
    """The largest difference between the gradients that autograd gives of some weights and those
    by central differences, over the largest of them; in fp64, on a few rows.
    """
    exact = copy.deepcopy(network).double()
    batch = {
        "inputs": torch.from_numpy(side.features_ND[:CHECKED_ROWS]).double(),
        "labels": torch.from_numpy(side.labels[:CHECKED_ROWS]),
    }
    weights = list(exact.parameters())
    slopes = torch.autograd.grad(exact(**batch), weights)
    random, pairs = np.random.default_rng(seed), []
    with torch.no_grad():
        for _ in range(CHECKED):
            number = random.integers(len(weights))
            flat, place = weights[number].view(-1), int(random.integers(weights[number].numel()))
            kept, ends = flat[place].item(), []
            for nudge in (NUDGE, -NUDGE):
                flat[place] = kept + nudge
                ends.append(exact(**batch).item())
            flat[place] = kept
            slope = slopes[number].view(-1)[place].item()
            pairs.append((slope, (ends[0] - ends[1]) / (2 * NUDGE)))
    found, checked = np.array(pairs).T
    return float(np.abs(found - checked).max() / max(np.abs(checked).max(), 1e-12))


def steps(rows: Rows, settings: DenseSettings, seed: int) -> list[dict[str, Any]]:
    """A training, number by number, of a network of two inputs and two hidden units on two rows of
    the task: their features in the plane in which those of all rows vary most, each axis scaled to
    a standard deviation of 1.
    """
    plane_N2, _ = principal(rows.train.features_ND.astype(float))
    points_N2 = plane_N2 / np.maximum(plane_N2.std(0), 1e-12)
    labels = rows.train.labels
    chosen = [0, int((labels != labels[0]).reshape(len(labels), -1).any(1).argmax())]
    targets = np.array([0, 1]) if rows.names else labels[chosen].astype(float)
    layers = algorithm.drawn((2, TINY_HIDDEN, 2 if rows.names else 1), seed)
    rate = TINY_RATE if rows.names else TINY_RATE / 10
    return algorithm.told(layers, points_N2[chosen], targets, settings.loss, rate, TINY_STEPS)
