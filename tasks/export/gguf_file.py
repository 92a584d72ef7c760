"""A model as one GGUF file, which llama.cpp and what is built on it load.

    headrace export instruct --to model.gguf --format gguf --type q8_0

Tensors go under the names that the `gguf` package has for those of Transformers. As llama.cpp's own
converter has it, vectors stay in fp32 whatever the type; and q8_0 keeps a matrix in fp16 whose rows
are no multiple of its blocks of 32.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from cluster.errors import BadInput, MissingExtra
from model import hub, hub_weights
from model.config import ModelConfig
from model.config_records import Rope
from model.positions import rope_frequencies
from model.transformer import Transformer
from tasks.export.gguf_shape import Architecture, architecture, describe
from tasks.export.gguf_tokenizer import write_tokenizer

if TYPE_CHECKING:
    from gguf import GGUFWriter
    from gguf.constants import GGMLQuantizationType

    from model.generation import Network
    from tasks.tokens.encoder import Encoder

FILE_TYPES = {"f32": "ALL_F32", "bf16": "MOSTLY_BF16", "f16": "MOSTLY_F16", "q8_0": "MOSTLY_Q8_0"}
"""By what a user calls a type, what the format calls a file of it."""
HALF_RANGE = 65504.0


def write_gguf(
    network: "Network", encoder: "Encoder", source: Path, to: Path, type_: str, name: str
) -> str:
    """Write the file `to` from a network and the tokenizer of its folder `source`, and call the
    model `name`. Gives the architecture's name.

    Raises BadInput for a network or tokenizer that llama.cpp has not, and values too large for
    fp16; MissingExtra without the package.
    """
    gguf = _package()
    if network.headless:
        raise BadInput(
            "a GGUF file has no place for the head of a task; --format hf has, with the network"
        )
    model_type = hub.read_config(source)["model_type"]
    arch = architecture(model_type, network.config)
    assert isinstance(network, Transformer)
    writer = gguf.GGUFWriter(to, arch.name)
    try:
        writer.add_type(gguf.GGUFType.MODEL)
        writer.add_name(name)
        writer.add_file_type(gguf.LlamaFileType[FILE_TYPES[type_]])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        describe(writer, arch, network.config)
        write_tokenizer(writer, encoder, network.config.vocab_size)
        for key, tensor in tensors(network, model_type, arch):
            _add(writer, key, tensor.numpy(), gguf.GGMLQuantizationType[type_.upper()])
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    return arch.name


def _package() -> Any:
    try:
        import gguf
    except ImportError:
        raise MissingExtra(
            "--format gguf needs a package that is not installed: `uv pip install "
            "'headrace[gguf]'` (in a clone: `uv sync --extra gguf`)"
        ) from None
    return gguf


def tensors(
    network: Transformer, model_type: str, arch: Architecture
) -> Iterator[tuple[str, Tensor]]:
    """Every tensor in fp32 by its name in the file, matrices outputs x inputs."""
    import gguf

    config = network.config
    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[arch.name], config.depth)
    ours = {name: weight.detach().float() for name, weight in network.state_dict().items()}
    if config.rope_scaling and config.rope_scaling.kind == "llama3":
        yield "rope_freqs.weight", _slowed(config)
    for rename in hub_weights.renames(config, model_type):
        for theirs, part in replace(rename, transpose=False, offset=0.0).export(ours):
            name = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
            assert name is not None, f"gguf has no name for {theirs} of {arch.name}"
            if arch.neighbours and ".attn_q." in name:
                part = _beside(part, config.heads)
            if arch.neighbours and ".attn_k." in name:
                part = _beside(part, config.kv_heads)
            yield name, part


def _beside(weight: Tensor, heads: int) -> Tensor:
    """The rows of each head in another order: the two that rotary positions turn together, half a
    head apart in our layout, side by side.
    """
    rows = weight.unflatten(0, (heads, 2, -1))
    return rows.transpose(1, 2).reshape(weight.shape)


def _slowed(config: ModelConfig) -> Tensor:
    """What LLaMA 3.1 divides the frequency of each pair by."""
    place = torch.zeros(1, 1)
    plain = rope_frequencies(config, Rope(config.rope_theta), place)
    return plain / rope_frequencies(config, Rope(config.rope_theta, config.rope_scaling), place)


def _add(writer: "GGUFWriter", name: str, data: np.ndarray, kind: "GGMLQuantizationType") -> None:
    """Take a tensor up in a type, or in the one that the format has for it."""
    from gguf import GGMLQuantizationType as Kind
    from gguf.constants import GGML_QUANT_SIZES
    from gguf.quants import quantize

    if data.ndim == 1 or name.startswith("position_embd"):
        kind = Kind.F32
    if kind == Kind.Q8_0 and data.shape[-1] % GGML_QUANT_SIZES[kind][0]:
        kind = Kind.F16
    largest = float(np.abs(data).max(initial=0))
    if kind == Kind.F16 and largest > HALF_RANGE:
        raise BadInput(f"{name} holds {largest:.3g}, and fp16 ends at 65504; take --type bf16")
    writer.add_tensor(name, quantize(data, kind), raw_dtype=kind)
