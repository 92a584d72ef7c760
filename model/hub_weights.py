"""The tensors of a model file: our parameters under the names and layouts of Transformers.

`renames(config, model_type)` lists every parameter once, with what it is called and how it lies in
the other's file: there queries, keys and values are three matrices, here they are one.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from model.config import ModelConfig
from model.hub_config import OWN
from model.transformer import Transformer


@dataclass(frozen=True)
class Rename:
    """One parameter of ours and what it is in the other's file: there it may be split by `rows`,
    transposed (GPT-2 keeps matrices as inputs x outputs), or less `offset` (Gemma adds 1 to its
    gains when it uses them).
    """

    ours: str
    theirs: tuple[str, ...]
    rows: tuple[int, ...] = ()
    transpose: bool = False
    offset: float = 0.0

    def export(self, ours: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Their names and tensors."""
        weight = ours[self.ours]
        weight = weight.T if self.transpose else weight
        parts = weight.split(self.rows) if self.rows else (weight,)
        for name, part in zip(self.theirs, parts, strict=True):
            yield name, (part - self.offset).contiguous()

    def restore(self, theirs: dict[str, Tensor]) -> Tensor:
        """Our tensor."""
        weight = torch.cat([theirs[name] for name in self.theirs]) + self.offset
        return weight.T.contiguous() if self.transpose else weight


def renames(config: ModelConfig, model_type: str) -> Iterator[Rename]:
    """Every parameter of a network of this shape, as Transformers' `model_type` has it."""
    if model_type == OWN:
        with torch.device("meta"):
            names = Transformer(config).state_dict()
        yield from (Rename(name, (name,)) for name in names)
        return
    if not config.tie_embeddings:
        yield Rename("head.weight", ("lm_head.weight",))
    if model_type == "gpt2":
        yield from _gpt2_renames(config)
    else:
        yield from _llama_renames(config, gemma=model_type == "gemma2")


def _gpt2_renames(config: ModelConfig) -> Iterator[Rename]:
    yield Rename("embedding.weight", ("transformer.wte.weight",))
    yield Rename("position_embedding.weight", ("transformer.wpe.weight",))
    modules = {
        "attention.norm": "ln_1",
        "attention.inner.qkv": "attn.c_attn",
        "attention.inner.out": "attn.c_proj",
        "feedforward.norm": "ln_2",
        "feedforward.inner.up": "mlp.c_fc",
        "feedforward.inner.down": "mlp.c_proj",
    }
    for layer in range(config.depth):
        for ours, theirs in modules.items():
            here, there = f"blocks.{layer}.{ours}", f"transformer.h.{layer}.{theirs}"
            yield Rename(f"{here}.weight", (f"{there}.weight",), transpose="inner" in ours)
            yield Rename(f"{here}.bias", (f"{there}.bias",))
    for kind in ("weight", "bias"):
        yield Rename(f"norm.{kind}", (f"transformer.ln_f.{kind}",))


def _llama_renames(config: ModelConfig, gemma: bool) -> Iterator[Rename]:
    offset = 1.0 if gemma else 0.0
    keys = config.kv_heads * config.head_dim
    qkv = (config.heads * config.head_dim, keys, keys)
    yield Rename("embedding.weight", ("model.embed_tokens.weight",))
    norms = {"attention.norm": "input_layernorm", "feedforward.norm": "post_attention_layernorm"}
    if gemma:
        norms = {
            "attention.norm": "input_layernorm",
            "attention.norm_out": "post_attention_layernorm",
            "feedforward.norm": "pre_feedforward_layernorm",
            "feedforward.norm_out": "post_feedforward_layernorm",
        }
    if config.qk_norm:
        norms |= {f"attention.inner.{x}_norm": f"self_attn.{x}_norm" for x in "qk"}
    linears: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
        "attention.inner.qkv": (tuple(f"self_attn.{x}_proj" for x in "qkv"), qkv),
        "attention.inner.out": (("self_attn.o_proj",), ()),
        "feedforward.inner.up": (("mlp.gate_proj", "mlp.up_proj"), (config.ffn_width,) * 2),
        "feedforward.inner.down": (("mlp.down_proj",), ()),
    }
    for layer in range(config.depth):
        here, there = f"blocks.{layer}", f"model.layers.{layer}"
        for ours, theirs in norms.items():
            yield Rename(f"{here}.{ours}.weight", (f"{there}.{theirs}.weight",), offset=offset)
        for ours, (names, rows) in linears.items():
            biased = config.bias == "all" or (config.bias == "qkv" and ours.endswith("qkv"))
            for kind in ("weight", "bias") if biased else ("weight",):
                full = tuple(f"{there}.{name}.{kind}" for name in names)
                yield Rename(f"{here}.{ours}.{kind}", full, rows)
    yield Rename("norm.weight", ("model.norm.weight",), offset=offset)
