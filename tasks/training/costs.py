"""What a training's networks compute for one token."""

from model.config import ModelConfig
from model.flops import flops_per_token
from model.objectives.generator import detection_flops
from tasks.training.settings import DETECTION, ObjectiveSettings


def training_flops(config: ModelConfig, settings: ObjectiveSettings) -> float:
    """Forward and backward FLOPs for one training token, those of a generator included."""
    if settings.objective == DETECTION:
        return detection_flops(config, settings.context, settings.generator)
    return flops_per_token(config, settings.context)
