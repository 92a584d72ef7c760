"""Where a model or a tokenizer lies that a recipe starts from, and what stands for its content.

`from` in a recipe is a folder, one of this home's artifacts among them, or `hf://org/name@revision`
on the Hugging Face hub, copied once below `$HEADRACE_HOME/downloads`. What counts for the identity
of what is made from it are the bytes of the files that are read, and not where they lie.
"""

import hashlib
from pathlib import Path
from typing import Any

from cluster.artifact import Artifact, is_fetched
from cluster.errors import BadInput
from cluster.home import subfolder
from cluster.manifest import MANIFEST
from cluster.settings import Content
from tasks.data.reading.hashes import remembered_hash
from tasks.data.reading.remote import HUB, from_hub
from tasks.tokens.roles import TOKENIZER_FILES

CONFIG, CARD = "config.json", "README.md"
ABOUT = ("*.json", "*.jinja", CARD)
WEIGHTS = ("*.safetensors", "*.bin")
"""On the hub; the second kind where there is none of the first."""


def folder_of(origin: str) -> Path:
    """The folder of what a recipe starts from, fetched if it is on the hub.

    Raises BadInput when there is none, or it cannot be fetched.
    """
    if origin.startswith(HUB):
        return _fetched(origin.removeprefix(HUB))
    folder = Path(origin).expanduser()
    if not folder.is_dir():
        raise BadInput(
            f"from: {origin} is no folder; looked for {folder.absolute()}. It takes a model "
            "folder, or hf://org/name@revision; `headrace ls` lists the models of this machine"
        )
    return folder


def known_artifact(folder: Path) -> Artifact | None:
    """The artifact that a folder is, if it is one."""
    if (folder / MANIFEST).is_file() or is_fetched(folder):
        return Artifact.load(folder)
    return None


def model_hash(origin: str) -> str:
    """SHA-256 over the names and contents of a model's files; of an artifact its fingerprint."""
    folder = folder_of(origin)
    if artifact := known_artifact(folder):
        return artifact.fingerprint
    whole = whole_of(folder)
    adapters = [] if whole == folder else sorted(folder.glob("adapter_*"))
    return _hash_of([*adapters, *model_files(whole), *tokenizer_files(whole)])


def whole_of(folder: Path) -> Path:
    """The model folder that a folder of adapters is for; another folder itself. Raises BadInput
    where that is not there.
    """
    from model.hub import base_of

    try:
        return base_of(folder) or folder
    except ValueError as error:
        raise BadInput(str(error)) from error


def tokenizer_hash(origin: str) -> str:
    """The same of a tokenizer's files, wherever they lie."""
    return _hash_of(tokenizer_files(folder_of(origin)))


def model_files(folder: Path) -> list[Path]:
    """The files of a network: its config, its weights and their index. Raises BadInput without."""
    from model.hub import weight_files

    try:
        weights = weight_files(folder)
    except ValueError as error:
        raise BadInput(str(error)) from error
    found = [folder / CONFIG, *weights]
    if not weights or (missing := [file.name for file in found if not file.is_file()]):
        lacking = ", ".join(missing) if weights else "weights (model.safetensors)"
        raise BadInput(f"{folder} is not a model folder: it has no {lacking}")
    return found + sorted(folder.glob("*.index.json"))


def tokenizer_files(folder: Path) -> list[Path]:
    """The files of a tokenizer. Raises BadInput where there is no `tokenizer.json`."""
    if not (folder / TOKENIZER_FILES[0]).is_file():
        raise BadInput(
            f"{folder} has no {TOKENIZER_FILES[0]}: `AutoTokenizer.from_pretrained(...)"
            ".save_pretrained(...)` of transformers writes it for tokenizers that have one"
        )
    return [folder / name for name in TOKENIZER_FILES if (folder / name).is_file()]


def family_of(origin: str) -> str | None:
    """The family of a network, by the config of its folder on this machine; None for another."""
    if origin.startswith(HUB) or not Path(origin).expanduser().is_dir():
        return None
    return shape_of(origin).family


def tokens_of(origin: str) -> int | None:
    """How many ids the tokenizer of a folder on this machine has; None for another."""
    file = Path(origin).expanduser() / TOKENIZER_FILES[0]
    if origin.startswith(HUB) or not file.is_file():
        return None
    from tokenizers import Tokenizer

    try:
        return 1 + max(Tokenizer.from_file(str(file)).get_vocab().values())
    except Exception as error:  # the library raises bare Exception for a file it cannot parse
        raise BadInput(f"{file} is not a tokenizer: {error}") from error


def shape_of(origin: str) -> Any:
    """The `ModelConfig` of a model. Raises BadInput for one that the blocks cannot express."""
    from model.hub import load_config

    try:
        return load_config(whole_of(folder_of(origin)))
    except ValueError as error:
        raise BadInput(str(error)) from error


def _fetched(name: str) -> Path:
    """A model of the hub."""
    if name.count("/") != 1:
        raise BadInput(f"from: {HUB}{name} is not of the form hf://org/name@revision")
    folder = subfolder(f"downloads/model-{hashlib.sha256(name.encode()).hexdigest()[:16]}")
    for kind in WEIGHTS:
        from_hub(name, folder, "model", [*ABOUT, kind], ["*/*"])
        if any(folder.glob(kind)):
            break
    return folder


def _hash_of(files: list[Path]) -> str:
    lines = (f"{file.name}:{remembered_hash(file)}" for file in sorted(files))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


MODEL, TOKENIZER = Content(model_hash), Content(tokenizer_hash)
