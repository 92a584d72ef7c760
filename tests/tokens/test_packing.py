import sysconfig
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.errors import BadInput
from model.shapes import from_depth
from model.transformer import Transformer
from tasks.tokens.batches import NO_LOSS
from tasks.tokens.loader import Arrangement, Loader
from tasks.tokens.packing.pack import Pieces, best_fit, concatenate, cut
from tests.tokens.made import EOD, packed, shards_of

KINDS = ("concatenate", "best_fit", "padded")
LENGTHS = [5, 3, 20, 8, 2, 9, 4, 17, 6, 2, 3, 11]
SOURCES = "aababbbaabab"


def pieces_of(lengths: list[int], context: int) -> Pieces:
    length_N = np.array(lengths)
    return cut(np.cumsum(length_N) - length_N, length_N, context)


def fill_naively(lengths: list[int], context: int) -> list[list[int]]:
    """Best-fit decreasing as the textbook has it."""
    samples: list[list[int]] = []
    for length in sorted(lengths, reverse=True):
        fitting = [s for s in samples if sum(s) + length <= context]
        if fitting:
            max(fitting, key=sum).append(length)
        else:
            samples.append([length])
    return samples


@settings(deadline=None, max_examples=60)
@given(lengths=st.lists(st.integers(1, 30), min_size=1, max_size=60), context=st.integers(1, 16))
def test_best_fit_is_best_fit_decreasing(lengths: list[int], context: int) -> None:
    pieces = pieces_of(lengths, context)
    found = best_fit(pieces, context)
    assert sorted(zip(found.start_M, found.length_M, strict=True)) == sorted(
        zip(pieces.start_M, pieces.length_M, strict=True)
    )
    samples = np.split(found.length_M, found.end_R[:-1])
    assert max(sample.sum() for sample in samples) <= context
    want = fill_naively(pieces.length_M.tolist(), context)
    assert sorted(int(s.sum()) for s in samples) == sorted(sum(s) for s in want)


def test_documents_longer_than_a_sample_are_cut() -> None:
    pieces = pieces_of([5, 12, 4], 4)
    assert pieces.start_M.tolist() == [0, 4, 5, 9, 13, 17]
    assert pieces.length_M.tolist() == [4, 1, 4, 4, 4, 4]


def test_concatenation_goes_on_across_gaps_between_a_source_s_documents() -> None:
    pieces = concatenate(np.array([0, 5, 20]), np.array([5, 5, 6]), 4)
    assert pieces.start_M.tolist() == [0, 4, 8, 20, 22]
    assert pieces.length_M.tolist() == [4, 4, 2, 2, 4]
    assert pieces.end_R.tolist() == [1, 2, 4, 5]


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_is_predicted_once_from_what_comes_before_it(tmp_path: Path, kind: str) -> None:
    shards = shards_of(tmp_path, LENGTHS, SOURCES, shard_tokens=25)
    packing = packed(tmp_path, shards, kind, 8)
    loader = Loader(shards, "train", 8, 0, Arrangement(packing))
    batch = loader.batch(0, len(loader))
    kept = batch["targets"] != NO_LOSS
    inputs, targets = batch["inputs"][kept], batch["targets"][kept]
    stream = loader.stream.span(0, len(loader.stream))
    unused = sum(source["unused_tokens"] for source in packing.manifest.facts["sources"])
    assert len(targets) == len(stream) - unused
    words = targets[targets != EOD]
    assert len(set(words)) == len(words)
    if not unused:
        assert sorted(targets) == sorted(stream)
    assert ((targets == inputs + 1) | (inputs == EOD) | (targets == EOD)).all()
    assert np.array_equal(batch["documents"] > 0, kept)
    begins = np.diff(batch["documents"], axis=1, prepend=0) > 0
    assert (batch["positions"][begins] == 0).all()
    inside = kept & ~begins
    assert np.array_equal(batch["positions"][inside], np.roll(batch["positions"], 1)[inside] + 1)
    assert packing.manifest.metrics["waste"] == pytest.approx(1 - kept.mean())


def test_whole_documents_stay_whole(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, [5, 3, 4, 4, 2])
    packing = packed(tmp_path, shards, "best_fit", 8)
    (source,) = packing.manifest.facts["sources"]
    assert (source["samples"], source["cut_documents"], source["pieces"]) == (3, 0, 5)
    assert packing.manifest.metrics == pytest.approx(
        {"waste": 1 - 18 / 24, "cut_share": 0, "unused_share": 0}
    )
    rows = Loader(shards, "train", 8, 0, Arrangement(packing)).layout.batch(np.arange(3))
    assert rows["inputs"].tolist() == [
        [0, 1, 2, 3, 4, 0, 5, 6],
        [0, 7, 8, 9, 0, 10, 11, 12],
        [0, 13, 0, 0, 0, 0, 0, 0],
    ]
    assert rows["targets"].tolist()[2] == [13, 0] + [NO_LOSS] * 6
    assert rows["documents"].tolist() == [
        [1, 1, 1, 1, 1, 2, 2, 2],
        [1, 1, 1, 1, 2, 2, 2, 2],
        [1, 1, 0, 0, 0, 0, 0, 0],
    ]


def test_a_packed_document_has_the_logits_of_the_document_alone(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, LENGTHS)
    torch.manual_seed(0)
    network = Transformer(from_depth(vocab_size=128, context=16, depth=2, width=32, heads=2)).eval()
    for parameter in network.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    layout = Loader(
        shards, "train", 16, 0, Arrangement(packed(tmp_path, shards, "best_fit", 16))
    ).layout
    batch = {k: torch.from_numpy(v) for k, v in layout.batch(np.arange(len(layout))).items()}
    with torch.no_grad():
        together = logits(network, batch)
        for row, column, length in documents_in(batch["documents"]):
            place = slice(column, column + length)
            alone = logits(network, alone_in(batch, row, place))
            assert torch.allclose(together[row, place], alone[0], atol=1e-5, rtol=0)


def logits(network: Transformer, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    hidden_BTD = network(batch["inputs"], batch["documents"], batch["positions"])
    return network.logits(hidden_BTD)


def alone_in(batch: dict[str, torch.Tensor], row: int, place: slice) -> dict[str, torch.Tensor]:
    inputs = batch["inputs"][row : row + 1, place]
    positions = torch.arange(inputs.shape[1])[None]
    return {"inputs": inputs, "documents": torch.ones_like(inputs), "positions": positions}


def documents_in(documents_BT: torch.Tensor) -> list[tuple[int, int, int]]:
    found = []
    for row, documents_T in enumerate(documents_BT):
        for document in documents_T.unique().tolist():
            places = (documents_T == document).nonzero().flatten()
            if document:
                found.append((row, int(places[0]), len(places)))
    assert len(found) > 12
    return found


def test_best_fit_wastes_little_of_the_standard_library() -> None:
    folder = Path(sysconfig.get_path("stdlib"))
    sizes = [path.stat().st_size // 3 + 1 for path in sorted(folder.glob("*.py"))]
    for context in (256, 1024):
        found = best_fit(pieces_of(sizes, context), context)
        assert 1 - sum(sizes) / (len(found.end_R) * context) < 0.01


def test_an_index_that_belongs_elsewhere_is_refused(tmp_path: Path) -> None:
    shards, others = shards_of(tmp_path, LENGTHS), shards_of(tmp_path, LENGTHS[::-1])
    packing = packed(tmp_path, shards, "padded", 8)
    with pytest.raises(BadInput, match="packs the train split of other shards"):
        Loader(others, "train", 8, 0, Arrangement(packing))
    with pytest.raises(BadInput, match="packs 8 tokens a sample, the context is 9"):
        Loader(shards, "train", 9, 0, Arrangement(packing))
    with pytest.raises(BadInput, match="is no packing"):
        Loader(shards, "train", 8, 0, Arrangement(shards))


def test_a_changed_index_is_refused(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, LENGTHS)
    packing = packed(tmp_path, shards, "best_fit", 8)
    path = packing.file("starts.arrow")
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)
    with pytest.raises(BadInput, match=r"starts\.arrow: block 0 .* --rebuild packing"):
        Loader(shards, "train", 8, 0, Arrangement(packing))


def test_no_source_with_a_full_sample_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no source of .* fills a sample of 500 tokens"):
        packed(tmp_path, shards_of(tmp_path, LENGTHS), "concatenate", 500)
