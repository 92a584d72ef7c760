"""Every setting of a training changes the training: job, engine, network, batches or rates.

Each leaf of the settings is changed alone, and the stage is followed to the point where DeepSpeed
would begin. What only identities and logs know of is not looked at, so a setting that is dropped
on its way makes no difference and fails.
"""

import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic.fields import FieldInfo

from cluster.placement import Placement
from cluster.settings import Settings, keys
from cluster.stage import build
from model.stack import Stack
from model.tensor_parallel import Team
from tasks.training import engine, pretraining
from tasks.training.job import TrainJob
from tasks.training.model_settings import ModelSettings
from tasks.training.schedule import factor
from tasks.training.settings import PretrainSettings
from tasks.training.stage import pretrain
from tasks.training.tensor_parallel import ParallelLayout
from tests.training.test_objectives import Made

BASE: dict[str, Any] = {
    "pretrain.context": 16,
    "pretrain.tokens": 4_096,
    "pretrain.batch_tokens": 128,
    "model.depth": 2,
    "model.width": 48,
    "model.heads": 4,
}
MASKED = {"model.family": "encoder", "pretrain.objective": "masked"}
SPANS = {"model.family": "encoder_decoder", "pretrain.objective": "span_corruption"}
BESIDE: dict[str, dict[str, Any]] = {
    "pretrain.noise.rate": MASKED,
    "pretrain.noise.span": SPANS,
    "pretrain.noise.dynamic": MASKED,
    "pretrain.generator_size": {
        "model.family": "encoder",
        "pretrain.objective": "replaced_token_detection",
    },
    "pretrain.optimizer.clip": {"placement.zero_stage": 1},
    "pretrain.optimizer.momentum": {"pretrain.optimizer.name": "momentum"},
    "pretrain.optimizer.scales.positions": {"model.preset": "gpt2"},
    "model.family": {"pretrain.objective": "prefix"},
    "model.mup_base_width": {"model.mup": True},
    "model.recurrent": {"model.heads": None},
    "placement.offload": {"placement.zero_stage": 3},
}
"""What else must be so for a setting to matter."""
OTHER: dict[str, Any] = {
    "pretrain.objective": "prefix",
    "pretrain.context": 32,
    "pretrain.tokens": 8_192,
    "pretrain.batch_tokens": 256,
    "pretrain.batch_ramp": [{"tokens": 128, "batch_tokens": 64}],
    "pretrain.noise.rate": 0.4,
    "pretrain.noise.span": 1,
    "pretrain.optimizer.betas": (0.5, 0.6),
    "pretrain.optimizer.base_width": 12,
    "pretrain.optimizer.decayed": ["head"],
    "pretrain.optimizer.warmup_steps": 7,
    "model.preset": "gpt2",
    "model.family": "encoder_decoder",
    "model.depth": 3,
    "model.recurrent": {"cell": "gru"},
    "model.width": 96,
    "model.positions": "sinusoidal",
    "placement.micro_batch_tokens": 32,
}
"""Values for leaves whose own value, or constraints, do not lead to another one that is allowed."""
ELSEWHERE = {
    "pretrain.packing": "stage `packing`, whose index is the order of samples",
    "model.from": "argument `start` of the stage: tests/flows/test_adapt.py",
    "model.longer": "with `start`: the same",
    "pretrain.exams": "argument `exams` of the stage: tests/flows/test_exams_on_the_way.py",
    "pretrain.flops": "becomes tokens when a recipe is read: tests/flows/test_guide.py",
    "pretrain.mixture": "argument `mixture` of the stage: tests/flows/test_mixed_pretraining.py",
}
OF_THE_ENGINE = (
    "zero_stage",
    "offload",
    "activation_checkpointing",
    "compile",
    "micro_batch_tokens",
)
OF_THE_ENGINE += ("checkpoint_seconds",)


class Begun(Exception):
    """Training would begin now."""


def leaves(kind: type[Settings], prefix: str) -> Iterator[tuple[str, FieldInfo]]:
    """Every field that is no section, by dotted key."""
    for name, field in keys(kind).items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, Settings):
            yield from leaves(inner, f"{prefix}.{name}")
        else:
            yield f"{prefix}.{name}", field


def another(field: FieldInfo) -> Any:
    """A value of a field's type that is not its default."""
    value, kinds = field.default, [field.annotation]
    if type(None) in typing.get_args(field.annotation):
        kinds = [k for k in typing.get_args(field.annotation) if k is not type(None)]
    if typing.get_origin(kinds[0]) is typing.Literal:
        return next(v for v in typing.get_args(kinds[0]) if v != value)
    if kinds[0] is bool:
        return not value
    if kinds[0] is int:
        return 2 if value is None else value + 1
    assert kinds[0] is float, f"name another value of {field} in OTHER"
    return value / 2 if value else 0.5


def settings(values: dict[str, Any]) -> tuple[PretrainSettings, ModelSettings, Placement, int]:
    """Settings from dotted keys."""
    nested: dict[str, Any] = {"pretrain": {}, "model": {}, "placement": {}, "seed": 0}
    for key, value in values.items():
        *parents, last = key.split(".")
        section = nested
        for part in parents:
            section = section.setdefault(part, {})
        section[last] = value
    return (
        PretrainSettings.model_validate(nested["pretrain"]),
        ModelSettings.model_validate(nested["model"]),
        Placement.model_validate(nested["placement"]),
        nested["seed"],
    )


class Rig:
    """The stage, run up to its job, and the job, run up to DeepSpeed."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.made, self.jobs, self.engines = Made(folder), list[TrainJob](), list[Any]()
        patch.setattr(pretraining, "launch", self._launch)
        groups = types.SimpleNamespace(mpu=None)
        fake = types.SimpleNamespace(
            utils=types.SimpleNamespace(groups=groups), initialize=self._initialize
        )
        patch.setattr(engine, "load_deepspeed", lambda device: fake)
        self._known: dict[str, dict[str, Any]] = {}

    def _launch(self, job: TrainJob, placement: Placement) -> Path:
        self.jobs.append(job)
        raise Begun

    def _initialize(self, **given: Any) -> Any:
        self.engines.append(given)
        raise Begun

    def carried_out(self, values: dict[str, Any]) -> dict[str, Any]:
        """What some settings come to."""
        if repr(values) not in self._known:
            self._known[repr(values)] = self._carried_out(values)
        return self._known[repr(values)]

    def _carried_out(self, values: dict[str, Any]) -> dict[str, Any]:
        training, model, placement, seed = settings(values)
        made = self.made
        with pytest.raises(Begun):
            build(
                pretrain,
                made.store,
                force=True,
                placement=placement,
                shards=made.shards,
                tokenizer=made.tokenizer,
                settings=training,
                model=model,
                seed=seed,
            )
        job = self.jobs[-1]
        program, share = job.build(), job.share(1, job.batch_samples)
        with pytest.raises(Begun):
            engine.start_engine(job, program, placement, ParallelLayout(Team(), 0, 1), share)
        begun, module = self.engines[-1], program.module
        stack = next(m for m in module.modules() if isinstance(m, Stack))
        compiled = [m for m in stack.modules() if m._compiled_call_impl or "layers" in vars(m)]
        optimizer = begun["optimizer"]
        batches = [program.batch(first, 4) for first in (0, 5_000)]
        return {
            "steps": (job.steps, job.batch_samples, job.ramp, share, job.most_skipped),
            "kept": job.kept_steps,
            "job": (job.seed, job.precision, job.checkpoint_seconds, job.flops_per_token),
            "config": begun["config"],
            "network": module.network.config,
            "objective": (type(module).__name__, getattr(module, "z_loss", None)),
            "arranged": (stack.activation_checkpointing, len(compiled)),
            "optimizer": type(optimizer).__name__,
            "groups": [{**g, "params": len(g["params"])} for g in optimizer.param_groups],
            "rates": [factor(step, job.steps, job.optimizer) for step in range(1, job.steps + 1)],
            "batches": [{k: v.tolist() for k, v in batch.items()} for batch in batches],
        }


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with pytest.MonkeyPatch.context() as patch:
        yield Rig(tmp_path_factory.mktemp("store"), patch)


LEAVES = dict([*leaves(PretrainSettings, "pretrain"), *leaves(ModelSettings, "model")])
LEAVES |= {f"placement.{name}": Placement.model_fields[name] for name in OF_THE_ENGINE}


@pytest.mark.parametrize("key", [key for key in [*LEAVES, "seed"] if key not in ELSEWHERE])
def test_a_setting_that_is_changed_changes_what_is_trained(rig: Rig, key: str) -> None:
    before = BASE | BESIDE.get(key, {})
    value = 1 if key == "seed" else OTHER[key] if key in OTHER else another(LEAVES[key])
    one, other = rig.carried_out(before), rig.carried_out(before | {key: value})
    different = [part for part in one if repr(one[part]) != repr(other[part])]
    assert different, f"{key} makes no difference"


def test_what_is_tested_elsewhere_is_still_a_setting() -> None:
    assert ELSEWHERE.keys() <= LEAVES.keys()
