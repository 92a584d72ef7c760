"""The tensors of a model file: ours under the names and layouts of Transformers.

`renames(config, model_type)` lists every tensor of ours once, with what it is called in the other's
file (`model.hub_names`) and how it lies there.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from model.config import ModelConfig
from model.encoder_decoder import build
from model.hub_config import OWN
from model.hub_names import names_of
from model.hub_table import Names


@dataclass(frozen=True)
class Rename:
    """One tensor of ours and what it is in the other's file.

    There it may be cut by `rows`, one piece a name (experts first become the rows of one matrix);
    its rows may come in another `order`; it may be transposed (GPT-2 keeps matrices as inputs x
    outputs), or less `offset` (Gemma adds 1 to its gains when it uses them). Each piece may have a
    `layout` of its own (XLNet keeps heads apart).
    """

    ours: str
    theirs: tuple[str, ...]
    shape: torch.Size
    rows: tuple[int, ...]
    order: Tensor | None = None
    transpose: bool = False
    offset: float = 0.0
    layout: tuple[int, ...] | None = None

    def export(self, ours: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Their names and tensors."""
        weight = ours[self.ours]
        weight = weight.flatten(0, 1) if sum(self.rows) > len(weight) else weight
        weight = weight if self.order is None else weight[self.order]
        weight = weight - self.offset if self.offset else weight
        for name, part in zip(self.theirs, weight.split(self.rows), strict=True):
            part = part.T if self.transpose else part
            yield name, part.reshape(self.layout or part.shape).contiguous()

    def restore(self, theirs: dict[str, Tensor]) -> Tensor:
        """Our tensor."""
        parts = (theirs[name] for name in self.theirs)
        weight = torch.cat([part.flatten(1).T if self.transpose else part for part in parts])
        weight = weight + self.offset if self.offset else weight
        weight = weight if self.order is None else weight[self.order.argsort()]
        return weight.reshape(self.shape).contiguous()


def renames(config: ModelConfig, model_type: str) -> Iterator[Rename]:
    """Every tensor of a network of this shape, as Transformers' `model_type` has it."""
    with torch.device("meta"):
        tensors = build(config).state_dict()
    if model_type == OWN:
        for name, tensor in tensors.items():
            yield Rename(name, (name,), tensor.shape, (len(tensor),))
        return
    names = names_of(config, model_type)
    for name, tensor in tensors.items():
        theirs = _theirs(name, names)
        if tensor.ndim == 3:
            theirs = tuple(t.replace("#", str(i)) for i in range(len(tensor)) for t in theirs)
        yield Rename(
            name,
            theirs,
            tensor.shape,
            _rows(config, tensor, len(theirs)),
            order=_order(config, model_type, name),
            transpose=tensor.ndim == 2 and name.endswith(TRANSPOSED.get(model_type, ())),
            offset=1.0 if model_type in OFFSET and "norm" in name else 0.0,
            layout=_by_heads(config, name, tensor) if model_type == "xlnet" else None,
        )


def tied_head(config: ModelConfig, model_type: str) -> dict[str, str]:
    """The name of a tied head, with that of the embedding that it is; nothing if it is not."""
    if model_type == OWN or not config.tie_embeddings:
        return {}
    ((head,), (embedding,)) = (
        _theirs(f"{module}.weight", names_of(config, model_type))
        for module in ("head", "embedding")
    )
    return {head: embedding}


GPT2_MATRICES = ("qkv.weight", "out.weight", "up.weight", "down.weight")
TRANSPOSED = {
    "gpt2": GPT2_MATRICES,
    "openai-gpt": GPT2_MATRICES,
    "xlnet": ("qkv.weight", "distance.weight"),
}
"""Matrices that are inputs x outputs, by model."""
OFFSET = {"gemma", "gemma2", "gemma3_text"}
"""Models whose gains are less 1."""


def _theirs(name: str, names: Names) -> tuple[str, ...]:
    """Their names of a tensor, in which `#` stands for the number of an expert."""
    layer = re.search(r"blocks\.(\d+)\.", name)
    pattern = name.replace(layer[0], "blocks.*.") if layer else name
    module, _, kind = pattern.rpartition(".")
    whole = f"={pattern}" in names
    found = names[f"={pattern}" if whole else module]
    return tuple(
        (theirs if whole else f"{theirs}.{kind}").replace("*", layer[1] if layer else "*")
        for theirs in ((found,) if isinstance(found, str) else found)
    )


def _rows(config: ModelConfig, tensor: Tensor, pieces: int) -> tuple[int, ...]:
    """How many rows each of theirs has: equal pieces, but queries, keys and values by heads."""
    if tensor.ndim < 3 and pieces == 3:
        keys = config.kv_heads * config.head_dim
        return config.heads * config.head_dim, keys, keys
    rows = tensor.shape[0] * (tensor.shape[1] if tensor.ndim == 3 else 1)
    return (rows // pieces,) * pieces


def _by_heads(config: ModelConfig, name: str, tensor: Tensor) -> tuple[int, ...] | None:
    """The shape of what XLNet has of a tensor: in attention by heads, matrices width x heads."""
    if name == "query_embedding":
        return 1, 1, config.width
    if ".attention.inner." not in name:
        return None
    heads = config.heads, config.head_dim
    if tensor.ndim == 1:
        return heads
    return (config.segments if "segment" in name else config.width, *heads)


def _order(config: ModelConfig, model_type: str, name: str) -> Tensor | None:
    """Which row of ours each of theirs is; None when they lie alike."""
    for (model, module), order in ORDERS.items():
        if model == model_type and f".{module}." in name:
            return torch.tensor(order(config))
    return None


def _falcon_qkv(config: ModelConfig) -> list[int]:
    """Falcon has the queries of a group, their key and their value side by side."""
    queries, keys, values = (
        list(range(config.heads)),
        list(range(config.heads, config.heads + config.kv_heads)),
        list(range(config.heads + config.kv_heads, config.heads + 2 * config.kv_heads)),
    )
    group = config.heads // config.kv_heads
    heads = [
        head
        for k in range(config.kv_heads)
        for head in (*queries[k * group : (k + 1) * group], keys[k], values[k])
    ]
    return [head * config.head_dim + i for head in heads for i in range(config.head_dim)]


def _deepseek_queries(config: ModelConfig) -> list[int]:
    """DeepSeek turns neighbouring numbers, we those half a head apart."""
    plain = config.head_dim - config.rope_dim
    head = [*range(plain), *(plain + i for i in _neighbours(config.rope_dim))]
    return [h * config.head_dim + i for h in range(config.heads) for i in head]


def _deepseek_compress(config: ModelConfig) -> list[int]:
    assert config.latent is not None
    rank = config.latent.kv_rank
    return [*range(rank), *(rank + i for i in _neighbours(config.rope_dim))]


def _neighbours(size: int) -> list[int]:
    return [i for first in range(size // 2) for i in (first, first + size // 2)]


ORDERS: dict[tuple[str, str], Callable[[ModelConfig], list[int]]] = {
    ("falcon", "qkv"): _falcon_qkv,
    ("gpt_neox", "qkv"): _falcon_qkv,
    ("deepseek_v3", "query"): _deepseek_queries,
    ("deepseek_v3", "kv_compress"): _deepseek_compress,
}
