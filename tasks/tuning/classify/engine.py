"""The engine of stage `classify`: rows to tokens, training, predictions on held-out rows."""

import json
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file, save_file

from cluster.artifact import brought
from cluster.errors import BadInput
from cluster.handover import here, share
from cluster.store import Draft
from model import hub
from model.encoder_decoder import EncoderDecoder
from model.flops import flops_per_token
from model.heads import SequenceClassifier
from model.transformer import Transformer
from tasks.inference.generation import load_model
from tasks.tokens.encoder import Encoder
from tasks.training.job import Program
from tasks.training.launch import launch, load_trained
from tasks.tuning.classify.metrics import (
    accuracy,
    confusion,
    macro_f1,
    majority_accuracy,
    wilson_interval,
)
from tasks.tuning.classify.settings import ClassifySettings
from tasks.tuning.common import keep_ledger, save_model, tuning_job, write_history
from tasks.tuning.rows import Snippet
from tasks.tuning.sources import describe, labelled_rows
from tasks.tuning.supervised import sample_numbers
from tasks.tuning.trained_part import trained_part

ROWS = "rows.safetensors"
HEAD = "classifier/head.safetensors"  # apart: the files beside it are the network's own
SCORED_ROWS = 32
EXAMPLES = 5
log = logging.getLogger("headrace.classify")


@dataclass(frozen=True)
class Outcome:
    """Held-out rows with what the classifier made of them; classes by number."""

    rows: list[Snippet]
    labels: list[str]
    gold: list[int]
    predicted: list[int]

    def metrics(self) -> dict[str, float]:
        """The figures of the stage."""
        low, high = wilson_interval(
            sum(g == p for g, p in zip(self.gold, self.predicted, strict=True)), len(self.gold)
        )
        return {
            "accuracy": accuracy(self.gold, self.predicted),
            "accuracy_low": low,
            "accuracy_high": high,
            "accuracy_majority": majority_accuracy(self.gold),
            "macro_f1": macro_f1(self.gold, self.predicted),
            "rows": float(len(self.gold)),
        }

    def records(self) -> list[dict[str, str]]:
        """One record a row: its text, class, prediction and origin."""
        return [
            {**asdict(row), "prediction": self.labels[p]}
            for row, p in zip(self.rows, self.predicted, strict=True)
        ]


def fine_tune(base: Path, settings: ClassifySettings, seed: int, draft: Draft) -> None:
    """Carry out the stage."""
    train, heldout, rejects = labelled_rows(settings)
    labels = sorted({row.label for row in train})
    found, encoder = load_model(base)
    network = readable(found, base)
    length = min(settings.length, network.config.context)
    head = class_token(encoder, network)
    inputs, cut = encode(encoder, train, length, head)
    gold = np.array([labels.index(row.label) for row in train], np.int64)
    rows = draft.scratch / "rows"
    rows.mkdir(exist_ok=True)
    save_file({"inputs": inputs, "labels": gold}, rows / ROWS)
    share(rows)
    build = partial(program, base, rows / ROWS, len(labels), encoder.pad, settings, seed)
    steps = max(1, round(settings.epochs * len(train) / settings.batch_rows))
    log.info("%d rows of %d classes, %d steps", len(train), len(labels), steps)
    flops = flops_per_token(network.config, length, lm_head=False)
    job = tuning_job(
        build,
        steps,
        settings.batch_rows,
        settings,
        seed,
        draft,
        sample_tokens=length,
        flops_per_token=flops,
    )
    weights = launch(job, draft.placement)
    classifier = trained_part(SequenceClassifier(network, len(labels)), settings, base)
    load_trained(classifier, weights)
    outcome = measure(classifier, encoder, heldout, labels, length)
    write(draft, classifier, base, outcome)
    keep_ledger(draft, len(train) + len(heldout), rejects)
    draft.facts |= {
        "task": describe(settings),
        "training_rows": len(train),
        "rows_per_class": dict(sorted(Counter(row.label for row in train).items())),
        "tokens_per_row": length,
        "texts_cut": cut,
    }


def readable(network: Transformer | EncoderDecoder, base: Path) -> Transformer:
    """The network of a decoder or encoder. Raises BadInput for an encoder-decoder."""
    if isinstance(network, EncoderDecoder):
        raise BadInput(
            f"{base} is an encoder_decoder; classes are read from a decoder or an encoder: "
            "pretrain one with `--set model.family=decoder` or `encoder`"
        )
    return network


def class_token(encoder: Encoder, network: Transformer) -> list[int]:
    """What stands in front of a text: an encoder's class token, as in its pretraining."""
    return [encoder.special("class")] if network.config.family == "encoder" else []


def encode(
    encoder: Encoder, rows: Sequence[Snippet], length: int, head: Sequence[int] = ()
) -> tuple[np.ndarray, int]:
    """Token ids [rows, length], head first, the pad id behind; and how many texts were cut."""
    encoded = [[*head, *ids] for ids in encoder.encode_batch([row.text for row in rows])]
    inputs = np.full((len(rows), length), encoder.pad, np.int64)
    for row, ids in enumerate(encoded):
        inputs[row, : min(len(ids), length)] = ids[:length]
    return inputs, sum(len(ids) > length for ids in encoded)


def batch_of(inputs: np.ndarray, pad: int) -> dict[str, np.ndarray]:
    """A batch as long as its longest text; `documents` is 1 on text and 0 on padding."""
    used = inputs != pad
    inputs, used = (array[:, : max(1, used.sum(1).max())] for array in (inputs, used))
    positions = np.broadcast_to(np.arange(inputs.shape[1]), inputs.shape).copy()
    return {"inputs": inputs, "documents": used.astype(np.int64), "positions": positions}


def program(
    base: Path, rows: Path, classes: int, pad: int, settings: ClassifySettings, seed: int
) -> Program:
    """What every training process runs: the pretrained network, a new head, and its batches."""
    stored = load_file(here(rows))
    inputs, labels = stored["inputs"], stored["labels"]

    def batch(first: int, count: int) -> dict[str, np.ndarray]:
        numbers = sample_numbers(first, count, len(labels), seed)
        return {**batch_of(inputs[numbers], pad), "labels": labels[numbers]}

    classifier = SequenceClassifier(readable(hub.load(brought(base)), base), classes)
    return Program(trained_part(classifier, settings, base), batch)


@torch.no_grad()
def measure(
    classifier: SequenceClassifier,
    encoder: Encoder,
    rows: list[Snippet],
    labels: list[str],
    length: int,
) -> Outcome:
    """Predict the class of every row."""
    classifier.eval()
    inputs, _ = encode(encoder, rows, length, class_token(encoder, classifier.network))
    predicted: list[int] = []
    for first in range(0, len(rows), SCORED_ROWS):
        batch = batch_of(inputs[first : first + SCORED_ROWS], encoder.pad)
        scores_BC = classifier.scores(**{k: torch.from_numpy(v) for k, v in batch.items()})
        predicted += scores_BC.argmax(-1).tolist()
    gold = [labels.index(row.label) for row in rows]
    return Outcome(rows, labels, gold, predicted)


def write(draft: Draft, classifier: SequenceClassifier, base: Path, outcome: Outcome) -> None:
    """Model folder, predictions, history, figures and what the report shows."""
    names = dict(enumerate(outcome.labels))
    save_model(draft.path, classifier.network, base, id2label=names)
    head = {key: value.numpy() for key, value in classifier.classifier.state_dict().items()}
    (draft.path / HEAD).parent.mkdir()
    save_file(head, draft.path / HEAD)
    records = outcome.records()
    lines = (json.dumps(record) + "\n" for record in records)
    (draft.path / "predictions.jsonl").write_text("".join(lines))
    write_history(draft)
    draft.metrics |= outcome.metrics()
    draft.facts |= {
        "labels": outcome.labels,
        "confusion": confusion(outcome.gold, outcome.predicted, len(names)),
        "examples": records[:EXAMPLES],
    }
