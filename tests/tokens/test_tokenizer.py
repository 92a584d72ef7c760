import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import build
from cluster.store import Store
from tasks.tokens.encoder import SPECIALS, Encoder, load, pieces
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import train_tokenizer

MakeText = Callable[[list[str]], Artifact]
KINDS = ("bpe", "wordpiece", "unigram")


def train(store: Store, text: Artifact, **settings_: object) -> Artifact:
    options = TokenizerSettings.model_validate({"vocab_size": 512, **settings_})
    return build(train_tokenizer, store, text=text, settings=options)


@pytest.fixture(scope="module")
def encoders(store: Store, make_text: MakeText, documents: list[str]) -> dict[str, Encoder]:
    return {kind: load(train(store, make_text(documents), kind=kind)) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first(encoders: dict[str, Encoder], kind: str) -> None:
    encoder = encoders[kind]
    assert (encoder.eod, encoder.pad) == (0, 1)
    assert (encoder.special("user"), encoder.special("assistant")) == (2, 3)
    assert encoder.vocab_size == 512


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("special", SPECIALS)
def test_a_special_token_spelt_in_text_stays_text(
    encoders: dict[str, Encoder], kind: str, special: str
) -> None:
    encoder = encoders[kind]
    for text in (special, f"a{special}b", f" {special}\n{special}"):
        ids = encoder.encode(text)
        assert min(ids) >= len(SPECIALS)
        assert encoder.decode(ids) == text
    again: Encoder = pickle.loads(pickle.dumps(encoder))
    assert min(again.encode(special)) >= len(SPECIALS)
    assert again.sha256 == encoder.sha256


def test_special_ids_vanish_or_are_shown(encoders: dict[str, Encoder]) -> None:
    encoder = encoders["bpe"]
    ids = [encoder.special("user"), *encoder.encode("hello"), encoder.eod]
    assert encoder.decode(ids) == "hello"
    assert encoder.decode(ids, specials=True) == "<|user|>hello<|endoftext|>"
    assert encoder.decode_bytes(ids) == b"hello"


@pytest.mark.parametrize("kind", KINDS)
def test_training_text_that_spells_special_tokens_learns_nothing_else(
    store: Store, make_text: MakeText, kind: str
) -> None:
    encoder = load(train(store, make_text(["x <|endoftext|> y <|pad|>"] * 50), kind=kind))
    ids = encoder.encode("<|endoftext|>")
    assert min(ids) >= len(SPECIALS)
    assert encoder.decode(ids) == "<|endoftext|>"


@settings(deadline=None)
@given(text=st.text())
@pytest.mark.parametrize("kind", KINDS)
def test_any_string_comes_back(encoders: dict[str, Encoder], kind: str, text: str) -> None:
    ids = encoders[kind].encode(text)
    assert encoders[kind].decode(ids) == text
    assert encoders[kind].decode_bytes(ids) == text.encode()


def test_every_code_point_comes_back(encoders: dict[str, Encoder]) -> None:
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    texts = ["".join(map(chr, points[i : i + 8192])) for i in range(0, len(points), 8192)]
    encoder = encoders["bpe"]
    for text, ids in zip(texts, encoder.encode_batch(texts), strict=True):
        assert encoder.decode(ids) == text


@settings(deadline=None)
@given(raw=st.binary())
def test_every_byte_has_an_id(encoders: dict[str, Encoder], raw: bytes) -> None:
    encoder = encoders["bpe"]
    id_of = {encoder.decode_bytes([i]): i for i in range(len(SPECIALS), encoder.vocab_size)}
    assert encoder.decode_bytes([id_of[bytes([b])] for b in raw]) == raw


def test_unpaired_surrogates_are_refused(encoders: dict[str, Encoder]) -> None:
    with pytest.raises(BadInput, match="unpaired surrogate"):
        encoders["bpe"].encode("\ud800")


@pytest.mark.parametrize("kind", KINDS)
def test_long_text_encodes_as_if_in_one_piece(
    encoders: dict[str, Encoder],
    documents: list[str],
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    encoder = encoders[kind]
    text = "\n".join(documents) + " été\nété ²x " * 1000
    monkeypatch.setattr("tasks.tokens.encoder.PIECE", 100)
    assert len(list(pieces(text))) > 100
    whole = encoder._tokenizer.encode(text, add_special_tokens=False).ids
    assert encoder.encode(text) == whole


@pytest.mark.parametrize("kind", KINDS)
def test_text_without_a_place_to_cut_comes_back(
    encoders: dict[str, Encoder], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.tokens.encoder.PIECE", 1000)
    monkeypatch.setattr("tasks.tokens.encoder.LONGEST_PIECE", 5000)
    text = "a0" * 2000 + "a" * 11_000 + "漢" * 7000
    assert [len(piece) for piece in pieces(text)] == [5000, 5000, 5000, 5000, 2000]
    assert encoders[kind].decode(encoders[kind].encode(text)) == text


def test_batches_keep_their_rows(encoders: dict[str, Encoder], documents: list[str]) -> None:
    encoder = encoders["bpe"]
    texts = ["", *documents[:20], "", "x" * 200_000, "end"]
    assert encoder.encode_batch(texts) == [encoder.encode(text) for text in texts]
    assert encoder.encode("") == []


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_training_twice_gives_the_same_file(
    tmp_path: Path, make_text: MakeText, documents: list[str], kind: str
) -> None:
    text = make_text(documents)
    files = [train(Store(tmp_path / n), text, kind=kind).file("tokenizer.json") for n in "ab"]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_text_too_poor_for_the_vocabulary_makes_it_smaller(
    store: Store, make_text: MakeText, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "headrace.tokenizer"):
        artifact = train(store, make_text(["ab ab ab"]), vocab_size=5000)
    assert artifact.manifest.facts["vocab_size"] == 256 + 4 + 2  # "ab" and " ab"
    assert "the text fills a vocabulary of 262, not 5000" in caplog.text


def test_facts_count_bytes_tokens_and_words(store: Store, make_text: MakeText) -> None:
    artifact = train(store, make_text(["ab ab ab"]), vocab_size=600)
    facts = artifact.manifest.facts
    assert facts == {
        "kind": "bpe",
        "vocab_size": 262,
        "trained_by": "headrace",
        "longest": [" ab", "ab", *map(chr, range(33, 41))],
        "bytes_per_token": 8 / 3,
        "fertility": 1.0,
        "vocabulary_use": 2 / 258,
    }


def test_a_vocabulary_of_bytes_needs_no_training(store: Store, make_text: MakeText) -> None:
    artifact = train(store, make_text(["ab ab é"]), vocab_size=260)
    assert artifact.manifest.facts["trained_by"] == "tokenizers"
    assert load(artifact).decode_bytes(load(artifact).encode("ab é")) == "ab é".encode()
    assert len(load(artifact).encode("ab é")) == 5


def test_a_share_of_the_text_is_taken_from_all_over_it(store: Store, make_text: MakeText) -> None:
    text = make_text([f"{'early' if i < 50 else 'late'} " * 100 for i in range(100)])
    small = train(store, text, text_bytes=10_000)
    tokens = json.loads(small.file("tokenizer.json").read_text())["model"]["vocab"]
    assert {"early", "late"} <= set(tokens)


@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_no_text_is_refused(store: Store, make_text: MakeText, texts: list[str]) -> None:
    with pytest.raises(BadInput, match="holds no text to train a tokenizer on"):
        train(store, make_text(texts))


def test_a_vocabulary_below_the_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="greater than or equal to 260"):
        TokenizerSettings(vocab_size=259)


def test_a_changed_tokenizer_file_is_refused(
    tmp_path: Path, make_text: MakeText, documents: list[str]
) -> None:
    artifact = train(Store(tmp_path), make_text(documents))
    path = artifact.path / "tokenizer.json"
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(BadInput, match=r"bytes 0 to \d+ changed.*--rebuild tokenizer"):
        load(artifact)


def test_a_folder_without_a_usable_tokenizer_is_refused(
    tmp_path: Path, encoders: dict[str, Encoder]
) -> None:
    with pytest.raises(BadInput, match=r"has no tokenizer\.json"):
        load(tmp_path)
    path = tmp_path / "tokenizer.json"
    definition = json.loads(encoders["bpe"].definition)
    path.write_text(json.dumps(definition)[:-100])
    with pytest.raises(BadInput, match="is not a tokenizer"):
        load(tmp_path)
    del definition["added_tokens"][1], definition["model"]["vocab"]["<|pad|>"]
    path.write_text(json.dumps(definition))
    with pytest.raises(BadInput, match=r"has no token '<\|pad\|>'"):
        load(tmp_path)
