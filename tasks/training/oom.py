"""A device with too little memory: the same training in smaller micro-batches, or what to set."""

import gc
import logging
from dataclasses import replace

import torch

from cluster.errors import StageFailed
from cluster.world import World
from tasks.training.job import TrainJob

log = logging.getLogger("headrace.train")


def smaller(job: TrainJob, world: World, error: Exception) -> TrainJob:
    """The job with half of the samples at a time, to go on from its newest checkpoint: results
    change by rounding. Raises StageFailed, with the settings that take less, where there is one
    sample at a time already, or where other ranks still wait for this one.
    """
    micro = job.share(1, job.batch_samples)[0] if world.size == 1 else 1
    if micro == 1:
        told = str(error).splitlines()[0]
        raise StageFailed(
            f"the device of rank {world.rank} is out of memory ({told}): lower "
            "placement.micro_batch_tokens, set placement.activation_checkpointing to selective or "
            "whole, on more GPUs a higher placement.zero_stage, or placement.offload"
        ) from error
    log.warning(
        "the device is out of memory with %d samples at a time: going on with %d; "
        "placement.micro_batch_tokens says so from the start",
        micro,
        micro // 2,
    )
    return replace(job, micro_samples=micro // 2)


def release(device: torch.device) -> None:
    """Give back what an attempt has held, before another one needs as much. DeepSpeed's engine is
    in circles of references, which the collector alone takes away.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()  # else its pieces stay those of the larger micro-batches
