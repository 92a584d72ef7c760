"""How much of the gap between a small classifier and its teacher distillation closes.

    uv run python benchmarks/distillation.py MODEL TRAIN.jsonl HELDOUT.jsonl --layers 1 --seeds 3

A teacher is tuned from MODEL on rows of `text` and `label`. A student of some of MODEL's layers is
trained alone, on the labels, and once more with the teacher, for as many steps; of each it prints
the accuracy on the held-out rows, mean and range over the seeds, beside the most frequent class.
"""

import argparse
from pathlib import Path
from statistics import mean

from cluster.artifact import Artifact
from cluster.stage import build
from cluster.store import Store
from flows.adapting import found
from tasks.adoption.stage import AdoptSettings, adopt
from tasks.training.settings import OptimizerSettings
from tasks.tuning.classify.settings import ClassifySettings
from tasks.tuning.classify.stage import classify
from tasks.tuning.distill.settings import DistillSettings
from tasks.tuning.distill.stage import distill

NOTHING = 1e-9
"""What the teacher counts for a student that learns alone."""


def teach(store: Store, model: Artifact, asked: argparse.Namespace) -> Artifact:
    """The teacher."""
    settings = ClassifySettings(
        data=str(asked.train),
        heldout=str(asked.heldout),
        length=asked.length,
        epochs=asked.teacher_epochs,
        batch_rows=32,
        optimizer=OptimizerSettings(learning_rate=asked.rate, schedule="linear"),
    )
    return build(classify, store, recipe="teacher", model=model, settings=settings, seed=0)


def student(
    store: Store,
    model: Artifact,
    teacher: Artifact,
    asked: argparse.Namespace,
    seed: int,
    alone: bool,
) -> dict[str, float]:
    """Metrics of one student."""
    shares = {"soft": NOTHING, "hidden": 0.0} if alone else {}
    settings = DistillSettings(
        data=str(asked.train),
        heldout=str(asked.heldout),
        teacher=str(teacher.path),
        layers=asked.layers,
        length=asked.length,
        epochs=asked.epochs,
        batch_rows=32,
        optimizer=OptimizerSettings(learning_rate=asked.rate, schedule="linear"),
        **shares,
    )
    name = "alone" if alone else "distilled"
    made = build(distill, store, recipe=name, model=model, settings=settings, seed=seed)
    return made.manifest.metrics


def main() -> None:
    """Train them and print their accuracies."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("train", type=Path)
    parser.add_argument("heldout", type=Path)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--epochs", type=float, default=2.0)
    parser.add_argument("--teacher-epochs", type=float, default=3.0)
    parser.add_argument("--rate", type=float, default=1e-3)
    asked, store = parser.parse_args(), Store()
    adopting = AdoptSettings(model=found(asked.model))
    model = build(adopt, store, recipe="benchmark", settings=adopting)
    teacher = teach(store, model, asked)
    figures = teacher.manifest.metrics
    print(f"most frequent class {figures['accuracy_majority']:.4f}")
    print(f"teacher {figures['accuracy']:.4f}")
    means = {}
    for alone in (True, False):
        runs = [
            student(store, model, teacher, asked, seed, alone)["accuracy"]
            for seed in range(asked.seeds)
        ]
        name = "student alone" if alone else "student with its teacher"
        means[alone] = mean(runs)
        print(f"{name} {means[alone]:.4f} ({min(runs):.4f} to {max(runs):.4f})")
    gap = figures["accuracy"] - means[True]
    print(f"of the gap of {gap:.4f} it closes {(means[False] - means[True]) / gap:.0%}")


if __name__ == "__main__":
    main()
