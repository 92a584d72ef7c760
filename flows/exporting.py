"""What `headrace export` does: a model, as others load it, with its card."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.provenance import provenance
from cluster.store import Store

Format = Literal["hf", "gguf"]
Type = Literal["f32", "bf16", "f16", "q8_0"]
CARD = "README.md"


def export(model: str, to: Path, format_: Format, type_: Type | None, url: str | None) -> Any:
    """Write a model (a folder, or what the store calls an artifact) to a folder that is new, or to
    a file `*.gguf`, and push it to `url` if there is one. Gives `path`, `architecture`, `format`,
    `type`, `bytes`, `url`. Nothing is left at `to` where it fails.
    """
    from tasks.export.push import push, repository
    from tasks.inference.generation import load_model
    from tasks.tokens.origins import known_artifact

    name = repository(url).split("/")[1] if url else to.stem if to.suffix == ".gguf" else to.name
    store = Store()
    source = store.path_of(model)
    _check(to, format_, type_)
    network, encoder = load_model(source)
    artifact = known_artifact(source)
    with _appearing(to) as place:
        if format_ == "gguf":
            found = _write_gguf(network, encoder, source, place, type_ or "f16", name)
        else:
            found = _write_folder(network, encoder, source, place, type_)
        if place.is_dir():
            about = {"name": name, **found, **_shape(network, encoder)}
            _write_card(place, about, artifact, source, store)
    path = to / found["file"] if format_ == "gguf" and to.is_dir() else to
    return {
        "path": str(path),
        "architecture": found["architecture"],
        "format": format_,
        "type": found["type"],
        "bytes": sum(f.stat().st_size for f in (to.iterdir() if to.is_dir() else [to])),
        "url": push(to, url) if url else None,
    }


def _check(to: Path, format_: Format, type_: Type | None) -> None:
    """Raise BadInput for a place that is taken, and for a type that a format has not."""
    if to.is_file() or (to.is_dir() and any(to.iterdir())):
        raise BadInput(f"{to} is there already; name another with --to, or remove it")
    if format_ == "hf" and type_ == "q8_0":
        raise BadInput("--type q8_0 is one of GGUF: take --format gguf, or f32, bf16 or f16")
    if format_ == "hf" and to.suffix == ".gguf":
        raise BadInput(f"--to {to} names a GGUF file: take --format gguf, or name a folder")


@contextmanager
def _appearing(to: Path) -> Iterator[Path]:
    """Where to write what is at `to` once the block has ended well; a folder is made for it."""
    to.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to.parent, prefix=f".{to.name}-") as scratch:
        place = Path(scratch) / to.name
        if to.suffix != ".gguf":
            place.mkdir()
        yield place
        place.replace(to)


def _write_folder(
    network: Any, encoder: Any, source: Path, place: Path, type_: Type | None
) -> dict[str, Any]:
    """What was written; `head` is that of a task which Transformers has no class for."""
    from model import hub_heads
    from tasks.export.folder import write_folder

    config = write_folder(network, encoder, source, place, type_)
    head = hub_heads.read(config)
    return {
        "architecture": config["architectures"][0],
        "type": config.get("dtype") or config.get("torch_dtype") or "float32",
        "file": None,
        "head": bool(head and hub_heads.place_of(config["model_type"], head) is None),
    }


def _write_gguf(
    network: Any, encoder: Any, source: Path, place: Path, type_: Type, name: str
) -> dict[str, Any]:
    from tasks.export.gguf_file import write_gguf

    file = place / f"{name}-{type_}.gguf" if place.is_dir() else place
    found = write_gguf(network, encoder, source, file, type_, name)
    return {"architecture": found, "type": type_, "file": file.name, "head": False}


def _shape(network: Any, encoder: Any) -> dict[str, Any]:
    from model.flops import parameter_count

    config = network.config
    return {
        "params": parameter_count(config),
        "context": config.context,
        "vocab_size": config.vocab_size,
        "chat": config.family == "decoder" and encoder.roles.template is not None,
    }


def _write_card(
    place: Path, about: dict[str, Any], artifact: Artifact | None, source: Path, store: Store
) -> None:
    """The card of a model of this home by its records; a folder that has one keeps its own."""
    from tasks.report.model_card import render

    if artifact is None and (source / CARD).is_file():
        shutil.copyfile(source / CARD, place / CARD)
        return
    made_by = provenance()
    version = " ".join(made_by[key][:12] for key in ("headrace", "commit") if key in made_by)
    text = render({**about, "version": version}, artifact, store)
    (place / CARD).write_text(text, encoding="utf-8")
