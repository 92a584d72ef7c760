"""Small text artifacts, made without the stages that usually make them."""

import sysconfig
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from cluster.artifact import Artifact
from cluster.stage import build, stage
from cluster.store import Draft, Store
from tasks.data.text import TextWriter
from tasks.tokens.encoder import Encoder, load
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import train_tokenizer

PROSE = [
    (Path(sysconfig.get_path("stdlib")) / name).read_text()
    for name in ("textwrap.py", "string.py", "heapq.py", "bisect.py", "fnmatch.py", "shlex.py")
]


@stage(version=1, name="text")
def write_text(texts: list[str], draft: Draft) -> None:
    rows = {
        "id": [f"document/{i}" for i in range(len(texts))],
        "text": texts,
        "source": ["made"] * len(texts),
        "origin": [f"made:{i}" for i in range(len(texts))],
        "license": [None] * len(texts),
    }
    with TextWriter(draft.path) as writer:
        writer.write(pa.table(rows))
    draft.rows = len(texts)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="session")
def make_text(store: Store) -> Callable[[list[str]], Artifact]:
    return lambda texts: build(write_text, store, texts=texts)


@pytest.fixture(scope="session")
def documents() -> list[str]:
    """Two hundred short documents of prose and code."""
    lines = [line for text in PROSE for line in text.splitlines() if line.strip()]
    return ["\n".join(lines[i : i + 8]) + f"\n# {i}" for i in range(0, 1600, 8)]


@pytest.fixture(scope="session")
def base(make_text: Callable[[list[str]], Artifact], store: Store) -> Artifact:
    """A tokenizer's artifact."""
    settings = TokenizerSettings(vocab_size=300)
    return build(train_tokenizer, store, text=make_text(PROSE[:3]), settings=settings)


@pytest.fixture(scope="session")
def encoder(base: Artifact) -> Encoder:
    return load(base)
