"""The native engine gives the ids of `tokenizers`, or steps aside."""

import json
import logging

import pyarrow as pa
import pytest

from cluster.artifact import Artifact
from cluster.stage import build
from cluster.store import Store
from tasks.tokens import native as native_module
from tasks.tokens.encoder import Encoder, load
from tasks.tokens.native import Disagreement, NativeEncoder, encode_batch, native
from tasks.tokens.shards.settings import ShardSettings
from tasks.tokens.shards.stage import shards


def large(texts: list[str]) -> pa.Array:
    return pa.array(texts, pa.large_string())


def expected(encoder: Encoder, texts: list[str]) -> list[int]:
    return [i for ids in encoder.encode_batch(texts) for i in (*ids, encoder.eod)]


def test_ids_are_those_of_the_library(encoder: Encoder, documents: list[str]) -> None:
    points = [chr(c) for c in range(1, 0x3000)]
    odd = ["".join(points), " a".join(points), "<|endoftext|><|pad|>", " \n ", "x  ", "'s", "\n"]
    engine = NativeEncoder(encoder.definition)
    found = engine.encode(large([*documents, *odd])[1:])
    assert found is not None
    assert found.tolist() == expected(encoder, [*documents, *odd][1:])


def test_a_text_with_nul_goes_to_the_library(encoder: Encoder) -> None:
    texts = ["a\0b", "c"]
    engine = NativeEncoder(encoder.definition)
    assert engine.encode(large(texts)) is None
    assert encode_batch(encoder, engine, large(texts)).tolist() == expected(encoder, texts)


def test_a_text_cut_anywhere_goes_to_the_library(
    encoder: Encoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("encoder", "native"):
        monkeypatch.setattr(f"tasks.tokens.{module}.PIECE", 10)
        monkeypatch.setattr(f"tasks.tokens.{module}.LONGEST_PIECE", 100)
    engine = NativeEncoder(encoder.definition)
    assert engine.encode(large(["0" * 250])) is None
    assert engine.encode(large(["some words " * 50])) is not None


def test_another_kind_is_not_taken(encoder: Encoder, caplog: pytest.LogCaptureFixture) -> None:
    content = json.loads(encoder.definition)
    content["model"]["type"] = "Unigram"
    with caplog.at_level(logging.INFO, "headrace.shards"):
        assert native(json.dumps(content)) is None
    assert "encoding with `tokenizers`: gigatoken has no Unigram" in caplog.text


def test_other_ids_are_noticed(encoder: Encoder, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = NativeEncoder(encoder.definition)
    monkeypatch.setattr(engine, "_engine", Wrong(engine._engine))
    with pytest.raises(Disagreement, match="on the text that begins 'hello'"):
        encode_batch(encoder, engine, large(["hello"]))


def test_an_engine_that_differs_encodes_nothing(
    store: Store,
    base: Artifact,
    make_text,
    documents: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    arguments = {"text": make_text(documents), "tokenizer": base, "settings": ShardSettings()}
    good = build(shards, store, **arguments)
    assert good.manifest.facts["encoded_by"].startswith("gigatoken")
    engine = NativeEncoder(load(base).definition)
    monkeypatch.setattr(engine, "_engine", Wrong(engine._engine))
    monkeypatch.setattr(native_module, "native", lambda *_: engine)
    monkeypatch.setattr("tasks.tokens.shards.encode.native", lambda *_: engine)
    again = build(shards, store, force=True, **arguments)
    assert again.manifest.facts["encoded_by"] == "tokenizers"
    assert again.manifest.files == good.manifest.files
    assert "gigatoken differs from `tokenizers` on the text that begins" in caplog.text


class Wrong:
    """An engine whose every text token is one too high."""

    def __init__(self, engine: object):
        self._engine = engine

    def encode(self, text: bytes):
        ids = self._engine.encode(text)
        return ids + (ids != 0)
