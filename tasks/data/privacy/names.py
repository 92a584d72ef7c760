"""Person names (and addresses, where it knows them) by a token classification model.

The model is a Hugging Face folder with a fast tokenizer, or an installed spaCy pipeline. What it
calls a person is a name; its identity is the content of its files.
"""

import hashlib
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Protocol

from cluster.errors import BadInput, MissingExtra
from tasks.data.privacy.spans import Span

# What models call the entities that are redacted, without the B-, I-, ... of token labels.
LABELS = {
    "PER": "name",
    "PERSON": "name",
    "NAME": "name",
    "GIVENNAME": "name",
    "SURNAME": "name",
    "ADDRESS": "address",
    "STREET_ADDRESS": "address",
    "STREET": "address",
}
POSITIONS = ("B-", "I-", "E-", "S-", "L-", "U-")
STRIDE_SHARE = 4
BATCH = 16


class Recogniser(Protocol):
    """Finds entities in texts."""

    def __call__(self, texts: Sequence[str]) -> Iterator[list[Span]]:
        """The spans of each text, in characters."""


def identity(model: str) -> str:
    """A hash of the model's files; for a spaCy pipeline its name and version."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        try:
            return f"{model}=={version(model)}"
        except PackageNotFoundError as error:
            raise _no_model(model) from error
    digest = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.relative_to(folder)}:{content}\n".encode())
    return digest.hexdigest()


@cache
def recogniser(model: str) -> Recogniser:
    """The model, loaded once a process. Raises BadInput when there is none, MissingExtra when the
    library that runs it is not installed.
    """
    folder = Path(model).expanduser()
    if not folder.is_dir() or not (folder / "config.json").exists():
        return _spacy(model)
    return _transformers(folder)


def _transformers(folder: Path) -> Recogniser:
    try:
        from transformers import AutoModelForTokenClassification, AutoTokenizer
    except ImportError as error:
        raise MissingExtra(
            f"redact.names.model {folder} needs transformers: "
            "uv pip install 'headrace[transformers]'"
        ) from error
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    network: Any = AutoModelForTokenClassification.from_pretrained(
        folder, local_files_only=True, use_safetensors=True
    )
    if not tokenizer.is_fast:
        raise BadInput(f"{folder}: its tokenizer keeps no offsets; it needs a tokenizer.json")
    return _TokenClassifier(tokenizer, network.eval())


class _TokenClassifier:
    """A network over windows of its longest input that overlap by a quarter."""

    def __init__(self, tokenizer: Any, network: Any):
        self.tokenizer, self.network = tokenizer, network
        self.kinds = {
            int(number): _kind(label) for number, label in network.config.id2label.items()
        }
        longest = getattr(network.config, "max_position_embeddings", 512)
        self.length = min(512, longest, tokenizer.model_max_length)

    def __call__(self, texts: Sequence[str]) -> Iterator[list[Span]]:
        for text in texts:
            yield sorted({span for window in self._windows(text) for span in window})

    def _windows(self, text: str) -> Iterator[list[Span]]:
        import torch

        encoded = self.tokenizer(
            text,
            truncation=True,
            max_length=self.length,
            stride=self.length // STRIDE_SHARE,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
            padding=True,
            return_tensors="pt",
        )
        offsets = encoded.pop("offset_mapping").tolist()
        encoded.pop("overflow_to_sample_mapping")
        for first in range(0, len(offsets), BATCH):
            part = {name: values[first : first + BATCH] for name, values in encoded.items()}
            with torch.inference_mode():
                chosen = self.network(**part).logits.argmax(-1).tolist()
            for places, numbers in zip(offsets[first : first + BATCH], chosen, strict=True):
                yield _joined(text, places, [self.kinds[n] for n in numbers])


def _kind(label: str) -> str | None:
    bare = label.upper()
    return LABELS.get(bare[2:] if bare.startswith(POSITIONS) else bare)


def _joined(
    text: str, places: Sequence[tuple[int, int]], kinds: Sequence[str | None]
) -> list[Span]:
    """Tokens of one kind with nothing but white space between them, as one span."""
    spans: list[Span] = []
    for (start, end), kind in zip(places, kinds, strict=True):
        if kind is None or start == end:
            continue
        start += len(text[start:end]) - len(text[start:end].lstrip())
        last = spans[-1] if spans else None
        if last and last.kind == kind and not text[last.end : start].strip():
            spans[-1] = Span(last.start, end, kind)
        else:
            spans.append(Span(start, end, kind))
    return spans


def _spacy(model: str) -> Recogniser:
    try:
        import spacy
    except ImportError as error:
        raise _no_model(model) from error
    try:
        pipeline: Any = spacy.load(model)
    except OSError as error:
        raise _no_model(model) from error

    def recognise(texts: Sequence[str]) -> Iterator[list[Span]]:
        for document in pipeline.pipe(texts):
            found = ((e.start_char, e.end_char, _kind(e.label_)) for e in document.ents)
            yield [Span(start, end, kind) for start, end, kind in found if kind]

    return recognise


def _no_model(model: str) -> MissingExtra:
    return MissingExtra(
        f"redact.names.model '{model}' is neither a folder with a Hugging Face token "
        "classification model nor an installed spaCy pipeline: give the folder's path, or run "
        f"pip install spacy && python -m spacy download {model}"
    )
