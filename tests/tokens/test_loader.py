from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.manifest import BLOCK_BYTES
from cluster.stage import build, stage
from cluster.store import Draft, Store
from tasks.tokens.encoder import Encoder, load
from tasks.tokens.loader import Batch, Loader, assemble, text_bytes, windows
from tasks.tokens.shards.settings import ShardSettings
from tasks.tokens.shards.stage import shards
from tasks.tokens.shards.writer import ShardWriter
from tasks.tokens.vocabulary.settings import TokenizerSettings
from tasks.tokens.vocabulary.stage import train_tokenizer

EOD = 0
NAMES = ("inputs", "targets", "documents", "positions")


@stage(version=1, name="shards")
def write_stream(tokens: list[int], shard_tokens: int, vocab_size: int, draft: Draft) -> None:
    """The same tokens in both splits, every ten of them a document."""
    with ShardWriter(draft.path, ["train", "heldout"], vocab_size, shard_tokens) as writer:
        for split in writer.splits:
            starts = np.arange(0, len(tokens), 10)
            lengths = np.diff(starts, append=len(tokens))
            rows = {"id": [str(n) for n in starts], "source": ["made"] * len(starts)}
            documents = pa.table(rows | {"bytes": lengths, "length": lengths})
            ids = np.array(tokens, writer.dtype)
            writer.extend(np.full(len(starts), split), ids, documents)
    draft.facts = writer.facts(EOD).noted()


def stream_of(root: Path, tokens: list[int], shard_tokens: int = 1 << 20) -> Artifact:
    return build(
        write_stream,
        Store(root),
        tokens=tokens,
        shard_tokens=shard_tokens,
        vocab_size=max(tokens) + 1,
    )


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Tokens 1, 2, ... 1006 in shards of a hundred: a token says where it stands."""
    return stream_of(tmp_path_factory.mktemp("counting"), list(range(1, 1007)), 100)


@pytest.fixture(scope="module")
def real(
    store: Store, make_text: Callable[[list[str]], Artifact], documents: list[str]
) -> tuple[Artifact, Encoder]:
    text = make_text(documents)
    tokenizer = build(train_tokenizer, store, text=text, settings=TokenizerSettings(vocab_size=512))
    options = ShardSettings(heldout_share=0.2, shard_tokens=1000)
    artifact = build(shards, store, text=text, tokenizer=tokenizer, settings=options)
    return artifact, load(tokenizer)


def test_an_epoch_is_every_sample_once_in_the_stream(counting: Artifact) -> None:
    loader = Loader(counting, "train", context=20, seed=3)
    assert len(loader) == 50
    for epoch in range(3):
        batch = loader.batch(50 * epoch, 50)
        starts = batch["inputs"][:, 0]
        assert sorted(starts) == list(range(1, 1001, 20))
        assert np.array_equal(batch["inputs"], starts[:, None] + np.arange(20))
        assert np.array_equal(batch["targets"], batch["inputs"] + 1)
        assert starts.tolist() != sorted(starts)


def test_epochs_and_seeds_have_orders_of_their_own(counting: Artifact) -> None:
    def order(seed: int, epoch: int) -> tuple[int, ...]:
        return tuple(Loader(counting, "train", 20, seed).batch(50 * epoch, 50)["inputs"][:, 0])

    assert len({order(seed, epoch) for seed in range(3) for epoch in range(3)}) == 9
    assert order(1, 2) == order(1, 2)


@settings(deadline=None, max_examples=50)
@given(first=st.integers(0, 10**12), ranks=st.lists(st.integers(1, 40), min_size=1, max_size=8))
def test_the_order_is_the_same_however_a_batch_is_shared(
    counting: Artifact, first: int, ranks: list[int]
) -> None:
    whole = Loader(counting, "train", 20, seed=5).batch(first, sum(ranks))
    starts = np.cumsum([first, *ranks])
    parts = [
        Loader(counting, "train", 20, seed=5).batch(int(start), count)
        for start, count in zip(starts, ranks, strict=False)
    ]
    for name in NAMES:
        assert np.array_equal(whole[name], np.concatenate([part[name] for part in parts]))


def test_stopping_at_any_step_changes_nothing(counting: Artifact) -> None:
    batch = 8  # does not divide the 50 samples of an epoch
    steps = [Loader(counting, "train", 20, 0).batch(batch * i, batch) for i in range(16)]
    for stop in range(16):
        loader = Loader(counting, "train", 20, 0)
        for step in range(stop, 16):
            again = loader.batch(batch * step, batch)
            assert all(np.array_equal(again[name], steps[step][name]) for name in NAMES)


@settings(deadline=None, max_examples=40)
@given(data=st.data(), context=st.integers(1, 60), shard_tokens=st.sampled_from([7, 64, 1 << 20]))
def test_batches_are_the_stream_wherever_shards_end(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    context: int,
    shard_tokens: int,
) -> None:
    tokens = data.draw(st.lists(st.integers(0, 5), min_size=context + 1, max_size=200))
    artifact = stream_of(tmp_path_factory.mktemp("any"), tokens, shard_tokens)
    loader = Loader(artifact, "train", context, seed=1)
    batch = loader.batch(0, len(loader))
    rows = {tuple(row) for row in np.hstack([batch["inputs"], batch["targets"][:, -1:]]).tolist()}
    assert rows == {tuple(tokens[i * context : (i + 1) * context + 1]) for i in range(len(loader))}
    assert loader.tokens(0).tolist() == [*batch["inputs"][0], batch["targets"][0, -1]]


def test_documents_and_positions_begin_with_the_end_token_before_them() -> None:
    tokens = np.array([[7, 8, EOD, 7, EOD, EOD, 9], [EOD, 7, 8, 9, 7, 8, EOD], [7] * 7], np.uint16)
    batch = assemble(tokens, EOD)
    assert batch["inputs"].tolist() == tokens[:, :-1].tolist()
    assert batch["targets"].tolist() == tokens[:, 1:].tolist()
    assert batch["documents"].tolist() == [[1, 1, 2, 2, 3, 4], [1] * 6, [1] * 6]
    assert batch["positions"].tolist() == [[0, 1, 0, 1, 0, 0], [*range(6)], [*range(6)]]
    assert {values.dtype for values in batch.values()} == {np.dtype(np.int64)}


@pytest.mark.parametrize("context", [1, 7, 20, 100, 1005, 3000])
@pytest.mark.parametrize("rows", [1, 4])
def test_windows_predict_every_token_but_the_first_once(
    counting: Artifact, context: int, rows: int
) -> None:
    batches = list(windows(counting, "heldout", context, rows))
    targets = np.concatenate([batch["targets"].ravel() for batch in batches])
    assert targets[targets != -100].tolist() == list(range(2, 1007))
    for batch in batches:
        assert all(batch[name].shape[1] == context for name in NAMES)
        assert len(batch["inputs"]) <= rows
        kept = batch["targets"] != -100
        assert np.array_equal(batch["inputs"][kept] + 1, batch["targets"][kept])
        assert np.array_equal(batch["documents"] > 0, kept)


def test_what_training_has_seen(real: tuple[Artifact, Encoder]) -> None:
    artifact, encoder = real
    loader = Loader(artifact, "train", context=32, seed=0)
    whole = text_bytes(loader.stream, encoder)
    assert len(whole) == artifact.manifest.facts["train"]["bytes"] == loader.stream.text_bytes
    assert loader.bytes_seen(len(loader), encoder) == whole
    assert loader.bytes_seen(5 * len(loader), encoder) == whole
    half = loader.bytes_seen(len(loader) // 2, encoder)
    assert 0.4 < len(half) / len(whole) < 0.6
    seen = [encoder.decode_bytes(loader.tokens(i)[:-1].tolist()) for i in range(3)]
    assert sorted(seen, key=whole.find) == sorted(seen, key=half.find)
    assert loader.bytes_seen(0, encoder) == b""


def test_the_stream_is_the_documents_in_order(
    real: tuple[Artifact, Encoder], documents: list[str]
) -> None:
    artifact, encoder = real
    stream = Loader(artifact, "train", 16, 0).stream
    text = encoder.decode(stream.read(np.array([0]), len(stream))[0].tolist(), specials=True)
    kept = text.split("<|endoftext|>")
    assert kept.pop() == ""
    assert kept == [document for document in documents if document in set(kept)]
    assert len(kept) == artifact.manifest.facts["train"]["documents"]


def test_a_context_larger_than_the_split_is_refused(counting: Artifact) -> None:
    assert len(Loader(counting, "train", 1005, 0)) == 1
    with pytest.raises(BadInput, match="1006 tokens needs 1007, the train split has 1006"):
        Loader(counting, "train", 1006, 0)


def test_an_unknown_split_is_refused(counting: Artifact) -> None:
    with pytest.raises(BadInput, match="no split 'test'; choose from train, heldout"):
        Loader(counting, "test", 8, 0)


def test_an_artifact_of_another_stage_is_refused(
    make_text: Callable[[list[str]], Artifact],
) -> None:
    with pytest.raises(BadInput, match=r"text/.* holds no tokens; name an artifact of the shards"):
        Loader(make_text(["some text"]), "train", 8, 0)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """One shard of four blocks and a bit: 2.2 million tokens of two bytes."""
    tokens = np.random.default_rng(0).integers(1, 1000, 2_200_000)
    return build(
        write_stream,
        Store(tmp_path_factory.mktemp("large")),
        tokens=tokens.tolist(),
        shard_tokens=1 << 30,
        vocab_size=1000,
    )


@pytest.mark.parametrize("block", range(5))
def test_a_flipped_bit_is_found_before_its_tokens_are_used(large: Artifact, block: int) -> None:
    path = large.file("train-00000.arrow")
    sound = Loader(large, "train", 1000, 0)
    before = [sound.batch(i, 50) for i in range(0, len(sound), 50)]
    place = block * BLOCK_BYTES + 5000
    _flip(path, place)
    try:
        problem = rf"{path}: block {block} \(bytes {block * BLOCK_BYTES} to .* --rebuild shards"
        with pytest.raises(BadInput, match=problem):
            _read_all(Loader(large, "train", 1000, 0), before)
        if block in (1, 2):
            Loader(large, "train", 1000, 0).tokens(_sample_at(sound, 0))
    finally:
        _flip(path, place)
    _read_all(Loader(large, "train", 1000, 0), before)


def _read_all(loader: Loader, expected: list[Batch]) -> None:
    for i, want in enumerate(expected):
        got = loader.batch(50 * i, 50)
        assert np.array_equal(got["inputs"], want["inputs"]), "wrong tokens were handed out"


def _sample_at(loader: Loader, index: int) -> int:
    order = loader.order(0, len(loader))
    return int(np.flatnonzero(order == index)[0])


def _flip(path: Path, place: int) -> None:
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 16]))


def test_a_window_longer_than_a_block_is_verified_throughout(large: Artifact) -> None:
    path = large.file("heldout-00000.arrow")
    _flip(path, BLOCK_BYTES + 100)
    try:
        with pytest.raises(BadInput, match="block 1 "):
            Loader(large, "heldout", 2_000_000, 0).batch(0, 1)
    finally:
        _flip(path, BLOCK_BYTES + 100)


def test_a_shard_that_is_cut_or_gone_is_refused_at_once(tmp_path: Path) -> None:
    artifact = stream_of(tmp_path, list(range(1, 301)), 100)
    path = artifact.file("train-00002.arrow")
    raw = path.read_bytes()
    path.write_bytes(raw[:-1])
    with pytest.raises(BadInput, match=rf"train-00002\.arrow has {len(raw) - 1} bytes"):
        Loader(artifact, "train", 8, 0)
    path.unlink()
    with pytest.raises(BadInput, match=r"train-00002\.arrow is missing"):
        Loader(artifact.path, "train", 8, 0)
