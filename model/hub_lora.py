"""Folders of adapters as PEFT has them: `adapter_config.json` and `adapter_model.safetensors`.

    add_lora(network, model_type, LoraShape(rank=8, alpha=16), ("query", "value"))
    save_adapter(folder, network, model_type, base)    # PEFT loads it onto Transformers' model
    load_adapter(folder, network, model_type)          # PEFT's or ours, onto ours

Names are those of the Transformers model that has the shape (`model.hub_weights`), as PEFT finds
its modules by them; a shape without counterpart has its own.
"""

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from model.hub_weights import TRANSPOSED, Rename, renames
from model.lora import LoraLinear, LoraShape, adapted
from model.transformer import LanguageModel

ADAPTER_CONFIG, ADAPTER = "adapter_config.json", "adapter_model.safetensors"
MatrixName = Literal["query", "key", "value", "out", "feedforward"]
MATRICES: tuple[MatrixName, ...] = get_args(MatrixName)
HOLDS: dict[str, tuple[MatrixName, ...]] = {
    "qkv": ("query", "key", "value"),
    "query": ("query",),
    "query_compress": ("query",),
    "kv": ("key", "value"),
    "kv_compress": ("key", "value"),
    "out": ("out",),
    "up": ("feedforward",),
    "down": ("feedforward",),
}
"""The linear layers of a block, and what each of them holds."""
TASKS = {"decoder": "CAUSAL_LM", "encoder_decoder": "SEQ_2_SEQ_LM"}
PREFIX = "base_model.model."
PLAIN: dict[str, Any] = {
    "use_dora": False,
    "bias": "none",
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
    "target_parameters": None,
    "trainable_token_indices": None,
    "alora_invocation_tokens": None,
    "lora_bias": False,
}
"""Keys of PEFT's for what there is not here, each with the value at which it is not used."""


@dataclass(frozen=True)
class Target:
    """A linear layer of ours, and the modules that its pieces are in Transformers."""

    ours: str
    theirs: tuple[str, ...]
    rename: Rename

    def chosen(self, matrices: Collection[MatrixName]) -> list[int]:
        """The pieces that are among these matrices; one that holds several is if any is."""
        held = HOLDS[self.ours.rpartition(".")[2]]
        if len(held) == len(self.theirs):
            return [i for i, name in enumerate(held) if name in matrices]
        return list(range(len(self.theirs))) if set(held) & set(matrices) else []

    def to_theirs(self, up: Tensor) -> Tensor:
        """The rows of a B, in their order."""
        return up if self.rename.order is None else up[self.rename.order]

    def to_ours(self, up: Tensor) -> Tensor:
        """The rows of a B, in our order."""
        return up if self.rename.order is None else up[self.rename.order.argsort()]


def targets(network: LanguageModel, model_type: str) -> Iterator[Target]:
    """The linear layers in the blocks of a network."""
    for rename in renames(network.config, model_type):
        ours = rename.ours.removesuffix(".weight")
        inside = "blocks." in ours and ".inner." in ours and ours != rename.ours
        if inside and ours.rpartition(".")[2] in HOLDS:
            theirs = tuple(name.removesuffix(".weight") for name in rename.theirs)
            yield Target(ours, theirs, rename)


def add_lora(
    network: LanguageModel, model_type: str, shape: LoraShape, matrices: Collection[MatrixName]
) -> None:
    """Give these matrices of every block adapters, which begin as nothing.

    In a network with experts only attention has them: PEFT takes the names of all other layers for
    those of the experts, which are no linear layers here.
    """
    if network.config.experts:
        matrices = set(matrices) - {"feedforward"}
    for target in targets(network, model_type):
        if pieces := target.chosen(matrices):
            _wrap(network, target, pieces, shape)


def save_adapter(folder: Path, network: LanguageModel, model_type: str, base: Path) -> None:
    """Write the adapters of a network whose weights without them are those of the folder `base`."""
    layers, found = dict(adapted(network)), {}
    for target in targets(network, model_type):
        if (layer := layers.get(target.ours)) is None:
            continue
        for piece, down, up in layer.pieces():
            theirs = PREFIX + target.theirs[piece]
            found[f"{theirs}.lora_A.weight"] = down.detach().cpu().contiguous()
            found[f"{theirs}.lora_B.weight"] = target.to_theirs(up.detach().cpu()).contiguous()
    shape = next(iter(layers.values())).shape
    modules = sorted({name.removeprefix(PREFIX).rpartition(".lora_")[0] for name in found})
    about = {
        "peft_type": "LORA",
        "task_type": TASKS.get(network.config.family),
        "base_model_name_or_path": str(base),
        "r": shape.rank,
        "lora_alpha": shape.alpha,
        "lora_dropout": shape.dropout,
        "target_modules": modules,
        "fan_in_fan_out": model_type in TRANSPOSED,
        "inference_mode": True,
        **{key: PLAIN[key] for key in ("bias", "modules_to_save", "use_dora")},
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ADAPTER_CONFIG).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    save_file(found, folder / ADAPTER, metadata={"format": "pt"})


def read_adapter_config(folder: Path) -> dict[str, Any]:
    """What a folder of adapters says of them. Raises ValueError for a kind that is not here."""
    path = folder / ADAPTER_CONFIG
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        kind, rank = about["peft_type"], about["r"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} does not say what adapters these are: {error!r}") from error
    if kind != "LORA" or not isinstance(rank, int) or rank < 1:
        raise ValueError(f"{path}: peft_type is {kind!r}, r {rank!r}; only LORA of rank 1 or more")
    for key, plain in PLAIN.items():
        if about.get(key) not in (plain, None):
            raise ValueError(f"{path}: {key} is {about[key]!r}; it must be {plain!r}")
    return about


def load_adapter(folder: Path, network: LanguageModel, model_type: str) -> None:
    """Give a network the adapters of a folder.

    Raises ValueError for adapters of another kind, or of modules that this network does not have.
    """
    about, found = read_adapter_config(folder), _tensors(folder)
    rank, alpha = about["r"], float(about["lora_alpha"])
    alpha *= rank**0.5 if about.get("use_rslora") else 1.0  # its scale is alpha over the root
    shape = LoraShape(rank, alpha, about.get("lora_dropout", 0.0))
    for target in targets(network, model_type):
        named = {i: _called(name, found) for i, name in enumerate(target.theirs)}
        if pieces := [i for i, name in named.items() if name]:
            layer = _wrap(network, target, pieces, shape)
            for piece, down, up in layer.pieces():
                _fill(down, found.pop(f"{named[piece]}.lora_A.weight"), folder)
                weight = found.pop(f"{named[piece]}.lora_B.weight")
                _fill(up, weight if weight.shape != up.shape else target.to_ours(weight), folder)
    if found or not adapted(network):
        raise ValueError(
            f"{folder / ADAPTER} has adapters of {len(found)} modules that its base does not have, "
            f"or that cannot be adapted here: {sorted(found)[:3]}"
        )


def _wrap(
    network: LanguageModel, target: Target, pieces: Collection[int], shape: LoraShape
) -> LoraLinear:
    linear = network.get_submodule(target.ours)
    assert isinstance(linear, nn.Linear), target.ours
    layer = LoraLinear(linear, target.rename.rows, pieces, shape)
    network.set_submodule(target.ours, layer)
    return layer


def _tensors(folder: Path) -> dict[str, Tensor]:
    try:
        found = load_file(folder / ADAPTER)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{folder / ADAPTER} cannot be read: {error}") from error
    return {name.removeprefix(PREFIX): tensor for name, tensor in found.items()}


def _called(module: str, found: dict[str, Tensor]) -> str | None:
    """What a module is called in a file of adapters, which may be of the class without a head."""
    names = (module, module.partition(".")[2])
    return next((name for name in names if f"{name}.lora_A.weight" in found), None)


@torch.no_grad()
def _fill(own: Tensor, weight: Tensor, folder: Path) -> None:
    if own.shape != weight.shape:
        raise ValueError(
            f"{folder / ADAPTER}: an adapter is {list(weight.shape)}, and {list(own.shape)} "
            "fits the base; they do not belong together"
        )
    own.copy_(weight)
