"""Whether a network, its objective, optimizer, shards and exams belong together."""

from cluster.errors import BadInput
from model.objectives.catalog import OBJECTIVES, learned_by
from model.objectives.lengths import window
from tasks.training.exams import ExamTimes
from tasks.training.model_settings import APART, ModelSettings
from tasks.training.settings import (
    UNSHARDED,
    WITHOUT_HEAD,
    ObjectiveSettings,
    OptimizerSettings,
    Precision,
)

ATTENDING = {
    "decoder": [name for name in learned_by("decoder") if name != "causal"],
    "encoder": ["replaced_token_detection"],
}
"""By family, the objectives that take attention: a recurrent network learns none of them."""


def check_rates(model: ModelSettings, optimizer: OptimizerSettings) -> None:
    """Raise BadInput when muP and the optimizer say different base widths."""
    if model.mup and optimizer.base_width not in (None, model.mup_base_width):
        raise BadInput(
            f"pretrain.optimizer.base_width is {optimizer.base_width} and model.mup_base_width "
            f"{model.mup_base_width}: rates go by one of them; set the first to null"
        )


def check_sharding(settings: OptimizerSettings, precision: Precision, zero_stage: int) -> None:
    """Raise BadInput for an optimizer whose state ZeRO 1 to 3 cannot cut into flat slices, and for
    bf16 weights where DeepSpeed has no fp32 copy of their shards, or one of another kind.
    """
    if precision == "bf16_weights" and zero_stage < 2:
        raise BadInput(
            f"precision is bf16_weights and placement.zero_stage is {zero_stage}: DeepSpeed keeps "
            "no fp32 copy without shards, and with zero_stage 1 it sums gradients in an optimizer "
            "of another kind; set placement.zero_stage to 2 or 3, or precision to bf16"
        )
    if zero_stage and settings.name in UNSHARDED:
        raise BadInput(
            f"optimizer.name is {settings.name}, which DeepSpeed cannot shard, and "
            f"placement.zero_stage is {zero_stage}; use zero_stage 0, or another optimizer"
        )


def check_objective(model: ModelSettings, training: ObjectiveSettings) -> None:
    """Raise BadInput for an objective that the network cannot learn, naming what it can."""
    family, objective = model.family, training.objective
    if objective not in learned_by(family):
        others = " or ".join(OBJECTIVES[objective].families)
        raise BadInput(
            f"pretrain.objective is {objective}, which model.family {others} learns, and "
            f"model.family is {family}, which learns {', '.join(learned_by(family))}"
        )
    _check_recurrent(model, objective)
    try:
        window(objective, family, training.context, training.rates)
    except ValueError as error:
        raise BadInput(f"pretrain.context: {error}") from error
    config = model.config(1, training.context)
    if config.detector and objective not in WITHOUT_HEAD:
        raise BadInput(
            f"pretrain.objective is {objective}, which takes an LM head; this model has a detector "
            f"in its place, and learns {' or '.join(WITHOUT_HEAD)}"
        )
    by_layout = ("alibi", "relative", "disentangled")
    if objective == "permuted" and (config.window or config.positions in by_layout):
        raise BadInput(
            "pretrain.objective is permuted, which lays tokens out in another order than that of "
            f"the text; positions {config.positions} and window {config.window} go by the layout. "
            "Take a model with positions rope, learned, sinusoidal or relative_sinusoidal and no "
            "window"
        )


def _check_recurrent(model: ModelSettings, objective: str) -> None:
    """Raise BadInput for an objective that needs attention, or directions that are (not) apart."""
    recurrent, apart = model.recurrent, bool(model.recurrent and model.recurrent.apart)
    if apart != (objective == APART):
        raise BadInput(
            f"pretrain.objective is {objective} and model.recurrent.apart {str(apart).lower()}: an "
            f"encoder whose directions are apart learns {APART}, and no other network does"
        )
    if recurrent and objective in ATTENDING.get(model.family, ()):
        raise BadInput(
            f"pretrain.objective is {objective}, which takes attention; a recurrent {model.family} "
            f"learns {model.objective}"
        )


def check_exams(exams: ExamTimes | None, family: str) -> None:
    """Raise BadInput for exams of a model that answers nothing."""
    if exams and family == "encoder":
        raise BadInput(
            "pretrain.exams: model.family is encoder, which neither writes nor chooses an answer; "
            "they are for decoder and encoder_decoder"
        )
