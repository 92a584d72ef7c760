"""Dropout of a network that is built already."""

from dataclasses import replace

from torch import nn

from model.blocks import Residual
from model.config import ModelConfig


def set_dropout(module: nn.Module, share: float) -> None:
    """Let all layers of a network drop this share, in training, whatever its config said."""
    for part in module.modules():
        if isinstance(config := getattr(part, "config", None), ModelConfig):
            setattr(part, "config", replace(config, dropout=share))  # noqa: B010
        if isinstance(part, Residual):
            part.dropout = share
