"""Shards with tombstones: what is erased is neither predicted nor seen, all else is as it was."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster.artifact import Artifact
from cluster.stage import build, stage
from cluster.store import Draft, Store
from tasks.forgetting.tombstones import GONE, buried
from tasks.tokens.loader import Arrangement, Loader, windows
from tasks.tokens.shards.documents import read_documents
from tasks.tokens.shards.facts import ShardFacts
from tests.tokens.made import packed, shards_of

LENGTHS = np.random.default_rng(1).integers(2, 60, 30).tolist()
CONTEXT = 16


@stage(version=2, name="shards")
def erased_shards(old: Artifact, ids: list[str], draft: Draft) -> None:
    buried(old, ids, draft)


def both(root, chosen):
    old = shards_of(root, LENGTHS, "ab" * 15, shard_tokens=300)
    new = build(erased_shards, Store(root), old=old, ids=[f"d{i}" for i in sorted(chosen)])
    return old, new


def own_tokens(chosen):
    """The numbers that stand for the tokens of these documents."""
    starts = np.cumsum([1, *(length - 1 for length in LENGTHS)])
    return np.concatenate([np.arange(starts[i], starts[i + 1]) for i in chosen])


def batches(shards, packing, split="train"):
    if split == "heldout":
        return next(windows(shards, split, CONTEXT, 4))
    loader = Loader(shards, split, CONTEXT, 0, Arrangement(packing) if packing else None)
    return loader.batch(0, len(loader))


@pytest.mark.parametrize("kind", [None, "concatenate", "best_fit", "padded"])
@settings(max_examples=15)
@given(chosen=st.sets(st.integers(0, 29), min_size=1, max_size=5))
def test_every_other_token_has_its_place_and_its_company(tmp_path_factory, kind, chosen):
    root = tmp_path_factory.getbasetemp() / f"tombstones-{kind}"
    old, new = both(root, chosen)
    olds, news = ((one, packed(root, one, kind, CONTEXT) if kind else None) for one in (old, new))
    before, after = batches(*olds), batches(*news)
    gone = own_tokens(chosen)
    dead = np.isin(before["inputs"], gone)
    silent = dead | np.isin(before["targets"], gone)
    assert (after["targets"][silent] == -100).all()
    assert (after["documents"][dead] == 0).all() and (after["inputs"][dead] == 0).all()
    for name in before:
        kept = ~(silent if name == "targets" else dead)
        np.testing.assert_array_equal(after[name][kept], before[name][kept])
    assert not np.isin(after["inputs"], gone).any() and not np.isin(after["targets"], gone).any()


def test_facts_tell_of_what_is_left(tmp_path):
    old, new = both(tmp_path, {3, 4})
    before, after = ShardFacts.of(old).train, ShardFacts.of(new).train
    assert after.shards == before.shards
    assert before.tokens - after.tokens == LENGTHS[3] + LENGTHS[4]
    names = read_documents(new, "train", "id")["id"].to_pylist()
    assert [i for i, name in enumerate(names) if name == GONE] == [3, 4]
    # 65,536 ids fill sixteen bits: the one for tombstones needs more.
    assert ShardFacts.of(new).dtype == "uint32"
