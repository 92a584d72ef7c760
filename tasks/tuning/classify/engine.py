"""The engine of stage `classify`: texts and classes as arrays, and what scores say of the classes.

One class holds of a row, or several at once where rows have lists: then each has a probability of
its own, and holds from one half on.
"""

from collections import Counter
from collections.abc import Sequence
from functools import partial

import numpy as np

from model.config import ModelConfig
from model.head_config import Head
from tasks.evaluation.statistics.wilson import wilson_interval
from tasks.tokens.encoder import Encoder
from tasks.tokens.frames import Row, read_frame
from tasks.tuning.class_weights import weights_of
from tasks.tuning.classify import metrics
from tasks.tuning.classify.settings import ClassifySettings
from tasks.tuning.headed import Outcome, Task, arrays_of, pooling_of
from tasks.tuning.rows import Snippet
from tasks.tuning.sources import classes_of, labelled_rows


def prepare(settings: ClassifySettings, encoder: Encoder, config: ModelConfig) -> Task:
    """The task of a file of labelled texts."""
    train, heldout, rejects = labelled_rows(settings)
    names = classes_of(train)
    several = train[0].labels is not None
    problem = "multi_label_classification" if several else "single_label_classification"
    pooling = pooling_of(settings.pooling, config)
    head = Head("sequence", len(names), pooling, problem, settings.read_layers)
    length = min(settings.length, config.context)
    rows, cut = encode(encoder, config, train, length)
    measured, _ = encode(encoder, config, heldout, length)
    gold = targets(heldout, names)
    labels = targets(train, names)
    counts = Counter(name for row in train for name in row.classes)
    return Task(
        head=head,
        train=arrays_of(rows, config, encoder.pad)
        | {"labels": labels}
        | weights_of(settings.class_weights, names, counts),
        heldout=arrays_of(measured, config, encoder.pad),
        measure=partial(_measure_several if several else _measure, heldout, names, labels, gold),
        used=len(train) + len(heldout),
        rejects=rejects,
        names=names,
        facts={
            "rows_per_class": dict(sorted(counts.items())),
            "texts_cut": cut,
            "labels": names,
        },
    )


def encode(
    encoder: Encoder, config: ModelConfig, rows: Sequence[Snippet], length: int
) -> tuple[list[Row], int]:
    """Texts, or pairs, as the network reads them; and how many were cut."""
    frame = read_frame(encoder, len(rows[0].texts), config.family)
    columns = [encoder.encode_batch(texts) for texts in zip(*(r.texts for r in rows), strict=True)]
    whole = [list(texts) for texts in zip(*columns, strict=True)]
    kept = [frame.cut(texts, length) for texts in whole]
    cut = sum(before != after for before, after in zip(whole, kept, strict=True))
    return [frame.lay(texts) for texts in kept], cut


def targets(rows: Sequence[Snippet], names: Sequence[str]) -> np.ndarray:
    """The number of each row's class, [rows]; of several whether each holds, [rows, classes]."""
    number = {name: n for n, name in enumerate(names)}
    if rows[0].labels is None:
        return np.array([number[row.label] for row in rows], np.int64)
    held = np.zeros((len(rows), len(names)), np.float32)
    for place, row in enumerate(rows):
        held[place, [number[name] for name in row.classes]] = 1
    return held


def _measure(
    rows: Sequence[Snippet],
    names: Sequence[str],
    labels: np.ndarray,
    gold_R: np.ndarray,
    scores: Sequence[np.ndarray],
) -> Outcome:
    """Of rows with one class: the one with the highest score. `labels` are those of training, by
    which the rarer of two classes is known.
    """
    gold, predicted = gold_R.tolist(), [int(row.argmax()) for row in scores]
    right = sum(g == p for g, p in zip(gold, predicted, strict=True))
    low, high = wilson_interval(right, len(gold))
    found = {
        "accuracy": metrics.accuracy(gold, predicted),
        "accuracy_low": low,
        "accuracy_high": high,
        "accuracy_majority": metrics.majority_accuracy(gold),
        "macro_f1": metrics.macro_f1(gold, predicted),
        "rows": float(len(gold)),
    }
    each = metrics.f1_by_class(gold, predicted, len(names))
    if len(names) == 2:
        found["f1"] = each[int(np.bincount(labels, minlength=2).argmin())]
    records = [
        row.record() | {"prediction": names[p]} for row, p in zip(rows, predicted, strict=True)
    ]
    confusion = metrics.confusion(gold, predicted, len(names))
    by_class = dict(zip(names, each, strict=True))
    return Outcome(found, records, {"confusion": confusion, "f1_by_class": by_class})


def _measure_several(
    rows: Sequence[Snippet],
    names: Sequence[str],
    labels_RC: np.ndarray,
    gold_RC: np.ndarray,
    scores: Sequence[np.ndarray],
) -> Outcome:
    """Of rows with lists of classes: those with a logit above 0, beside training's usual list."""
    held, predicted = gold_RC > 0, np.stack(scores) > 0
    sets, counts = np.unique(labels_RC > 0, axis=0, return_counts=True)
    constant = np.broadcast_to(sets[counts.argmax()], held.shape)
    found = {
        "accuracy": float((held == predicted).all(1).mean()),
        "accuracy_majority": float((held == constant).all(1).mean()),
        "micro_f1": metrics.f1_of_sets(held, predicted),
        "macro_f1": float(np.mean(metrics.f1_by_column(held, predicted))),
        "micro_f1_majority": metrics.f1_of_sets(held, constant),
        "rows": float(len(held)),
    }
    records = [
        row.record() | {"prediction": [name for name, on in zip(names, chosen, strict=True) if on]}
        for row, chosen in zip(rows, predicted, strict=True)
    ]
    by_class = dict(zip(names, metrics.f1_by_column(held, predicted), strict=True))
    return Outcome(found, records, {"f1_by_class": by_class})
