"""What inductor makes of a compiled step for a GPU, where there is none: its code, not its speed.

The step is traced by tensors without data, whose device is then said to be a GPU's. What the
compiler asks of the device is answered here; nothing is run, and no kernel is made into binary.
"""

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.func import functional_call
from torch.fx import GraphModule

from model.encoder_decoder import build
from model.presets import preset
from tests.model.test_fake_device import CONTEXT, ROWS, VARLEN, packed

GPT2 = replace(preset("gpt2"), context=CONTEXT, depth=1)
H100 = SimpleNamespace(
    name="NVIDIA H100",
    major=9,
    minor=0,
    multi_processor_count=132,
    total_memory=80 * 2**30,
    warp_size=32,
    regs_per_multiprocessor=65536,
    max_threads_per_multi_processor=2048,
    shared_memory_per_block_optin=232448,
)


class Layers(torch.nn.Module):
    """What `placement.compile` compiles, on a packed batch."""

    def __init__(self) -> None:
        super().__init__()
        self.network, self.batch = build(GPT2).train(), packed("cpu")

    def forward(self, x_BTD: Tensor) -> Tensor:
        documents, positions, begins = (
            self.batch[name] for name in ("documents", "positions", "begins")
        )
        context = self.network.context(x_BTD, documents, positions, begins_N=begins)
        return self.network.layers(x_BTD, context)


def traced() -> tuple[GraphModule, list[Tensor]]:
    """The forward and the backward pass under autocast as one graph, and what goes into it."""
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    with FakeTensorMode(allow_non_fake_inputs=True):
        module = Layers()
        weights = {
            name: weight
            for name, weight in module.named_parameters()
            if name.startswith(("network.blocks.", "network.norm."))
        }
        x_BTD = torch.empty(ROWS, CONTEXT, GPT2.width, requires_grad=True)

        def both_ways(x_BTD: Tensor, *values: Tensor) -> list[Tensor]:
            named = dict(zip(weights, values, strict=True))
            with torch.autocast("cpu", torch.bfloat16):
                y_BTD = functional_call(module, named, x_BTD)
            return [y_BTD, *torch.autograd.grad(y_BTD.float().sum(), [x_BTD, *values])]

        given = [x_BTD, *weights.values()]
        return make_fx(both_ways, select_decomp_table())(*given), given


def lowered(graph: GraphModule, given: list[Tensor]) -> str:
    """The code that inductor writes for the graph on a GPU."""
    from torch._inductor.debug import DebugContext
    from torch._inductor.fx_passes.post_grad import post_grad_passes
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V
    from torch.fx.passes.fake_tensor_prop import FakeTensorProp

    with pretended(), FakeTensorMode(allow_non_fake_inputs=True) as fake:
        there = [torch.empty(t.shape, dtype=t.dtype, device="cuda") for t in given]
        for node in graph.graph.nodes:
            node.meta.clear()
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device("cuda", 0)}
            if node.op == "get_attr":
                held = getattr(graph, node.target)
                setattr(graph, node.target, torch.empty_like(held, device="cuda"))
    with pretended(), V.set_fake_mode(fake), V.set_debug_handler(DebugContext()):
        FakeTensorProp(graph, mode=fake).propagate_dont_convert_inputs(*there)
        post_grad_passes(graph, is_inference=False)
        lowering = GraphLowering(graph, example_inputs=there, shape_env=None)
        with V.set_graph_handler(lowering):
            lowering.run(*there)
            return lowering.codegen()[0].value


@contextmanager
def pretended() -> Iterator[None]:
    """Answers to what the compiler asks of a device."""
    from torch._dynamo.device_interface import CudaInterface

    answers = {
        "torch.cuda.get_device_properties": H100,
        "torch.cuda.get_device_capability": (9, 0),
        "torch.cuda.current_device": 0,
        "torch.cuda.device_count": 1,
        "torch.cuda.is_available": True,
        "torch.utils._triton.triton_hash_with_backend": "none",
    }
    with ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch(name, lambda *_, answer=answer, **__: answer))
        for owner in (CudaInterface, CudaInterface.Worker):
            about = staticmethod(lambda *_: H100)
            stack.enter_context(mock.patch.object(owner, "get_device_properties", about))
        yield


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
def test_all_of_a_layer_but_its_products_and_attention_becomes_few_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forward and backward of one layer with the last norm: nothing falls back to a kernel of one
    operation, nothing is left on the CPU.
    """
    monkeypatch.setattr("model.stack.on_gpu", lambda x: True)
    code = lowered(*traced())
    others = Counter(re.findall(r"(?:extern_kernels\.|torch\.ops\.)([\w.]+)\(", code))
    attention = VARLEN.replace("::", ".")
    assert others == {
        "addmm": 4,
        "mm": 8,
        f"{attention}.default": 1,
        f"{attention}_backward.default": 1,
    }
    launched = re.findall(r"^ +(triton_\w+)\.run\(", code, re.MULTILINE)
    assert 0 < len(launched) <= 36
    assert "cpp_fused" not in code
