"""Planned memory: what each ZeRO stage holds, and the refusal of what will not fit."""

import pytest

from cluster.errors import BadInput
from cluster.placement import Placement
from model.config import from_depth
from model.flops import trained_parameter_count
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
