"""Published shapes by name. A preset is a `ModelConfig`: build it, count it, or change it.

    preset("gpt2-xl")
    replace(preset("llama-3.1-8b"), depth=4)
    replace(preset("deepseek-v3"), multi_token=1)    # with the module that its training adds

Names are those of the hub in lower case. Each family is one function from the sizes that differ to
a config, with its paper; the details that papers leave out are those of the released checkpoints.
Dropout is a choice of the training and 0 here.
"""

from model.config import ModelConfig
from model.presets.decoders import DECODERS
from model.presets.encoder_decoders import ENCODER_DECODERS
from model.presets.encoders import ENCODERS

PRESETS: dict[str, ModelConfig] = {**ENCODER_DECODERS, **ENCODERS, **DECODERS}


def preset(name: str) -> ModelConfig:
    """The config of a published model; `ValueError` with the known names for any other."""
    if name not in PRESETS:
        raise ValueError(f"model.preset is {name!r}; it must be one of {', '.join(PRESETS)}")
    return PRESETS[name]
