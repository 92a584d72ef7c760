"""Networks built without data: the shards of all ranks are the weights of a whole one."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from model.config import ModelConfig
from model.config_records import RecurrentConfig
from model.encoder_decoder import build
from model.presets import preset
from model.shapes import from_depth, resized
from model.sharded import Shards, asked, shard_by_shard
from tests.model.test_flops import EXPERTS, VARIANTS

SIZES: dict[str, Any] = {"vocab_size": 128, "context": 16, "width": 48}
XLNET = resized(preset("xlnet-base-cased"), depth=2, width=48, heads=4)
MORE = {
    "lstm": from_depth(2, recurrent=RecurrentConfig(cell="lstm"), **SIZES),
    "deberta": replace(VARIANTS["encoder"], positions="disentangled", relative_buckets=8),
    "xlnet": replace(XLNET, vocab_size=64),
    "albert": replace(VARIANTS["encoder"], shared_layers=True, embedding_width=24),
    "balanced": replace(VARIANTS["experts"], experts=replace(EXPERTS, balance_bias=0.1)),
}


@pytest.mark.parametrize("config", [*VARIANTS.values(), *MORE.values()], ids=[*VARIANTS, *MORE])
def test_the_shards_of_three_ranks_are_the_weights_of_one(config: ModelConfig) -> None:
    torch.manual_seed(5)
    network, after = build(config), torch.rand(4)
    found = []
    for rank in range(3):
        torch.manual_seed(5)
        shards = Shards(rank, 3)
        with asked(shards), shard_by_shard():
            bare = build(config)
        assert all(parameter.is_meta for parameter in bare.parameters())
        assert torch.equal(torch.rand(4), after), "what is drawn later would be other numbers"
        found.append([shards.kept.pop(parameter) for parameter in bare.parameters()])
        assert not shards.kept
    shards_of = zip(*found, strict=True)
    for parts, (name, whole) in zip(shards_of, network.named_parameters(), strict=True):
        together = torch.cat(parts)
        assert torch.equal(together[: whole.numel()], whole.detach().flatten()), name
        assert len(together) < whole.numel() + 3 and len({len(part) for part in parts}) == 1
    for one, other in zip(bare.buffers(), network.buffers(), strict=True):
        assert torch.equal(one, other)


def test_nothing_changes_where_no_shards_are_asked_for() -> None:
    config = next(iter(VARIANTS.values()))
    with shard_by_shard():
        assert not any(parameter.is_meta for parameter in build(config).parameters())
