"""What a training's networks compute for one token."""

from model.config import ModelConfig
from model.flops import flops_per_token
from model.objectives.generator import detection_flops
from tasks.training.model_settings import DETECTION, ModelSettings
from tasks.training.settings import ObjectiveSettings, PretrainSettings


def training_flops(config: ModelConfig, settings: ObjectiveSettings) -> float:
    """Forward and backward FLOPs for one training token, those of a generator included."""
    if settings.objective == DETECTION:
        return detection_flops(config, settings.context, settings.generator)
    return flops_per_token(config, settings.context)


def paid(training: PretrainSettings, model: ModelSettings, vocab_size: int) -> PretrainSettings:
    """With as many tokens as `flops` pay for on this network, in whole batches; one at least.
    Raises BadInput for a network that cannot be built.
    """
    assert training.flops is not None
    each = training_flops(model.config(vocab_size, training.context), training)
    batches = max(1, int(training.flops / (each * training.batch_tokens)))
    return training.model_copy(update={"tokens": batches * training.batch_tokens})
