"""Kernels of a GPU: the values and gradients of the mask in fp32, and no wait for the device."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

from model.config import ExpertConfig
from model.documents import begins_of
from model.encoder_decoder import build
from model.generation import Ending, generate
from model.lora import LoraLinear, LoraShape
from model.objectives.base import hidden_states
from model.objectives.losses import ChunkedCrossEntropy
from model.objectives.modules import CausalLM
from model.shapes import from_depth
from model.sights import Blocks, Lengths
from tests.model.test_sights import KINDS, apart, both

pytestmark = pytest.mark.gpu
ROWS, LENGTH = 3, 384
BASE = from_depth(2, vocab_size=512, context=LENGTH, width=256, heads=4)


def packed() -> dict[str, torch.Tensor]:
    draw = np.random.default_rng(0)
    begins = draw.random((ROWS, LENGTH)) < 0.02
    documents = np.cumsum(begins, 1) + 1
    documents[1, -40:] = 0
    found = begins_of(documents)
    assert found is not None
    return {
        "inputs": torch.from_numpy(draw.integers(0, 31, (ROWS, LENGTH))),
        "documents": torch.from_numpy(documents),
        "begins": torch.from_numpy(found),
    }


def on_gpu(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.cuda() for name, tensor in batch.items()}


@contextmanager
def unwaited() -> Iterator[None]:
    """Nothing in the block may wait for the device."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "experts"])
def test_attention_in_bf16_is_near_the_mask_in_fp32(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    network = build(replace(KINDS[kind], context=LENGTH)).train()
    for parameter in network.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.1)
    expected = both(network, **packed())
    used = set()
    for sort in (Lengths, Blocks):
        real = sort.attend
        monkeypatch.setattr(sort, "attend", lambda *a, f=real: (used.add(f), f(*a))[1])
    network.cuda()
    with torch.autocast("cuda", torch.bfloat16):
        found = both(network, **on_gpu(packed()))
    assert len(used) == 1 and len(found) == len(expected)
    for a, b in zip(expected, found, strict=True):
        assert apart(a, b.cpu()) < 0.06


@pytest.mark.parametrize("kind", ["plain", "capped", "relative", "experts"])
def test_a_step_does_not_wait_for_the_device(kind: str) -> None:
    config = replace(KINDS[kind], context=LENGTH, vocab_size=512)
    module, batch = CausalLM(build(config)).cuda().train(), on_gpu(packed())
    batch["targets"] = batch["inputs"].roll(-1, 1)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            module(**batch).backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)

    step()  # compiles, which may wait
    with unwaited():
        step()


@pytest.mark.parametrize(
    ("cap", "z_loss", "smoothing"), [(None, 0.0, 0.0), (5.0, 1e-2, 0.0), (None, 0.0, 0.1)]
)
def test_the_chunked_loss_is_that_of_a_cpu(
    cap: float | None, z_loss: float, smoothing: float
) -> None:
    torch.manual_seed(0)
    hidden, weight = torch.randn(9000, 64), torch.randn(1000, 64) / 8
    targets = torch.randint(-1, 1000, (9000,)).where(torch.rand(9000) < 0.9, -100)
    targets = targets.where(targets != -1, -100)
    found = []
    for device in ("cpu", "cuda"):
        h, w = (z.detach().to(device).requires_grad_() for z in (hidden, weight))
        args = (h, w, None, targets.to(device), cap, z_loss, smoothing, True)
        loss, penalty = ChunkedCrossEntropy.apply(*args)
        loss.backward()
        found.append([loss.cpu(), penalty.cpu(), h.grad.cpu(), w.grad.cpu()])
    for a, b in zip(*found, strict=True):
        assert apart(a.detach(), b.detach()) < 1e-4


def test_a_compiled_stack_gives_the_gradients_of_one_that_is_not() -> None:
    torch.manual_seed(0)
    network, batch = build(BASE).cuda().train(), on_gpu(packed())
    with torch.autocast("cuda", torch.bfloat16):
        plain = both(network, **batch)
        network.compile_layers()
        compiled = both(network, **batch)
    for a, b in zip(plain, compiled, strict=True):
        assert apart(a, b) < 0.03


def test_experts_by_grouped_products_are_those_of_the_loop() -> None:
    torch.manual_seed(0)
    config = replace(BASE, experts=ExpertConfig(routed=8, active=2, width=128, shared=1))
    network = build(config).train()
    for parameter in network.parameters():
        if parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.05)
    expected = hidden_states(network, **packed())
    network.cuda()
    with torch.autocast("cuda", torch.bfloat16):
        found = hidden_states(network, **on_gpu(packed()))
    # A token between two experts may go to the other.
    assert apart(expected, found.cpu()) < 0.1


@torch.no_grad()
def test_a_gpu_writes_the_text_that_a_cpu_writes() -> None:
    torch.manual_seed(0)
    network = build(BASE).eval()
    for parameter in network.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.1)
    prompts = torch.randint(512, (4, 30)).tolist()
    prompts[1] = prompts[1][:7]
    on_cpu = [row.ids for row in generate(network, prompts, Ending(20))]
    assert [row.ids for row in generate(network.cuda(), prompts, Ending(20))] == on_cpu


@torch.no_grad()
def test_a_matrix_in_4_bits_moves_with_its_scales() -> None:
    pytest.importorskip("bitsandbytes")
    torch.manual_seed(0)
    shape = LoraShape(rank=2, alpha=4.0, in_4_bits=True)
    layer, x = LoraLinear(torch.nn.Linear(128, 64), (64,), (0,), shape), torch.randn(5, 128)
    expected = layer(x)
    assert apart(expected, layer.cuda()(x.cuda()).cpu()) < 1e-3
