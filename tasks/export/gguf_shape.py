"""What a GGUF file says of a network's shape: the architectures of llama.cpp that ours are.

    arch = architecture("llama", config)        # or BadInput with the field that stands in the way
    describe(writer, arch, config)

The keys are those of the format's specification (ggml, docs/gguf.md); what each architecture does
that no key says is in llama.cpp's `src/models`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cluster.errors import BadInput
from model.config import Activation, Bias, ModelConfig
from model.config_records import RopeScaling

if TYPE_CHECKING:
    from gguf import GGUFWriter


@dataclass(frozen=True)
class Architecture:
    """One of llama.cpp's, and what of a shape is fixed in it."""

    name: str
    activation: Activation = "swiglu"
    biases: tuple[Bias, ...] = ("none",)
    neighbours: bool = False
    """Whether rotary positions turn neighbouring numbers of a head, not those half a head apart."""
    windowed: tuple[bool, ...] | None = None
    """Which layers keep to a window, over and over; None is none."""
    own_heads: bool = True
    """Whether heads may be wider or narrower than the width divided by their number."""
    wide: int | None = None
    """The depth at which scores are divided by sqrt(width / heads), and not by sqrt(head_dim)."""


ARCHITECTURES = {
    "llama": Architecture(
        "llama", biases=("none", "attention", "feedforward", "all"), neighbours=True
    ),
    "mistral": Architecture("llama", neighbours=True),
    "qwen2": Architecture("qwen2", biases=("qkv",), own_heads=False),
    "qwen3": Architecture("qwen3"),
    "gemma": Architecture("gemma", "geglu"),
    "gemma2": Architecture("gemma2", "geglu", windowed=(True, False), wide=46),
    "gemma3_text": Architecture("gemma3", "geglu", windowed=(True,) * 5 + (False,), wide=62),
    "gpt2": Architecture("gpt2", "gelu_tanh", ("all",), own_heads=False),
}
"""By the `model_type` of Transformers."""


def architecture(model_type: str, config: ModelConfig) -> Architecture:
    """The architecture that a network is. Raises BadInput for one that is none of them, or that
    they would compute otherwise, naming the field.
    """
    found = ARCHITECTURES.get(model_type)
    if found is None:
        raise BadInput(
            f"a model of type {model_type} is not written as GGUF here; {', '.join(ARCHITECTURES)} "
            "are. Take --format hf"
        )
    for holds, name, allowed in _rules(found, config):
        if not holds:
            raise BadInput(
                f"model.{name} is {getattr(config, name)!r}; llama.cpp's {found.name} has only "
                f"{allowed}. Take --format hf"
            )
    return found


def _rules(arch: Architecture, config: ModelConfig) -> Iterator[tuple[bool, str, str]]:
    """What must hold, the field at fault when it does not, and what the architecture has."""
    yield config.activation == arch.activation, "activation", arch.activation
    yield config.bias in arch.biases, "bias", " or ".join(arch.biases)
    divided = config.width // config.heads
    yield arch.own_heads or config.head_dim == divided, "head_dim", f"{divided}, width / heads"
    gemma = arch.name.startswith("gemma")
    yield config.tie_embeddings or not gemma, "tie_embeddings", "True"
    wide = config.depth == arch.wide
    scale = 1 / math.sqrt(divided if wide else config.head_dim)
    yield math.isclose(config.score_scale, scale), "attention_scale", f"{scale:.6g}"
    if arch.name == "gemma2":
        for name in ("attention_softcap", "logit_softcap"):
            yield getattr(config, name) is not None, name, "a number"
    windows = [config.layer_window(n) is not None for n in range(config.depth)]
    pattern = arch.windowed or (False,)
    asked = [pattern[n % len(pattern)] for n in range(config.depth)]
    free = config.window is None or config.window >= config.context
    layers = "a window as long as the context" if arch.windowed is None else f"in layers {pattern}"
    yield (free if arch.windowed is None else windows == asked), "window_layers", layers
    scaling = config.rope_scaling
    yield scaling is None or _sayable(arch, scaling), "rope_scaling", _scalings(arch)


def _sayable(arch: Architecture, scaling: RopeScaling) -> bool:
    """Whether the stretch of rotary positions is one that there are keys for."""
    if scaling.kind == "yarn":  # whose factor on cosines and sines llama.cpp computes itself
        return math.isclose(scaling.attention_factor, 0.1 * math.log(scaling.factor) + 1)
    if scaling.attention_factor != 1:
        return False
    return scaling.kind == "linear" or (scaling.kind == "llama3" and arch.name == "llama")


def _scalings(arch: Architecture) -> str:
    llama = ", llama3" if arch.name == "llama" else ""
    return f"linear{llama}, and yarn with the attention factor 0.1 ln(factor) + 1"


def describe(writer: "GGUFWriter", arch: Architecture, config: ModelConfig) -> None:
    """Write the keys of a shape."""
    writer.add_context_length(config.context)
    writer.add_embedding_length(config.width)
    writer.add_block_count(config.depth)
    writer.add_feed_forward_length(config.ffn_width)
    writer.add_head_count(config.heads)
    writer.add_head_count_kv(config.kv_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_vocab_size(config.vocab_size)
    if config.norm == "rms":
        writer.add_layer_norm_rms_eps(config.norm_epsilon)
    else:
        writer.add_layer_norm_eps(config.norm_epsilon)
    if config.positions == "rope":
        _describe_rope(writer, config)
    if arch.windowed and config.window:
        writer.add_sliding_window(config.window)
    if config.attention_softcap is not None:
        writer.add_attn_logit_softcapping(config.attention_softcap)
    if config.logit_softcap is not None:
        writer.add_final_logit_softcapping(config.logit_softcap)


def _describe_rope(writer: "GGUFWriter", config: ModelConfig) -> None:
    from gguf import RopeScalingType

    writer.add_rope_dimension_count(config.rope_dim)
    writer.add_rope_freq_base(config.rope_theta)
    if config.window_rope_theta is not None:
        writer.add_rope_freq_base_swa(config.window_rope_theta)
    scaling = config.rope_scaling
    if scaling is None or scaling.kind == "llama3":  # the latter is a tensor
        return
    yarn = scaling.kind == "yarn"
    writer.add_rope_scaling_type(RopeScalingType.YARN if yarn else RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(scaling.factor)
    if yarn:
        writer.add_rope_scaling_orig_ctx_len(scaling.original_context)
        writer.add_rope_scaling_yarn_beta_fast(scaling.high_frequency_factor)
        writer.add_rope_scaling_yarn_beta_slow(scaling.low_frequency_factor)
