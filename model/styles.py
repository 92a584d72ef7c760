"""The families of the dial: what sets the shapes of BERT and T5 apart from LLaMA's."""

from typing import Any

STYLES: dict[str, dict[str, Any]] = {
    "decoder": {"tie_embeddings": False},
    "encoder": {
        "family": "encoder",
        "norm": "layer",
        "norm_placement": "post",
        "norm_epsilon": 1e-12,
        "embedding_norm": True,
        "positions": "learned",
        "segments": 2,
        "activation": "gelu",
        "bias": "all",
        "head_transform": True,
        "tie_embeddings": False,
        "pooler": True,
    },
    "encoder_decoder": {
        "family": "encoder_decoder",
        "norm_epsilon": 1e-6,
        "positions": "relative",
        "activation": "geglu",
        "attention_scale": 1.0,
        "tie_embeddings": False,
    },
}
"""Where the dial's families differ from LLaMA."""
RECURRENT: dict[str, Any] = {
    "norm_placement": "post",  # no norm behind the last layer
    "positions": "none",
    "tie_embeddings": False,
}
"""What sets recurrent networks apart, whatever their family."""
