"""Planned memory: what each ZeRO stage holds, and the refusal of what will not fit."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from cluster.errors import BadInput
from cluster.placement import Placement
from model.config import ModelConfig
from model.encoder_decoder import build
from model.flops import activation_bytes, half_weight_bytes, trained_parameter_count
from model.objectives.modules import CausalLM
from model.presets import preset
from model.shapes import from_depth, resized
from tasks.training import memory
from tasks.training.memory import check_memory, device_bytes
from tasks.training.settings import OptimizerSettings, PretrainSettings

CONFIG = from_depth(9, vocab_size=8192, context=256)
SETTINGS = PretrainSettings(context=256, batch_tokens=512)


@pytest.mark.parametrize(
    ("stage", "workers", "each"),
    [
        (0, 1, 16),
        (1, 1, 28),
        (2, 1, 28),
        (3, 1, 36),
        (0, 4, 20),
        (1, 4, 16),
        (2, 4, 17),
        (3, 4, 23),
    ],
)
def test_bytes_of_a_parameter(stage: int, workers: int, each: int) -> None:
    held = device_bytes(CONFIG, SETTINGS, Placement(zero_stage=stage, workers=workers))
    without = held.total - held.activations
    assert without == pytest.approx(each * trained_parameter_count(CONFIG), rel=1e-6)


def test_workers_that_have_a_network_together_hold_parts_of_it() -> None:
    whole = device_bytes(CONFIG, SETTINGS, Placement())
    part = device_bytes(CONFIG, SETTINGS, Placement(workers=2, tensor_parallel=2))
    kept = 8192 * 2 * CONFIG.width  # embedding and head
    blocks = trained_parameter_count(CONFIG) - kept
    assert part.weights == pytest.approx(4 * (kept + blocks / 2), rel=1e-3)
    assert part.gradients == part.weights
    assert part.buffers == whole.weights  # put together at the end
    assert whole.activations / 2 < part.activations < whole.activations


def test_an_optimizer_without_state_and_recomputed_layers_hold_less() -> None:
    plain = device_bytes(CONFIG, SETTINGS, Placement())
    less = SETTINGS.model_copy(update={"optimizer": OptimizerSettings(name="sgd")})
    assert device_bytes(CONFIG, less, Placement()).optimizer == 0
    again = device_bytes(CONFIG, SETTINGS, Placement(activation_checkpointing="whole"))
    assert again.activations < plain.activations / 4
    assert again.weights == plain.weights


def test_offload_leaves_a_gpu_the_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    placement = Placement(gpus=1, workers=4, zero_stage=2, offload="optimizer")
    assert device_bytes(CONFIG, SETTINGS, placement).optimizer == 0


def test_what_will_not_fit_is_refused_with_what_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "main_memory", lambda: int(1.5e9))
    check_memory(CONFIG, SETTINGS, Placement())
    with pytest.raises(BadInput, match=r"needs 1\.8 GB.*for 1 workers, main memory is 1\.5 GB"):
        check_memory(CONFIG, SETTINGS, Placement(zero_stage=1))
    monkeypatch.setattr(memory, "gpu_memory", lambda: None)
    check_memory(CONFIG, SETTINGS, Placement(gpus=1, zero_stage=1))
    monkeypatch.setattr(memory, "gpu_memory", lambda: int(1e9))
    with pytest.raises(BadInput, match=r"a GPU has 1\.0 GB; lower placement\.micro_batch_tokens"):
        check_memory(CONFIG, SETTINGS, Placement(gpus=1))


def saved_bytes(config: ModelConfig, rows: int, precision: str) -> int:
    """What a step keeps for its backward pass, weights left out, by PyTorch's own account."""
    torch.manual_seed(0)
    module = CausalLM(build(config)).train()
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if (storage := tensor.untyped_storage()).data_ptr() not in weights:
            kept[storage.data_ptr()] = tensor
        return tensor

    weights = {p.untyped_storage().data_ptr() for p in module.parameters()}
    tokens = torch.randint(config.vocab_size, (rows, config.context))
    half = torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16")
    if precision == "bf16_weights":
        module.bfloat16()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), half:
        _ = module(tokens, tokens.roll(-1, 1))
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16_weights"])
@pytest.mark.parametrize("shape", ["dial", "gpt2", "grouped"])
def test_activations_are_those_that_a_step_keeps(shape: str, precision: Any) -> None:
    dial = from_depth(4, vocab_size=2048, context=256)
    config = {
        "dial": dial,
        "gpt2": resized(preset("gpt2"), width=256, depth=4, heads=4),
        "grouped": from_depth(4, vocab_size=2048, context=256, width=256, heads=8, kv_heads=2),
    }[shape]
    config = replace(config, vocab_size=2048, context=256)
    planned = activation_bytes(config, 8 * 256, precision)
    planned += half_weight_bytes(config) if precision == "bf16" else 0
    assert planned / saved_bytes(config, 8, precision) == pytest.approx(1.03, abs=0.14)


def test_a_7b_shape_fits_one_h200_and_a_70b_shape_64(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "gpu_memory", lambda: int(140.4e9))
    settings = PretrainSettings(
        context=4096, batch_tokens=64 * 4096, tokens=10**9, precision="bf16"
    )
    how: dict[str, Any] = {"gpus": 1, "micro_batch_tokens": 4096}
    one = replace(preset("llama-2-7b"), context=4096)
    check_memory(one, settings, Placement(activation_checkpointing="selective", **how))
    large = replace(preset("llama-2-70b"), context=4096)
    many = Placement(workers=64, zero_stage=3, activation_checkpointing="whole", **how)
    check_memory(large, settings, many)
    half = settings.model_copy(update={"precision": "bf16_weights"})
    assert device_bytes(large, half, many).total < 0.9 * device_bytes(large, settings, many).total
    with pytest.raises(BadInput, match="a GPU has 140"):
        check_memory(large, settings, Placement(workers=64, **how))


def test_what_is_computed_again_is_not_kept() -> None:
    half = SETTINGS.model_copy(update={"precision": "bf16"})
    kept = [
        device_bytes(CONFIG, half, Placement(activation_checkpointing=how)).activations
        for how in ("none", "selective", "whole")
    ]
    assert kept[0] > 1.2 * kept[1] and kept[1] > 1.2 * kept[2]
