"""A model as a folder of safetensors that `transformers`, and what is built on it, load.

    headrace export instruct --to my-model --type bf16

Weights as they are, or in another type, in files of 5 GB at most; adapters merged into their base;
the tokenizer with its chat template; which tokens end what is generated.
"""

import json
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.errors import BadInput
from model import hub, hub_config, hub_heads
from tasks.tokens.chat import write_tokenizer_config
from tasks.tokens.origins import tokenizer_files, whole_of
from tasks.tokens.roles import ID_FILES, TOKEN_FILES

if TYPE_CHECKING:
    from model.generation import Network
    from tasks.tokens.encoder import Encoder

TYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
"""What a user calls a type, and Transformers."""
LARGEST_FILE = "5GB"


def write_folder(
    network: "Network", encoder: "Encoder", source: Path, to: Path, type_: str | None
) -> dict[str, Any]:
    """Write the folder `to` from a model folder, or from one of adapters, whose `network` and
    `encoder` are loaded; None leaves each tensor's type. Gives the config that was written.

    Raises BadInput for a network that Transformers has not, naming the field.
    """
    whole = whole_of(source)
    config = network.config
    if hub.read_config(whole)["model_type"] == hub_config.OWN:
        raise BadInput(
            f"Transformers has no such model: {hub_config.obstacle(config)}; "
            "the folder itself is what Headrace reads"
        )
    with tempfile.TemporaryDirectory() as scratch:
        if whole != source:  # adapters
            hub.save(scratch, network, hub.special_ids(whole))
        about = _write_weights(Path(scratch) if whole != source else whole, to, type_)
    for file in tokenizer_files(whole):
        shutil.copyfile(file, to / file.name)
    if not any((to / name).is_file() for name in TOKEN_FILES):
        write_tokenizer_config(to, config.context)
    if config.family != "encoder" and hub_heads.read(about) is None:
        _write_generation(to, about, encoder)
    return about


def _write_weights(source: Path, to: Path, type_: str | None) -> dict[str, Any]:
    """Config and weights of a model folder; the config."""
    import torch
    from huggingface_hub import save_torch_state_dict

    found, about = hub.tensors(source), hub.read_config(source)
    if type_:
        kind = getattr(torch, TYPES[type_])
        found = {n: t.to(kind) if t.is_floating_point() else t for n, t in found.items()}
        about = {n: v for n, v in about.items() if n != "torch_dtype"} | {"dtype": TYPES[type_]}
        if lost := [name for name, tensor in found.items() if not tensor.isfinite().all()]:
            raise BadInput(f"{lost[0]} has values that {type_} cannot hold; take --type bf16")
    save_torch_state_dict(found, to, max_shard_size=LARGEST_FILE, metadata={"format": "pt"})
    (to / "config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    return about


def _write_generation(to: Path, about: dict[str, Any], encoder: "Encoder") -> None:
    """Which tokens begin, end and fill what `generate` of Transformers writes, unless it is said
    already.
    """
    file = to / ID_FILES[0]
    if file.is_file():
        return
    ends = sorted(encoder.ends)
    said = {name: value for name, value in about.items() if name.endswith("token_id")}
    said |= {"eos_token_id": ends if len(ends) > 1 else ends[0], "pad_token_id": encoder.pad}
    file.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
