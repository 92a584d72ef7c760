"""Model folders: `config.json` and `model.safetensors`, in Hugging Face's names where it can be.

    save(folder, network)       # transformers' AutoModelForCausalLM loads it, with equal logits
    network = load(folder)      # reads such a folder, ours or a published one

A shape is saved as the Transformers model that has it: GPT-2, LLaMA, Mistral, Qwen2, Qwen3 or
Gemma 2. One without counterpart is saved in Headrace's own names, which `load` reads as well;
`architecture` says which field stands in the way. Transformers itself is not imported.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from model import hub_config, hub_weights
from model.config import ModelConfig
from model.transformer import Transformer

BUFFERS = (".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq", "lm_head.weight")
"""Names a published file may hold beside the parameters: fixed masks and tables, the tied head."""


def save(folder: Path | str, network: Transformer, extra: dict[str, Any] | None = None) -> None:
    """Write `config.json` and `model.safetensors`; `extra` keys join the config, `eos_token_id`."""
    folder, config = Path(folder), network.config
    folder.mkdir(parents=True, exist_ok=True)
    model_type = hub_config.model_type(config)
    about = {
        "model_type": model_type,
        "architectures": [hub_config.CLASSES.get(model_type, "Transformer")],
        "dtype": str(network.embedding.weight.dtype).removeprefix("torch."),
        **hub_config.describe(config, model_type),
        **(extra or {}),
    }
    (folder / "config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    ours = {name: weight.detach().cpu() for name, weight in network.state_dict().items()}
    theirs = dict(
        pair for rename in hub_weights.renames(config, model_type) for pair in rename.export(ours)
    )
    save_file(theirs, folder / "model.safetensors", metadata={"format": "pt"})


def load(folder: Path | str, dtype: torch.dtype = torch.float32) -> Transformer:
    """The network of a model folder, in `dtype`.

    Raises `ValueError` for a folder that holds another kind of model, naming what does not fit.
    """
    folder = Path(folder)
    config = load_config(folder)
    renames = list(hub_weights.renames(config, read_config(folder)["model_type"]))
    theirs = _read_weights(folder, {name for rename in renames for name in rename.theirs})
    ours = {rename.ours: rename.restore(theirs).to(dtype) for rename in renames}
    with torch.device("meta"):
        network = Transformer(config)
    network.load_state_dict(ours, assign=True)
    return network


def load_config(folder: Path | str) -> ModelConfig:
    """The shape of the network in a model folder; raises as `load` does."""
    try:
        return hub_config.parse(read_config(folder))
    except KeyError as missing:
        raise ValueError(f"{folder}/config.json has no {missing}") from None
    except ValueError as error:
        raise ValueError(f"{folder}/config.json: {error}") from None


def read_config(folder: Path | str) -> dict[str, Any]:
    """The `config.json` of a model folder as it is; `ValueError` when there is none."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} is not a model folder: it has no config.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


def architecture(config: ModelConfig) -> str:
    """The Transformers class with this shape; `ValueError` names the field that leaves none."""
    obstacle = hub_config.obstacle(config)
    if obstacle:
        raise ValueError(f"transformers has no counterpart of this model: {obstacle}")
    return hub_config.CLASSES[hub_config.model_type(config)]


def _read_weights(folder: Path, wanted: set[str]) -> dict[str, Tensor]:
    """The tensors of every weights file; their names must be those wanted.

    The first GPT-2 files lack the prefix `transformer.`, which is added.
    """
    found: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        found.update(load_file(file))
    for name in [n for n in found if n not in wanted and f"transformer.{n}" in wanted]:
        found[f"transformer.{name}"] = found.pop(name)
    missing = sorted(wanted - set(found))
    unknown = sorted(n for n in set(found) - wanted if not n.endswith(BUFFERS))
    if missing or unknown:
        raise ValueError(
            f"{folder} does not hold the weights that its config.json describes: "
            f"{len(missing)} missing {missing[:3]}, {len(unknown)} unknown {unknown[:3]}"
        )
    return found
