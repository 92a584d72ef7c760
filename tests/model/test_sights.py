"""What a GPU's kernels are told is what the mask says: the same values, the same gradients."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.config import ExpertConfig, LatentConfig, ModelConfig
from model.documents import begins_of
from model.encoder_decoder import build
from model.masks import self_sight
from model.objectives.base import hidden_states
from model.shapes import from_depth
from model.sights import Blocks, Lengths, kernel_sight
from tests.model import stand_ins

CPU = torch.device("cpu")
DOCUMENTS = np.array([[1] * 5 + [2] * 9 + [3] + [0] * 5, [1] * 20])
SMALL = from_depth(3, vocab_size=31, context=20, width=64, heads=4)
LATENT = LatentConfig(kv_rank=8, query_rank=12, rope_dim=8, value_dim=16)
KINDS: dict[str, ModelConfig] = {
    "plain": SMALL,
    "grouped": replace(SMALL, kv_heads=2),
    "windows": replace(SMALL, window=4, window_layers=(True, False)),
    "capped": replace(SMALL, attention_softcap=2.0, kv_heads=1),
    "scaled": replace(SMALL, attention_scale=0.5),
    "alibi": replace(SMALL, positions="alibi"),
    "relative": replace(SMALL, positions="relative"),
    "latent": replace(SMALL, latent=LATENT),
    "encoder": replace(SMALL, family="encoder"),
    "relative encoder": replace(SMALL, family="encoder", positions="relative", window=6),
    "experts": replace(SMALL, experts=ExpertConfig(routed=4, active=2, width=32)),
}


def inputs() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    tokens = torch.randint(31, DOCUMENTS.shape, generator=generator)
    begins = begins_of(DOCUMENTS)
    assert begins is not None
    return {
        "inputs": tokens,
        "documents": torch.from_numpy(DOCUMENTS),
        "begins": torch.from_numpy(begins),
    }


def shaken(config: ModelConfig) -> torch.nn.Module:
    torch.manual_seed(0)
    network = build(config)
    for parameter in network.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.15)
    return network.train()


def both(network: torch.nn.Module, **batch: torch.Tensor) -> list[torch.Tensor]:
    """States and the gradients of every parameter."""
    network.zero_grad()
    states = hidden_states(network, **batch)
    (states * torch.linspace(-1, 1, states.numel()).view_as(states)).sum().backward()
    return [states.detach(), *(p.grad for p in network.parameters() if p.grad is not None)]


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    """How far from each other, over how large they are."""
    return float((a.float() - b.float()).norm() / a.float().norm().clamp(min=1e-6))


@pytest.mark.parametrize("half", [False, True], ids=["fp32", "bf16"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_network_finds_the_same_by_kernels_as_by_the_mask(
    kind: str, half: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    network, batch = shaken(KINDS[kind]), inputs()
    used = set()
    with torch.autocast("cpu", torch.bfloat16, enabled=half):
        by_mask = both(network, **batch)
        stand_ins.use(monkeypatch)
        for sort in (Lengths, Blocks):
            real = sort.attend
            monkeypatch.setattr(
                sort, "attend", lambda *a, f=real, n=sort: (used.add(n.__name__), f(*a))[1]
            )
        by_kernels = both(network, **batch)
    plain = kind in ("plain", "grouped", "windows", "scaled", "encoder", "experts")
    assert used == {"Lengths" if half and plain else "Blocks"}
    assert len(by_mask) == len(by_kernels)
    for a, b in zip(by_mask, by_kernels, strict=True):
        # Experts are chosen: a token between two may go to the other.
        assert apart(a, b) < ((0.3 if kind == "experts" else 0.05) if half else 1e-5)


@pytest.mark.parametrize(
    ("causal", "window", "packed", "prefixed"),
    itertools.product([True, False], [None, 3], [False, True], [False, True]),
)
def test_blocks_leave_out_nothing_that_the_mask_shows(
    causal: bool, window: int | None, packed: bool, prefixed: bool
) -> None:
    """At several blocks of keys a row, which have to be told of their bounds."""
    length = 300
    documents = torch.arange(2 * length).view(2, length) // 70 if packed else None
    prefix = torch.arange(length).expand(2, -1) % 70 < 20 if prefixed else None
    about = {"causal": causal, "window": window}
    sight = self_sight(length, length, CPU, documents_BS=documents, prefix_BS=prefix, **about)
    mask = sight.written_out(length, length, CPU)
    whole = torch.ones(1, length, length) if mask is None else mask.view(-1, length, length)
    blocks = Blocks.of(length, CPU, documents_BT=documents, prefix_BT=prefix, **about)
    looked_into = stand_ins.blocks_seen(blocks, length)
    assert not (whole.bool() & ~looked_into).any()
    if packed and not prefixed:
        assert looked_into.float().mean() < 0.9


@torch.no_grad()
@pytest.mark.parametrize("kind", ["capped", "alibi", "relative", "latent"])
@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_itself_finds_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its forward pass, which a CPU has."""
    network, batch = shaken(KINDS[kind]).eval(), inputs()
    expected = hidden_states(network, **batch)
    monkeypatch.setattr("model.stack.on_gpu", lambda x: True)
    assert torch.allclose(hidden_states(network, **batch), expected, atol=1e-5)


def test_prefixes_go_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    network, batch = shaken(SMALL), inputs()
    batch["prefix"] = (torch.arange(20) % 7 < 3).expand(2, -1).long()
    expected = both(network, **batch)
    stand_ins.use(monkeypatch)
    for a, b in zip(expected, both(network, **batch), strict=True):
        assert apart(a, b) < 1e-5


def test_dropout_of_weights_small_heads_and_one_document_a_row_take_no_kernel_of_these() -> None:
    def sight(config: ModelConfig, dropout: bool = False, packed: bool = True) -> object:
        documents = torch.from_numpy(DOCUMENTS) if packed else None
        return kernel_sight(
            config, torch.zeros(2, 20, 64), causal=True, window=None, documents_BT=documents,
            prefix_BT=None, begins_N=None, by_distance_HR=None, dropout=dropout,
        )  # fmt: skip

    assert isinstance(sight(SMALL), Blocks)
    assert sight(SMALL, dropout=True) is None
    assert sight(SMALL, packed=False) is None
    assert sight(replace(SMALL, head_dim=8)) is None


@given(
    lengths=st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=9), min_size=1, max_size=6)
)
def test_begins_are_those_of_every_run(lengths: list[list[int]]) -> None:
    longest = max(map(sum, lengths))
    documents = np.zeros((len(lengths), longest), np.int64)
    for row, own in enumerate(lengths):
        numbers = np.repeat(np.arange(1, len(own) + 1), own)
        documents[row, : len(numbers)] = numbers
    begins = begins_of(documents)
    assert begins is not None and begins.dtype == np.int32
    assert begins[0] == 0 and begins[-1] == documents.size and (np.diff(begins) >= 0).all()
    assert len(begins) >= 64 and len(begins).bit_count() == 1
    for begin, end in itertools.pairwise(np.unique(begins)):
        assert begin // longest == (end - 1) // longest
        assert len(set(documents.ravel()[begin:end])) == 1


def test_a_row_that_comes_back_to_a_document_has_no_begins() -> None:
    assert begins_of(np.array([[1, 1, 2, 1]])) is None
    assert begins_of(np.array([[1, 2], [1, 2]])) is not None
