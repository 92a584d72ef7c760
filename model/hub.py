"""Model folders: `config.json` and `model.safetensors`, in Hugging Face's names where it can be.

    save(folder, network)       # transformers' Auto classes load it, with equal logits
    network = load(folder)      # reads such a folder, ours or a published one

A shape is saved as the Transformers model that has it (`model.counterparts`). One without
counterpart is saved in Headrace's own names, which `load` reads as well; `architecture` says which
field stands in the way. Transformers itself is not imported.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from model import hub_config, hub_heads, hub_lora, hub_weights
from model.config import ModelConfig
from model.encoder_decoder import EncoderDecoder, build
from model.heads import Headed
from model.lora import fold
from model.transformer import Transformer

LEFT_OUT = re.compile(
    r"\.attn\.(masked_)?bias$|rotary_emb\.inv_freq$|position_ids$"  # fixed masks and tables
    r"|EncDecAttention\.relative_attention_bias\.weight$|^final_logits_bias$"  # never used
    r"|^(cls\.seq_relationship|sop_classifier|(lm|mask)_predictions)\."  # of another objective
    r"|^(score|classifier|qa_outputs|classification_head|head\.(dense|norm))\."  # of another task
    r"|^(sequence_summary|logits_proj|start_logits|end_logits|answer_class)\."  # XLNet's
)
"""Names a published file may hold beside our tensors."""
RATES = "headrace_rates"
"""The key of `config.json` for `rate_shares`."""
SAFE = ".safetensors"
LM_HEADS = (
    "lm_head.weight", "embed_out.weight", "head.weight", "vocab_projector.weight", "lm_loss.weight",
)  # fmt: skip
"""What the LM head is called, which a model with another head has not."""
POOLERS = ("pooler.dense.weight", "pooler.weight")
"""What a pooler's matrix is called."""
WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""Where weights are, the first that there is; of each also an index of several."""
INDEX = f"{WEIGHTS[0]}.index.json"
"""The file that says which of several files each tensor is in."""
LARGEST = 5_000_000_000
"""Bytes of one file's tensors at most, but for a single tensor that is larger."""
PREFIXES = (
    "transformer.", "bert.", "roberta.", "distilbert.", "albert.", "electra.", "deberta.",
    "model.",     "gpt_neox.",
)  # fmt: skip
"""What files of a class with a head have before the names of the base class."""
TWINS = {
    "encoder.embed_tokens.weight": "shared.weight",
    "decoder.embed_tokens.weight": "shared.weight",
    "model.encoder.embed_tokens.weight": "model.shared.weight",
    "model.decoder.embed_tokens.weight": "model.shared.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
    "predictions.decoder.bias": "predictions.bias",
    "lm_head.decoder.bias": "lm_head.bias",
}
"""One tensor of ours that is two of theirs in a model that ties nothing."""


def save(
    folder: Path | str,
    module: Transformer | EncoderDecoder | Headed,
    extra: dict[str, Any] | None = None,
) -> None:
    """Write `config.json` and `model.safetensors`, or several files with an index where one would
    be too large; `extra` keys join the config, `eos_token_id`.

    Where `extra` contradicts the counterpart (RoBERTa's positions begin behind the id of padding),
    the names are Headrace's own. A head for another task is saved with its network.
    """
    network = module.network if isinstance(module, Headed) else module
    folder, config = Path(folder), network.config
    folder.mkdir(parents=True, exist_ok=True)
    model_type = hub_config.model_type(config)
    dtype = str(network.embedding.weight.dtype).removeprefix("torch.")
    about = hub_config.describe(config, model_type)
    if any(about.get(name, value) != value for name, value in (extra or {}).items()):
        model_type = hub_config.OWN
        about = hub_config.describe(config, model_type)
    head = hub_heads.describe(model_type, module.head) if isinstance(module, Headed) else {}
    rates = {RATES: dict(network.rate_shares)} if network.rate_shares else {}
    about |= {"dtype": dtype, **head, **rates, **(extra or {})}
    (folder / "config.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    ours = {name: weight.detach().cpu() for name, weight in network.state_dict().items()}
    theirs = dict(
        pair for rename in hub_weights.renames(config, model_type) for pair in rename.export(ours)
    )
    if not config.tie_embeddings:
        theirs |= {twin: theirs[name].clone() for twin, name in TWINS.items() if name in theirs}
    if isinstance(module, Headed):
        own = {
            n: w.detach().cpu()
            for n, w in module.state_dict().items()
            if n.startswith("classifier.") or n in hub_heads.MIX
        }
        theirs = hub_heads.export(theirs, own, model_type, module.head)
    _write(theirs, folder)


def _write(tensors: dict[str, Tensor], folder: Path) -> None:
    """Write tensors in their order: to `model.safetensors`, or where they are more than `LARGEST`
    bytes to several files with an index.
    """
    files: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if files[-1] and size + tensor.nbytes > LARGEST:
            files.append({})
            size = 0
        files[-1][name] = tensor
        size += tensor.nbytes
    if len(files) == 1:
        save_file(tensors, folder / WEIGHTS[0], metadata={"format": "pt"})
        return
    places: dict[str, str] = {}
    for number, part in enumerate(files, 1):
        file = f"model-{number:05d}-of-{len(files):05d}.safetensors"
        save_file(part, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(part, file)
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": places}
    (folder / INDEX).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def load(folder: Path | str, dtype: torch.dtype = torch.float32) -> Transformer | EncoderDecoder:
    """The network of a model folder, in `dtype`.

    Adapters of a folder that holds nothing else are added to the weights of their base. Raises
    `ValueError` for a folder that holds another kind of model, naming what does not fit.
    """
    return _load(Path(folder), dtype)[0]


def load_headed(folder: Path | str) -> Headed:
    """The network of a model folder with its head for another task, in fp32; raises as `load` does,
    and for a folder without such a head.
    """
    network, own = _load(Path(folder), torch.float32)
    head = hub_heads.read(read_config(folder))
    if head is None or not own:
        raise ValueError(f"{folder} has no head of a task; `headrace adapt` makes one")
    module = Headed(network, head)
    module.load_state_dict({name: tensor.float() for name, tensor in own.items()}, strict=False)
    return module


def _load(
    folder: Path, dtype: torch.dtype
) -> tuple[Transformer | EncoderDecoder, dict[str, Tensor]]:
    """The network, and the tensors of a head for another task."""
    if base := base_of(folder):
        network, _ = _load(base, dtype)
        hub_lora.load_adapter(folder, network, read_config(base)["model_type"])
        fold(network)
        return network, {}
    config = load_config(folder)
    ours, own = _restored(folder, config, dtype)
    with torch.device("meta"):
        network = build(config)
    network.load_state_dict(dict(ours), assign=True)
    network.headless, network.rate_shares = bool(own), rate_shares(folder)
    return network, own


def named_weights(folder: Path | str) -> Iterator[tuple[str, Tensor]]:
    """The weights of a model folder in fp32, by our names, one after another: files are mapped, and
    one weight is held at a time, but of adapters the whole network. Raises as `load` does.
    """
    folder = Path(folder)
    if base_of(folder):
        return iter(load(folder).state_dict().items())
    return _restored(folder, load_config(folder), torch.float32)[0]


def _restored(
    folder: Path, config: ModelConfig, dtype: torch.dtype
) -> tuple[Iterator[tuple[str, Tensor]], dict[str, Tensor]]:
    """The weights of a folder that is none of adapters, and the tensors of a head for a task."""
    about = read_config(folder)
    model_type = about["model_type"]
    renames = list(hub_weights.renames(config, model_type))
    twins = TWINS | hub_weights.tied_head(config, model_type)
    found, own = hub_heads.split(about, tensors(folder))
    wanted = {name for rename in renames for name in rename.theirs}
    theirs = _fitting(folder, found, wanted, twins)
    return ((rename.ours, rename.restore(theirs).to(dtype)) for rename in renames), own


def load_config(folder: Path | str) -> ModelConfig:
    """The shape of the network in a model folder; raises as `load` does."""
    folder = Path(folder)
    about = read_config(folder)
    try:
        config = hub_config.parse(about)
    except KeyError as missing:
        raise ValueError(f"{folder}/config.json has no {missing}") from None
    except ValueError as error:
        raise ValueError(f"{folder}/config.json: {error}") from None
    files = _files_by_name(folder)
    names = hub_heads.split(about, files)[0]
    if hub_heads.read(about) and not any(name.endswith(LM_HEADS) for name in names):
        config = replace(config, tie_embeddings=config.mup_base_width is None)
    if config.family == "encoder" and names and about["model_type"] != hub_config.OWN:
        # A file of Transformers is named for its LM head whether it has a pooler or not.
        pooler = any(name.endswith(POOLERS) for name in names)
        config = replace(config, pooler=pooler)
    own_head = _has_own_head(files, hub_weights.tied_head(config, about["model_type"]))
    return replace(config, tie_embeddings=False) if own_head else config


def read_config(folder: Path | str) -> dict[str, Any]:
    """The `config.json` of a model folder as it is, of adapters that of their base; `ValueError`
    when there is none.
    """
    path = (base_of(folder) or Path(folder)) / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} is not a model folder: it has no config.json")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no keys of a model, it is a {type(found).__name__}")
    return found


def base_of(folder: Path | str) -> Path | None:
    """The model folder that a folder of adapters alone is for; None for any other folder.

    Raises ValueError when it is not there.
    """
    folder = Path(folder)
    if (folder / "config.json").is_file() or not (folder / hub_lora.ADAPTER_CONFIG).is_file():
        return None
    name = hub_lora.read_adapter_config(folder).get("base_model_name_or_path") or ""
    for found in (Path(name), folder / name):
        if name and (found / "config.json").is_file():
            return found
    raise ValueError(
        f"{folder} holds adapters of '{name}', and no model folder is there; write the path of "
        f"theirs as base_model_name_or_path into {folder / hub_lora.ADAPTER_CONFIG}"
    )


def weight_files(folder: Path) -> list[Path]:
    """The files with a folder's weights, as `transformers` finds them: one file, or those of its
    index; what lies beside them (an adapter, a consolidated copy) is none. Raises ValueError for an
    index that cannot be read.
    """
    for name in WEIGHTS:
        if (folder / name).is_file():
            return [folder / name]
        if (index := folder / f"{name}.index.json").is_file():
            try:
                found = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
            except (ValueError, KeyError, AttributeError) as error:
                raise ValueError(f"{index} is no index of weights: {error!r}") from error
            return sorted(folder / Path(file).name for file in found)
    return []


def special_ids(folder: Path | str) -> dict[str, Any]:
    """The keys of a folder's `config.json` that say which tokens begin, end and fill a text."""
    return {key: value for key, value in read_config(folder).items() if key.endswith("token_id")}


def rate_shares(folder: Path | str) -> dict[str, float] | None:
    """At what shares of the learning rate the weights of a folder of ours were trained, by the kind
    of parameter (`model.optim`); None where it does not say.
    """
    found: dict[str, float] | None = read_config(folder).get(RATES)
    return found


def tensors(folder: Path) -> dict[str, Tensor]:
    """The tensors of every weights file."""
    found: dict[str, Tensor] = {}
    files = weight_files(folder)
    if not files:
        raise ValueError(f"{folder} is not a model folder: it has no {' or '.join(WEIGHTS)}")
    for file in files:
        with _named(file):
            found |= load_file(file) if file.suffix == SAFE else _load_pickled(file)
    return found


def _fitting(
    folder: Path, found: dict[str, Tensor], wanted: set[str], twins: dict[str, str]
) -> dict[str, Tensor]:
    """The same tensors under the names that are wanted."""
    theirs = _prefixed(_without_twins(found, twins), wanted)
    missing = sorted(wanted - set(theirs))
    unknown = sorted(n for n in set(theirs) - wanted if not LEFT_OUT.search(n))
    if missing or unknown:
        raise ValueError(
            f"{folder} does not hold the weights that its config.json describes: "
            f"{len(missing)} missing {missing[:3]}, {len(unknown)} unknown {unknown[:3]}"
        )
    return theirs


def _without_twins(found: dict[str, Tensor], twins: dict[str, str]) -> dict[str, Tensor]:
    """Each pair of tensors that is one of ours, once. Of two biases the twin is the one in use."""
    single = {name: tensor for name, tensor in found.items() if name not in twins}
    for twin, name in twins.items():
        if twin not in found:
            continue
        if name in found and not name.endswith("bias") and not found[twin].equal(found[name]):
            raise ValueError(f"{twin} and {name} differ; here they are one tensor")
        single[name] = found[twin]
    return single


def _prefixed(found: dict[str, Tensor], wanted: set[str]) -> dict[str, Tensor]:
    """The same, where a file's names have one prefix too many or too few those that are wanted."""

    def match(name: str) -> str:
        rest = name.partition(".")[2]
        others = (name, *(p + name for p in PREFIXES), rest, *(p + rest for p in PREFIXES))
        return next((other for other in others if other in wanted), name)

    return {match(name): tensor for name, tensor in found.items()}


def _files_by_name(folder: Path) -> dict[str, Path]:
    """Every tensor's name, with the file it is in."""
    found: dict[str, Path] = {}
    for file in weight_files(folder):
        with _named(file):
            if file.suffix == SAFE:
                with safe_open(file, "pt") as tensors:
                    found |= dict.fromkeys(tensors.keys(), file)
            else:
                found |= dict.fromkeys(_load_pickled(file), file)
    return found


def _has_own_head(files: dict[str, Path], tied: dict[str, str]) -> bool:
    """Whether a head said to be the embedding lies beside it as another matrix: what the file holds
    counts, as in Transformers, which says every T5's head to be tied.
    """
    pairs = [pair for pair in tied.items() if files.keys() >= set(pair)]
    return any(not torch.equal(*(_tensor(files[name], name) for name in pair)) for pair in pairs)


def _tensor(file: Path, name: str) -> Tensor:
    with _named(file):
        if file.suffix != SAFE:
            return _load_pickled(file)[name]
        with safe_open(file, "pt") as tensors:
            return tensors.get_tensor(name)


def _load_pickled(file: Path) -> dict[str, Tensor]:
    """The tensors of a file of PyTorch's, which may hold nothing else; mapped, not read."""
    return torch.load(file, map_location="cpu", weights_only=True, mmap=True)


@contextmanager
def _named(file: Path) -> Iterator[None]:
    """Let an error about the weights say which file they are in."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"{file} is not there, which the index beside it names") from None
    except (SafetensorError, UnpicklingError, RuntimeError) as error:
        raise ValueError(
            f"{file} is damaged or cut short, or holds more than tensors: {error}; build the model "
            "again, or copy it here once more"
        ) from error
