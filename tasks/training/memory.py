"""What a training holds in a device's memory, and the refusal of one that will not fit.

    check_memory(config, settings, placement)

The figures are of DeepSpeed as it is set up here, where weights are fp32 but in bf16_weights.
`benchmarks/training_memory.py` measures how close they are.
"""

from dataclasses import asdict, dataclass

from cluster.deepspeed_config import BUCKET
from cluster.errors import BadInput
from cluster.machine import gpu_memory, main_memory
from cluster.placement import Placement
from model.config import ModelConfig
from model.flops import (
    activation_bytes,
    half_weight_bytes,
    held_parameter_count,
    trained_parameter_count,
)
from tasks.training.settings import OptimizerName, PretrainSettings

MOMENTS: dict[OptimizerName, int] = {"sgd": 0, "momentum": 1, "adagrad": 1, "rmsprop": 1, "muon": 2}
"""Numbers kept of each parameter; Adam's are two. Of Muon an upper bound."""
GATHERED = 1_000_000_000
"""Weights that ZeRO 3 holds whole at a time (`stage3_max_live_parameters`)."""
GB = 1e9


@dataclass(frozen=True, kw_only=True)
class DeviceBytes:
    """Memory of one device while training, in bytes."""

    weights: int
    gradients: int
    optimizer: int
    buffers: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return sum(asdict(self).values())


def device_bytes(
    config: ModelConfig, settings: PretrainSettings, placement: Placement
) -> DeviceBytes:
    """What one worker's device holds at its peak; with `offload`, what a GPU is left with."""
    stage, workers = placement.zero_stage, placement.workers // placement.tensor_parallel
    count = held_parameter_count(config, placement.tensor_parallel)
    whole, share = 4 * count, -(-4 * count // workers)
    moments = MOMENTS.get(settings.optimizer.name, 2)
    optimizer = (1 + moments) * share if stage else moments * whole  # sharded: a copy of weights
    gradients = {0: whole, 1: whole + share, 2: 2 * share, 3: 3 * share}[stage]
    size = 2 if settings.precision == "bf16_weights" else 4
    part = share * size // 4
    weights = size * count if stage < 3 else part + size * min(count, GATHERED)
    offloaded = placement.offload if placement.gpus else None
    if offloaded:
        optimizer, gradients = 0, gradients - share
    if offloaded == "all":
        weights -= part
    bucket = 4 * min(count, BUCKET) * _copies(stage, workers, on_gpu=placement.gpus > 0)
    return DeviceBytes(
        weights=weights,
        gradients=gradients,
        optimizer=optimizer,
        buffers=max(bucket, _joined(config, placement)),
        activations=_activations(config, settings, placement),
    )


def _copies(stage: int, workers: int, on_gpu: bool) -> int:
    """Of a bucket of gradients: the bucket, from ZeRO 2 on what each worker is sent of it, and in
    ZeRO 3 on the CPU a third, in which gloo adds up.
    """
    if workers == 1:
        return int(stage > 0)
    return {2: 2, 3: 2 if on_gpu else 3}.get(stage, 1)


def _joined(config: ModelConfig, placement: Placement) -> int:
    """The whole of a divided network, which the first worker puts together on the CPU at the end,
    when buckets are no longer needed.
    """
    divided = placement.tensor_parallel > 1 and not placement.gpus
    return 4 * trained_parameter_count(config) if divided else 0


def check_memory(config: ModelConfig, settings: PretrainSettings, placement: Placement) -> None:
    """Raise BadInput, before a device is touched, when this machine's devices are too small.

    Workers on the CPU share the main memory. GPUs of other machines are taken to be like those
    here; where there are none nothing is refused.
    """
    need = device_bytes(config, settings, placement)
    total = need.total if placement.gpus else need.total * placement.workers
    limit = _of_gpu(placement.gpus) if placement.gpus else main_memory()
    if limit is None or total <= limit:
        return
    parts = ", ".join(f"{name} {size / GB:.1f}" for name, size in asdict(need).items() if size)
    devices = "a GPU has" if placement.gpus else f"for {placement.workers} workers, main memory is"
    raise BadInput(
        f"training needs {total / GB:.1f} GB ({parts} GB each), {devices} {limit / GB:.1f} GB; "
        "lower placement.micro_batch_tokens, model.depth or pretrain.context, or set "
        "placement.activation_checkpointing, or on more GPUs a higher placement.zero_stage, or "
        "placement.offload"
    )


def _of_gpu(share: float) -> int | None:
    """Bytes of a training's part of a GPU."""
    whole = gpu_memory()
    return None if whole is None else int(min(1.0, share) * whole)


def _activations(config: ModelConfig, settings: PretrainSettings, placement: Placement) -> int:
    team = placement.tensor_parallel
    tokens = settings.batch_tokens * team // placement.workers
    if samples := placement.micro_samples(settings.context):
        tokens = min(tokens, samples * settings.context // placement.context_parallel)
    again = placement.activation_checkpointing
    on_gpu = placement.gpus > 0
    kept = activation_bytes(config, tokens, settings.precision, team, again, on_gpu=on_gpu)
    casts = settings.precision in ("bf16", "fp16")
    copies = half_weight_bytes(config) // team if casts else 0
    # Autocast's copies stay for the whole forward pass, but for those of weights that do not.
    layers = config.depth + (config.encoder_depth or 0)
    return kept + (copies // layers if placement.zero_stage == 3 else copies)
