"""A step as a GPU would be given it, by tensors without data: what it is told, and never asked."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from model.documents import begins_of
from model.encoder_decoder import build
from model.objectives import losses
from model.objectives.modules import CausalLM
from model.presets import preset
from tasks.tokens.batches import assemble

ROWS, CONTEXT = 8, 1024
GPT2 = replace(preset("gpt2"), context=CONTEXT, depth=3)
VARLEN = "torch_attn::_varlen_attn"


class Recorder(TorchDispatchMode):
    """Counts what is launched, and notes the largest tensor that is made and every mask."""

    def __init__(self) -> None:
        super().__init__()
        self.begin()

    def begin(self) -> None:
        self.launched: Counter[str] = Counter()
        self.largest, self.masks = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        if not func.is_view and func.name().startswith(("aten::", "torch_attn::")):
            self.launched[func.name().partition(".")[0]] += 1
        for one in found if isinstance(found, tuple | list) else (found,):
            if isinstance(one, torch.Tensor):
                self.largest = max(self.largest, one.numel())
                self.masks += one.shape[-2:] == (CONTEXT, CONTEXT)
        return found


def packed(device: str) -> dict[str, torch.Tensor]:
    """A batch as the loader makes it, of documents of many lengths."""
    draw = np.random.default_rng(0)
    tokens = draw.integers(1, 50_000, (ROWS, CONTEXT + 1))
    tokens[draw.random(tokens.shape) < 0.005] = 0
    batch = assemble(tokens, eod=0)
    begins = begins_of(batch["documents"])
    assert begins is not None
    arrays = batch | {"begins": begins}
    return {
        name: torch.empty(array.shape, dtype=torch.from_numpy(array).dtype, device=device)
        for name, array in arrays.items()
    }


@pytest.fixture
def default_type(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # DeepSpeed puts its own in its place for ZeRO 3, and leaves it there.
    monkeypatch.setattr("torch.nn.functional.linear", torch._C._nn.linear)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("default_type")
@pytest.mark.parametrize("precision", ["bf16", "bf16_weights"])
def test_a_packed_step_makes_no_mask_asks_nothing_and_launches_so_many_kernels(
    monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    """Forward and backward; autograd of a CUDA tensor needs a driver, so the device is by name."""
    monkeypatch.setattr("model.stack.on_gpu", lambda x: True)
    monkeypatch.setattr(losses, "CHUNK_ELEMENTS", losses.GPU_CHUNK_ELEMENTS)
    launched, half = [], precision == "bf16_weights"
    for depth in (2, 3):
        with FakeTensorMode(), Recorder() as seen:
            torch.set_default_dtype(torch.bfloat16 if half else torch.float32)
            module = CausalLM(build(replace(GPT2, depth=depth))).train()
            torch.set_default_dtype(torch.float32)
            batch = packed("cpu")
            seen.begin()
            with torch.autocast("cpu", torch.bfloat16, enabled=not half):
                module(**batch).backward()
        assert seen.launched[VARLEN] == depth
        assert seen.launched[f"{VARLEN}_backward"] == depth
        assert not seen.masks
        rows = losses.GPU_CHUNK_ELEMENTS // GPT2.vocab_size
        assert seen.largest <= max(rows, losses.GPU_CHUNK_ROWS) * GPT2.vocab_size
        launched.append(sum(seen.launched.values()))
    assert not {"aten::item", "aten::nonzero", "aten::_local_scalar_dense"} & seen.launched.keys()
    # Before any compiler: of one layer more, and of all that is not a layer.
    each = launched[1] - launched[0]
    assert each <= (40 if half else 72) and launched[0] - 2 * each <= 130


def test_the_mask_is_what_a_packed_step_would_make_without_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The test above would notice one."""
    monkeypatch.setattr("model.stack.single", lambda documents: False)
    with FakeTensorMode(), Recorder() as seen, torch.autocast("cpu", torch.bfloat16):
        batch = packed("cpu")
        CausalLM(build(GPT2))(**batch)
    assert seen.masks and VARLEN not in seen.launched


def test_to_ask_whether_rows_are_single_is_to_wait_for_the_device() -> None:
    from model.masks import single

    with FakeTensorMode(), pytest.raises(DataDependentOutputException):
        single(packed("cpu")["documents"])


@pytest.mark.usefixtures("default_type")
def test_a_network_on_a_cuda_device_goes_forward_by_lengths() -> None:
    with (
        FakeTensorMode(),
        Recorder() as seen,
        torch.no_grad(),
        sdpa_kernel([SDPBackend.FLASH_ATTENTION]),
        torch.device("cuda"),
    ):
        torch.set_default_dtype(torch.bfloat16)
        network = build(replace(GPT2, norm="rms", window=256, window_layers=(True, False)))
        batch = packed("cuda")
        names = ("documents_BT", "positions_BT", "begins_N")
        given = zip(names, (batch["documents"], batch["positions"], batch["begins"]), strict=True)
        states = network(batch["inputs"], **dict(given))
    assert seen.launched["aten::_fused_rms_norm"] == 2 * GPT2.depth + 1  # as the plan counts them
    assert states.device.type == "cuda" and states.shape == (ROWS, CONTEXT, 768)
    assert seen.launched[VARLEN] == GPT2.depth
