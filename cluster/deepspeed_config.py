"""DeepSpeed's configuration, from the few choices Headrace leaves open."""

from typing import Any, Literal

BUCKET = 500_000_000
"""Elements of gradients that are summed, and of weights that are gathered, in one message. Smaller
ones were not measured; `benchmarks/gpu.py` would, on several GPUs.
"""

HALF_WEIGHTS: dict[str, Any] = {
    # A gradient that is not finite is the loop's to find: DeepSpeed would wait for the device.
    "bf16": {"enabled": True, "check_grad_overflow": False},
    "data_types": {"grad_accum_dtype": "fp32"},
    "communication_data_type": "fp32",
}
"""Weights and their gradients are bf16; what is summed, over micro-batches and workers, is fp32."""


def deepspeed_config(
    *,
    workers: int,
    micro_batch: int,
    accumulation: int,
    precision: Literal["fp32", "bf16", "fp16", "bf16_weights"],
    zero_stage: int,
    offload: str | None,
    on_gpu: bool,
    clip: float | None,
) -> dict[str, Any]:
    """The dictionary for `deepspeed.initialize`. `micro_batch` is in samples, per worker.

    bf16 and fp16 are autocast: matrix products in that type, over fp32 weights and moments, the
    same in every ZeRO stage. bf16_weights is DeepSpeed's own bf16: the shards have fp32 copies,
    which the optimizer steps; gradients are summed in fp32. ZeRO 0 in fp32 clips without telling
    the gradient norm, so there the loop clips.
    """
    return {
        "train_batch_size": workers * micro_batch * accumulation,
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": (clip or 0.0) if zero_stage else 0.0,
        "torch_autocast": {
            "enabled": precision in ("bf16", "fp16"),
            "dtype": "float16" if precision == "fp16" else "bfloat16",
        },
        **(HALF_WEIGHTS if precision == "bf16_weights" else {}),
        "zero_optimization": {
            "stage": zero_stage,
            # Gradients are summed while the backward pass goes on; on a CPU there is nobody else.
            "overlap_comm": on_gpu,
            "contiguous_gradients": True,
            "reduce_bucket_size": BUCKET,
            "allgather_bucket_size": BUCKET,
            "offload_optimizer": {"device": "cpu" if offload else "none"},
            "offload_param": {"device": "cpu" if offload == "all" else "none"},
        },
        "zero_force_ds_cpu_optimizer": False,  # PyTorch's runs there too, and needs no compiler
        "zero_allow_untested_optimizer": True,  # ours are tested here
        "steps_per_print": None,
    }
