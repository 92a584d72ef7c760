"""Start a training where the placement says: in this process, or on Ray Train workers.

    weights = launch(job, placement)

Both ways end the same: `weights.safetensors` and `metrics.jsonl` in the job's scratch folder.
"""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import BadInput
from cluster.files import write_atomically
from cluster.handover import obtain
from cluster.placement import Placement
from cluster.trainer import run_on_workers
from tasks.training.agreement import check_sharding
from tasks.training.job import CHECKPOINTS, METRICS, WEIGHTS, Diverged, TrainJob
from tasks.training.spikes import SKIPPED
from tasks.training.telemetry import Follower, Reporter

if TYPE_CHECKING:
    from torch import nn

FINISHED = "finished.json"


def launch(job: TrainJob, placement: Placement) -> Path:
    """Train unless a run of this job has finished already; the path of the final fp32 weights,
    beside which their files and an index lie where they are several (`tasks.training.weights`).

    A killed run goes on from its newest checkpoint. Raises BadInput, Diverged, Preempted or
    CheckpointFailed.
    """

    # After a loss Ray Train may go on with any of these numbers.
    for workers in range(placement.least_workers or placement.workers, placement.workers + 1):
        job.check_shares(workers // (placement.context_parallel * placement.tensor_parallel))
    check_sharding(job.optimizer, job.precision, placement.zero_stage)
    finished = job.scratch / FINISHED
    # By content: weights that were damaged or changed since are made again.
    if finished.exists() and json.loads(finished.read_text()) == _fingerprints(job.scratch):
        return job.scratch / WEIGHTS
    if placement.workers == 1:
        from tasks.training.loop import train

        train(job, placement)
    else:
        _train_on_workers(job, placement)
    # Last: killed before this, training ends again from its newest checkpoint.
    write_atomically(finished, json.dumps(_fingerprints(job.scratch)))
    Reporter(job.scratch, job.steps, job.tracker, job.on_progress).final(job.steps)
    if placement.profile_steps and job.tracker and job.trace.exists():
        job.tracker.file(job.trace)
    return job.scratch / WEIGHTS


def load_trained(module: "nn.Module", weights: Path) -> None:
    """Load what `launch` returned into a module built like the one that was trained."""
    from tasks.training.state import load_weights
    from tasks.training.weights import reader

    load_weights(module, reader(weights.parent))


def _fingerprints(scratch: Path) -> dict[str, Any]:
    """Of each file of the final weights."""
    from tasks.training.checkpoint import fingerprint
    from tasks.training.weights import files

    return {path.name: fingerprint(path) for path in files(scratch)}


def _train_on_workers(job: TrainJob, placement: Placement) -> None:
    """Train on Ray Train workers and report on them from here, by reading the job's folder."""
    from tasks.training.checkpoint import complete, step_of
    from tasks.training.loop import train

    def final_step() -> int:
        newest = complete(job.scratch / CHECKPOINTS)[:1]
        return step_of(newest[0]) if newest else 0

    # Both speak from this process; the workers are heard through the files that they write.
    silent = replace(job, tracker=None, on_progress=None)
    reporter = Reporter(job.scratch, job.steps, job.tracker, job.on_progress)
    with Follower(job.scratch, reporter, final_step):
        run_on_workers(
            partial(train, silent, placement),
            workers=placement.workers,
            least=placement.least_workers,
            gpus=placement.gpus,
            cpus=placement.cpu_threads,
            folder=job.scratch / "ray_train",
            lasting=(BadInput, Diverged),
        )
    obtain(*(job.scratch / name for name in (METRICS, SKIPPED)))
