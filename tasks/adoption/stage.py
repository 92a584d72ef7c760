"""Stages that take in what exists: `adopt` a model, and a `tokenizer` that is not trained here.

    model: {from: hf://org/name@revision}      # in a recipe; `headrace adapt MODEL` writes one
    tokenizer: {from: path/to/folder}

The copy is an artifact like all others: what is made from it names it, and is found again by it.
"""

import shutil
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cluster.artifact import Artifact
from cluster.settings import Settings
from cluster.stage import stage
from cluster.store import Draft
from tasks.tokens.encoder import load
from tasks.tokens.origins import (
    CARD,
    MODEL,
    folder_of,
    model_files,
    tokenizer_files,
    whole_of,
)
from tasks.tokens.vocabulary.settings import TokenizerSettings


class AdoptSettings(Settings):
    """The model to take in."""

    model: Annotated[str, MODEL] = Field(description="a model folder, or hf://org/name@revision")


@stage(version=1)
def adopt(settings: AdoptSettings, draft: Draft, tokenizer: Artifact | None = None) -> None:
    """Copy a model folder, as `transformers` writes them, once it was loaded, or merge a folder of
    adapters into its base; with another `tokenizer` instead of its own where one is given.

    Facts: `origin`, `model_type`, `family`, `context`, `vocab_size`, `tokens` (of its tokenizer),
    `license` as its card says it. Metrics: `params`. Raises BadInput for a folder that is no model,
    one that the blocks cannot express, naming the field, and a tokenizer with more tokens than it.
    """
    from model import hub
    from model.flops import parameter_count
    from tasks.inference.generation import load_model

    folder = folder_of(settings.model)
    whole = whole_of(folder)
    if whole != folder:
        _write_merged(folder, whole, draft.path)
    files = model_files(whole) if whole == folder else []
    files += tokenizer_files(tokenizer.folder() if tokenizer else whole)
    for file in [*files, *whole.glob(CARD)]:
        shutil.copyfile(file, draft.path / file.name)
    if tokenizer:
        _retokenize(draft.path, tokenizer)
    network, encoder = load_model(draft.path)
    config = network.config
    draft.metrics = {"params": float(parameter_count(config))}
    draft.facts = {
        "origin": settings.model,
        "model_type": hub.read_config(draft.path)["model_type"],
        "family": config.family,
        "context": config.context,
        "vocab_size": config.vocab_size,
        "tokens": encoder.vocab_size,
        "license": license_of(whole / CARD),
    }


@stage(version=1, name="tokenizer")
def adopt_tokenizer(settings: TokenizerSettings, draft: Draft) -> None:
    """Copy a tokenizer with the roles of its tokens and its chat template.

    Facts: `vocab_size`, `origin`. Raises BadInput where nothing says what ends a text.
    """
    assert settings.origin is not None
    for file in tokenizer_files(folder_of(settings.origin)):
        shutil.copyfile(file, draft.path / file.name)
    encoder = load(draft.path)
    draft.facts = {"vocab_size": encoder.vocab_size, "origin": settings.origin}


def _write_merged(adapters: Path, whole: Path, to: Path) -> None:
    """Write the config and weights of the model `whole` with the adapters of a folder merged in."""
    from model import hub
    from tasks.inference.generation import load_model

    network, _ = load_model(adapters)
    hub.save(to, network, hub.special_ids(whole))


def _retokenize(folder: Path, tokenizer: Artifact) -> None:
    """Let the config of a model folder name the special tokens of another tokenizer."""
    import json

    from model import hub

    encoder, config = load(tokenizer), hub.read_config(folder)
    config |= {
        "bos_token_id": encoder.eod,
        "eos_token_id": encoder.eod,
        "pad_token_id": encoder.pad,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def license_of(card: Path) -> str | None:
    """The licence that a model card says in its front matter; None where it says none."""
    import yaml

    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else ""
    if not text.startswith("---"):
        return None
    try:
        said: Any = yaml.safe_load(text.split("---")[1])
    except yaml.YAMLError:
        return None
    found = said.get("license") if isinstance(said, dict) else None
    return str(found) if found else None
