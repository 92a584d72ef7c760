"""Settings of training: what follows from them, and what is refused."""

from dataclasses import replace

import pytest

from cluster.deepspeed_config import deepspeed_config
from cluster.errors import BadInput
from cluster.placement import Placement
from model.config import ExpertConfig
from tasks.tokens.steps import Steps
from tasks.training.agreement import check_sharding
from tasks.training.context_parallel import check_context_parallel
from tasks.training.loss_scale import FIRST, LEAST, WINDOW, LossScale
from tasks.training.model_settings import ModelSettings
from tasks.training.settings import OptimizerSettings, PretrainSettings
from tasks.training.tensor_parallel import check_tensor_parallel


def pretrain(**settings: object) -> PretrainSettings:
    return PretrainSettings.model_validate({"context": 16, "batch_tokens": 128} | settings)


def test_a_batch_ramp_has_as_many_steps_as_see_all_tokens() -> None:
    ramp = [{"tokens": 100, "batch_tokens": 32}, {"tokens": 128, "batch_tokens": 64}]
    settings = pretrain(tokens=1000, batch_ramp=ramp)
    assert settings.batches == Steps(4 + 2 + 6, 8, ((4, 2), (2, 4)))
    assert settings.batches.total * 16 == 4 * 32 + 2 * 64 + 6 * 128 >= 1000
    assert pretrain(tokens=1000).batches == Steps(8, 8)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"batch_ramp": [{"tokens": 64, "batch_tokens": 40}]}, "multiple of the context 16"),
        ({"batch_ramp": [{"tokens": 64, "batch_tokens": 128}]}, r"must grow.*\[128, 128\]"),
        (
            {"tokens": 100, "batch_ramp": [{"tokens": 99, "batch_tokens": 64}]},
            "batch_ramp takes 128 tokens, all there are is 100",
        ),
        ({"objective": "sentence_comparison", "z_loss": 1e-4}, "has no LM head"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        pretrain(**settings)


@pytest.mark.parametrize(
    ("model", "training", "told"),
    [
        ({"width": 32, "heads": 2}, {}, "model.heads is 2"),
        ({"kv_heads": 1}, {}, "model.kv_heads is 1"),
        ({}, {"context": 18, "batch_tokens": 36}, "pretrain.context is 18"),
        ({"family": "encoder"}, {"objective": "masked"}, "pretrain.objective is masked"),
        ({"preset": "mixtral-8x7b"}, {}, "model.experts is .*evened over whole rows"),
    ],
)
def test_rows_that_cannot_be_shared_are_refused(
    model: dict[str, object], training: dict[str, object], told: str
) -> None:
    settings = pretrain(**training)
    config = ModelSettings.model_validate(model).config(300, settings.context)
    with pytest.raises(BadInput, match=told):
        check_context_parallel(config, settings, 4)
    check_context_parallel(config, settings, 1)


@pytest.mark.parametrize(
    ("model", "training", "told"),
    [
        ({"width": 32, "heads": 2}, {}, "model.heads is 2"),
        ({"kv_heads": 1}, {}, "model.kv_heads is 1: each worker needs as many of them"),
        ({"preset": "t5-small"}, {"objective": "span_corruption"}, "positions is relative"),
        ({"preset": "deepseek-v3"}, {}, "latent"),
        (
            {"family": "encoder"},
            {"objective": "replaced_token_detection"},
            "pretrain.objective is replaced_token_detection",
        ),
        ({}, {"optimizer": {"name": "muon"}}, "pretrain.optimizer.name is muon: it needs whole"),
    ],
)
def test_networks_that_cannot_be_divided_are_refused(
    model: dict[str, object], training: dict[str, object], told: str
) -> None:
    settings = pretrain(**training)
    config = ModelSettings.model_validate(model).config(300, settings.context)
    with pytest.raises(BadInput, match=f"placement.tensor_parallel is 4, and .*{told}"):
        check_tensor_parallel(config, settings, Placement(workers=4, tensor_parallel=4))
    check_tensor_parallel(config, settings, Placement())


def test_dropout_is_not_compiled_in_a_divided_network() -> None:
    settings = pretrain()
    config = replace(ModelSettings(width=64, heads=4).config(300, settings.context), dropout=0.1)
    team = Placement(workers=4, tensor_parallel=4)
    check_tensor_parallel(config, settings, team)
    with pytest.raises(BadInput, match=r"dropout is 0\.1: compiled, .* compile must be false"):
        check_tensor_parallel(config, settings, team.model_copy(update={"compile": True}))


def test_each_worker_of_a_divided_network_has_as_many_experts() -> None:
    settings, team = pretrain(), Placement(workers=4, tensor_parallel=4)
    config = ModelSettings(width=64, heads=4).config(300, settings.context)
    experts = ExpertConfig(routed=8, active=2, width=32)
    check_tensor_parallel(replace(config, experts=experts), settings, team)
    with pytest.raises(BadInput, match=r"model\.experts\.routed is 6: each worker needs as many"):
        check_tensor_parallel(replace(config, experts=replace(experts, routed=6)), settings, team)


@pytest.mark.parametrize(
    ("placement", "told"),
    [
        ({"zero_stage": 3}, "zero_stage is 3: it must be 0, 1 or 2; or set"),
        ({"context_parallel": 2}, "context_parallel is 2"),
        ({"least_workers": 2}, "least_workers is 2"),
    ],
)
def test_what_does_not_go_with_divided_networks_is_refused(
    placement: dict[str, object], told: str
) -> None:
    with pytest.raises(ValueError, match=f"tensor_parallel is 2, and {told}"):
        Placement.model_validate({"workers": 4, "tensor_parallel": 2} | placement)


def test_workers_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(ValueError, match="tensor_parallel is 2, which does not divide the 3"):
        Placement(workers=3, tensor_parallel=2)
    with pytest.raises(ValueError, match="context_parallel is 2, which does not divide the 3"):
        Placement(workers=3, context_parallel=2)
    with pytest.raises(ValueError, match="least_workers is 3, workers only 2"):
        Placement(workers=2, least_workers=3)


def test_the_loss_scale_follows_from_the_steps_that_were_made() -> None:
    rows = [{"grad_norm": norm} for norm in (None, None, *[1.0] * (WINDOW - 1))]
    scale = LossScale("fp16", rows)
    assert (scale.value, scale.skipped) == (FIRST / 4, 2)
    scale.update(overflow=False)
    assert scale.value == FIRST / 2
    for _ in range(60):
        scale.update(overflow=True)
    assert scale.value == LEAST and not scale.lowers
    assert LossScale("bf16", rows).value == 1


@pytest.mark.parametrize(
    ("precision", "autocast"),
    [("fp32", (False, "bfloat16")), ("bf16", (True, "bfloat16")), ("fp16", (True, "float16"))],
)
def test_half_precision_is_autocast(precision: str, autocast: tuple[bool, str]) -> None:
    config = deepspeed_config(
        workers=2,
        micro_batch=4,
        accumulation=3,
        precision=precision,
        zero_stage=2,
        offload=None,
        on_gpu=False,
        clip=1.0,
    )
    assert tuple(config["torch_autocast"].values()) == autocast
    assert config["train_batch_size"] == 24
    assert "fp16" not in config and "bf16" not in config


def test_bf16_weights_are_refused_without_shards_that_have_an_fp32_copy() -> None:
    settings = OptimizerSettings()
    for stage in (0, 1):
        with pytest.raises(BadInput, match=r"zero_stage is \d: .* set placement\.zero_stage to 2"):
            check_sharding(settings, "bf16_weights", stage)
    for stage in (2, 3):
        check_sharding(settings, "bf16_weights", stage)
