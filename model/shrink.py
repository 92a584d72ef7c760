"""A smaller network made of some layers of a larger one, to be its student."""

import re
from dataclasses import replace
from typing import Any

from model.config import ModelConfig
from model.transformer import Transformer

LAYER = re.compile(r"^blocks\.(\d+)\.")


def shrunk(network: Transformer, layers: int) -> Transformer:
    """A network of so many layers, evenly spread from the first on, as DistilBERT takes one out of
    two (Sanh et al. 2019, section 3); all other weights are those of the larger one.

    Raises ValueError for more layers than it has, and where their kinds do not allow it.
    """
    config = network.config
    if not 1 <= layers <= config.depth:
        raise ValueError(f"layers is {layers}; the model has {config.depth}")
    chosen = [number * config.depth // layers for number in range(layers)]
    smaller = Transformer(_config(config, chosen))
    place = {old: new for new, old in enumerate(chosen)}
    kept = {}
    for name, weight in network.state_dict().items():
        found = LAYER.match(name)
        if found is None:
            kept[name] = weight
        elif (new := place.get(int(found[1]))) is not None:
            kept[f"blocks.{new}.{name[found.end() :]}"] = weight
    own = smaller.state_dict()
    smaller.load_state_dict({name: kept.get(name, weight) for name, weight in own.items()})
    smaller.usable, smaller.rate_shares = network.usable, network.rate_shares
    return smaller


def _config(config: ModelConfig, chosen: list[int]) -> ModelConfig:
    """The shape of the chosen layers. Raises ValueError where one would change its kind: shapes say
    kinds by patterns that repeat, or by intervals.
    """
    patterns: dict[str, Any] = {
        name: tuple(pattern[layer % len(pattern)] for layer in chosen)
        for name in ("rope_layers", "window_layers")
        if len(pattern := getattr(config, name)) > 1
    }
    smaller = replace(config, depth=len(chosen), multi_token=0, **patterns)
    for new, old in enumerate(chosen):
        kinds = (config.layer_experts(old), config.layer_window(old), config.layer_rope(old))
        if kinds != (
            smaller.layer_experts(new),
            smaller.layer_window(new),
            smaller.layer_rope(new),
        ):
            raise ValueError(
                f"layer {old} of the model cannot become layer {new} of one with {len(chosen)}: "
                "they differ in kind; take another number of layers"
            )
    return smaller
