"""What DeepSpeed and NCCL are told, for every placement; a change here is one to be looked at."""

import itertools
import json
import os
from pathlib import Path
from typing import get_args

import torch

from cluster.deepspeed_config import deepspeed_config
from cluster.environment import worker_variables
from cluster.world import BACKENDS, set_precision
from tasks.training.settings import Precision

SNAPSHOT = Path(__file__).with_name("deepspeed_config.json")
OFFLOADS = {None: 0, "optimizer": 1, "all": 3}


def every() -> dict[str, dict[str, object]]:
    """The configuration of each ZeRO stage, precision, offload and kind of device."""
    found = {}
    for stage, precision, offload, on_gpu in itertools.product(
        range(4), get_args(Precision), OFFLOADS, (False, True)
    ):
        if stage < max(OFFLOADS[offload], 2 if precision == "bf16_weights" else 0):
            continue
        name = f"stage {stage}, {precision}, offload {offload}, {'gpu' if on_gpu else 'cpu'}"
        found[name] = deepspeed_config(
            workers=8,
            micro_batch=4,
            accumulation=2,
            precision=precision,
            zero_stage=stage,
            offload=offload,
            on_gpu=on_gpu,
            clip=1.0,
        )
    return found


def test_every_configuration_is_as_it_was() -> None:
    """Written by `uv run python -m tests.training.test_deepspeed_config`."""
    assert every() == json.loads(SNAPSHOT.read_text())


def test_nccl_is_told_and_so_are_workers() -> None:
    wanted = {
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "3",
        "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
        "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    }
    assert {name: os.environ[name] for name in wanted} == wanted
    assert wanted.items() <= worker_variables().items()
    # Figures of the host are summed by gloo: NCCL would wait for all that a device has to do.
    assert BACKENDS == {False: "gloo", True: "cpu:gloo,cuda:nccl"}


def test_products_are_rounded_as_stated() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        set_precision()
        assert torch.get_float32_matmul_precision() == "high"
        cuda = torch.backends.cuda.matmul
        assert not cuda.allow_bf16_reduced_precision_reduction
        assert not cuda.allow_fp16_reduced_precision_reduction
    finally:
        torch.set_float32_matmul_precision(before)


if __name__ == "__main__":
    lines = (f"{json.dumps(name)}: {json.dumps(found)}" for name, found in every().items())
    SNAPSHOT.write_text("{\n" + ",\n".join(lines) + "\n}\n")
