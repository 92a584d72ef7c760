"""What the steps that were made tell of those to come, from the files of a training."""

from typing import NamedTuple

from cluster.handover import obtain
from tasks.training.early_stopping import Looks
from tasks.training.job import METRICS, TrainJob
from tasks.training.loss_scale import LossScale
from tasks.training.spikes import SKIPPED, WINDOW, read_skipped
from tasks.training.telemetry import read_rows


class History(NamedTuple):
    """Numbers of the batches that are skipped, the losses of the last steps, what scales the next,
    and what was found of the validation rows.
    """

    skipped: list[int]
    losses: list[float]
    scale: LossScale
    looks: Looks


def history(job: TrainJob, done: int) -> History:
    """Of the first `done` steps; rows of later ones are of steps that will be made again."""
    obtain(job.scratch / METRICS, job.scratch / SKIPPED)
    rows = [row for row in read_rows(job.scratch / METRICS) if row["step"] <= done]
    return History(
        skipped=read_skipped(job.scratch),
        losses=[row["loss"] for row in rows[-WINDOW:]],
        scale=LossScale(job.precision, rows),
        looks=Looks.of(job.stopping, job.steps, rows),
    )
