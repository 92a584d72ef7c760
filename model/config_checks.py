"""What must hold of the parts of a network's shape that are records of their own."""

from typing import Any

from model.config_records import LatentConfig, RecurrentConfig, require

Shape = Any
"""A `ModelConfig`, whose module needs this one."""
PLAIN: dict[str, Any] = {
    "norm_placement": "post",
    "positions": "none",
    "experts": None,
    "latent": None,
    "window": None,
    "embedding_width": None,
    "shared_layers": False,
    "multi_token": 0,
    "head_transform": False,
    "mup_base_width": None,
}
"""Fields that are of attention: a recurrent network must leave them at these values."""


def check_recurrent(config: Shape, recurrent: RecurrentConfig) -> None:
    """Raise `ValueError` for a recurrent network that cannot be built."""
    both, pair = config.family != "decoder", config.family == "encoder_decoder"
    even = f"even: an {config.family} reads in two directions"
    require(not both or config.width % 2 == 0, "width", config.width, even)
    looks, only = recurrent.attention, "None unless family is encoder_decoder"
    require(pair or looks is None, "recurrent.attention", looks, only)
    cut, only = recurrent.bptt, "None with family encoder_decoder"
    require(not pair or cut is None, "recurrent.bptt", cut, only)
    alone = config.family == "encoder" or not recurrent.apart
    require(alone, "recurrent.apart", True, "False unless family is encoder")
    for name, value in PLAIN.items():
        found = getattr(config, name)
        require(found == value, name, found, f"{value} in a recurrent network")


def check_latent(config: Shape, latent: LatentConfig) -> None:
    """Raise `ValueError` for latent attention that does not fit the rest."""
    dims = f"even and below the {config.head_dim} of head_dim"
    plain = latent.rope_dim % 2 == 0 and latent.rope_dim < config.head_dim
    require(plain, "latent.rope_dim", latent.rope_dim, dims)
    one_each = f"{config.heads}, all heads: latent attention shares a latent, not heads"
    require(config.kv_heads == config.heads, "kv_heads", config.kv_heads, one_each)
    require(config.positions == "rope", "positions", config.positions, "rope with model.latent")
    require(config.qk_norm == "none", "qk_norm", config.qk_norm, "none with model.latent")
    require(config.rotary_dim is None, "rotary_dim", config.rotary_dim, "None with model.latent")
    require(config.bias == "none", "bias", config.bias, "none with model.latent")
