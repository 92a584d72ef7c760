from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import build
from cluster.store import Store
from tasks.tokens.encoder import load
from tasks.tokens.shards.encode import heldout
from tasks.tokens.shards.settings import ShardSettings
from tasks.tokens.shards.stage import shards
from tasks.tokens.shards.writer import ShardWriter, token_dtype
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import train_tokenizer
from tests.tokens.made import append

MakeText = Callable[[list[str]], Artifact]


@pytest.fixture(scope="module")
def tokenizer(store: Store, make_text: MakeText, documents: list[str]) -> Artifact:
    options = TokenizerSettings(vocab_size=512)
    return build(train_tokenizer, store, text=make_text(documents), settings=options)


def make(store: Store, text: Artifact, tokenizer: Artifact, **settings: Any) -> Artifact:
    options = ShardSettings.model_validate({"heldout_share": 0.2, **settings})
    return build(shards, store, text=text, tokenizer=tokenizer, settings=options)


def read(artifact: Artifact, name: str) -> pa.Table:
    with pa.memory_map(str(artifact.file(name))) as source:
        return pa.ipc.open_file(source).read_all()


def tokens_of(artifact: Artifact, document: dict[str, Any]) -> list[int]:
    name = f"{document['split']}-{document['shard']:05d}.arrow"
    column = read(artifact, name).column("tokens")
    return column.slice(document["start"], document["length"]).to_pylist()


def test_every_document_lies_in_its_split_followed_by_one_end(
    store: Store, make_text: MakeText, tokenizer: Artifact, documents: list[str]
) -> None:
    artifact = make(store, make_text(documents), tokenizer, shard_tokens=1000)
    encoder = load(tokenizer)
    rows = read(artifact, "documents.arrow").to_pylist()
    assert [row["id"] for row in rows] == [f"document/{i}" for i in range(len(documents))]
    for row, text in zip(rows, documents, strict=True):
        assert tokens_of(artifact, row) == [*encoder.encode(text), encoder.eod]
        assert row["bytes"] == len(text.encode())
        assert (row["split"] == "heldout") == heldout(text.encode(), 0.2)
    assert len(artifact.files("train-*.arrow")) > 3
    assert sum(row["split"] == "heldout" for row in rows) > 10


def test_facts_add_up(
    store: Store, make_text: MakeText, tokenizer: Artifact, documents: list[str]
) -> None:
    artifact = make(store, make_text([*documents, ""]), tokenizer, shard_tokens=1000)
    manifest, facts = artifact.manifest, artifact.manifest.facts
    rows = read(artifact, "documents.arrow").to_pylist()
    for split in ("train", "heldout"):
        mine = [row for row in rows if row["split"] == split]
        assert facts[split]["documents"] == len(mine)
        assert facts[split]["bytes"] == sum(row["bytes"] for row in mine)
        assert facts[split]["tokens"] == sum(row["length"] for row in mine)
        files = [f.path.name for f in artifact.files(f"{split}-*.arrow")]
        assert facts[split]["shards"] == [read(artifact, name).num_rows for name in files]
    assert manifest.tokens == facts["train"]["tokens"]
    assert manifest.ledger
    assert manifest.ledger.model_dump() == {
        "rows_in": 201,
        "rows_out": 200,
        "rejects": {"empty": 1},
    }
    assert (facts["vocab_size"], facts["dtype"], facts["eod"]) == (512, "uint16", 0)
    assert facts["tokenizer_sha256"] == load(tokenizer).sha256
    assert 0.5 < facts["vocabulary_use"] <= 1
    text_tokens = sum(row["length"] - 1 for row in rows)
    assert facts["bytes_per_token"] == sum(row["bytes"] for row in rows) / text_tokens


def test_a_shard_is_one_batch_that_numpy_reads_in_place(
    store: Store, make_text: MakeText, tokenizer: Artifact, documents: list[str]
) -> None:
    artifact = make(store, make_text(documents), tokenizer)
    source = pa.memory_map(str(artifact.file("train-00000.arrow")))
    file = pa.ipc.open_file(source)
    assert file.num_record_batches == 1
    assert file.schema == pa.schema([pa.field("tokens", pa.uint16())])
    before = pa.total_allocated_bytes()
    tokens = file.get_batch(0).column(0).to_numpy(zero_copy_only=True)
    assert tokens.dtype == np.uint16
    assert pa.total_allocated_bytes() - before < tokens.nbytes / 10


def test_the_split_depends_on_the_text_alone(
    store: Store, make_text: MakeText, tokenizer: Artifact, documents: list[str]
) -> None:
    def sides(texts: list[str]) -> set[tuple[str, str]]:
        rows = read(make(store, make_text(texts), tokenizer), "documents.arrow").to_pylist()
        return {(text, row["split"]) for text, row in zip(texts, rows, strict=True)}

    some = sides(documents)
    assert some == sides(documents[::-1])
    assert some == sides(documents + documents), "a copy must not cross to the other side"


@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_no_text_is_refused(
    store: Store, make_text: MakeText, tokenizer: Artifact, texts: list[str]
) -> None:
    with pytest.raises(BadInput, match="holds no text"):
        make(store, make_text(texts), tokenizer)


def test_a_split_without_documents_is_refused(
    store: Store, make_text: MakeText, tokenizer: Artifact
) -> None:
    text = make_text(["one", "two"])
    with pytest.raises(BadInput, match=r"none of 2 documents fell to the heldout .* raise it"):
        make(store, text, tokenizer, heldout_share=1e-9)
    with pytest.raises(BadInput, match=r"none of 2 documents fell to the train split .* lower it"):
        make(store, text, tokenizer, heldout_share=1 - 1e-9)


def test_the_type_fits_the_largest_id() -> None:
    assert token_dtype(1 << 16) == np.uint16
    assert token_dtype((1 << 16) + 1) == np.uint32
    with pytest.raises(BadInput, match="does not fit 32 bits"):
        token_dtype((1 << 32) + 1)


@pytest.mark.parametrize(("vocab_size", "largest"), [(1 << 16, 65_535), (70_000, 69_999)])
def test_ids_at_the_edge_of_a_type_survive(tmp_path: Any, vocab_size: int, largest: int) -> None:
    with ShardWriter(tmp_path, ["train"], vocab_size, 100) as writer:
        append(writer, "train", [largest, 0], size=1, document="a", source="s")
        for wrong in (vocab_size, -1):
            with pytest.raises(BadInput, match=rf"token id {wrong} is not in the vocabulary of"):
                append(writer, "train", [wrong], size=1, document="b", source="s")
    column = pa.ipc.open_file(str(tmp_path / "train-00000.arrow")).read_all().column("tokens")
    assert column.to_pylist() == [largest, 0]


def test_building_twice_gives_the_same_files(
    tmp_path: Any, make_text: MakeText, tokenizer: Artifact, documents: list[str]
) -> None:
    text = make_text(documents)
    first, second = (make(Store(tmp_path / n), text, tokenizer).manifest.files for n in "ab")
    assert first == second
