"""What a GPU makes of Headrace, in ten minutes and one JSON object.

    uv run python benchmarks/gpu.py [--results gpu.json] [--minutes 10] [--parts kernels ...]
                                    [--nanogpt nanoGPT/model.py] [--nanochat nanochat/]

Each part runs in a process of its own and is kept in the results file when it is done: a run that
was cut short goes on where it was, and a part that failed says why. What is left when the time is
up stands under `left`. The peers' networks train the same number of tokens on the same device in
the same run, compiled, in bf16, with fused AdamW.

    kernels     attention of packed documents by each way there is, the LM head with its loss, and
                a matrix product, at the shapes of 124M, 1.5B and 7B: milliseconds, TFLOP/s, and how
                far each way is from the mask in fp32
    step-*      the loop that trains, on packed documents: tokens/s, memory, and the share of the
                device's peak, attention counted inside documents and below the diagonal only. Of
                the 7B shape there are as many layers as the device has room for
    decoding    the 7B shape in bf16 at batch 1, 8 and 64: tokens/s, and bytes that must be read
                over the bandwidth of the data sheet
    parity      losses of 200 steps of a small network, in bf16 compiled, beside the CPU's in fp32
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cluster.environment import prepare
from cluster.placement import Placement
from model.config import ModelConfig
from model.flops import flops_per_token, parameter_count
from model.presets import preset
from model.shapes import from_depth
from tasks.tokens.batches import Batch, assemble
from tasks.training.job import METRICS, Program, TrainJob
from tasks.training.settings import OptimizerSettings, PretrainSettings

if TYPE_CHECKING:
    import torch
    from torch import Tensor

DOCUMENT = 600
"""Mean tokens of a document."""
BANDWIDTH = {"H200": 4.8e12, "H100": 3.35e12, "A100": 2.04e12}
"""Bytes a second, from NVIDIA's data sheets."""
SHAPES = {
    "124M": replace(preset("gpt2"), vocab_size=50304, context=1024),
    "1.5B": replace(preset("gpt2-xl"), vocab_size=50304, context=1024),
    "7B": replace(preset("llama-2-7b"), context=4096),
}
BATCHES = {"124M": (32, 16, 30), "1.5B": (16, 8, 12), "7B": (8, 2, 12)}
"""Samples of a batch, of those at a time, and steps."""
WARMUP = 4
OPTIMIZER = OptimizerSettings(learning_rate=6e-4, betas=(0.9, 0.95), warmup_steps=10)
SMALL = from_depth(4, vocab_size=512, context=256, width=128, heads=4)
PARITY_STEPS = 200
Found = dict[str, Any]


def main() -> None:
    """Do what is left of the parts while there is time, and print all that is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--results", type=Path, default=Path("gpu.json"))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=[*PARTS])
    parser.add_argument("--nanogpt", type=Path, help="its model.py")
    parser.add_argument("--nanochat", type=Path, help="its folder")
    parser.add_argument("--child", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        prepare()
        print(json.dumps(PARTS[options.child](options)))
        return
    found = json.loads(options.results.read_text()) if options.results.exists() else {}
    found |= {"device": device_of()}
    ends, left = time.monotonic() + 60 * options.minutes, []
    for name in options.parts:
        if name in PEERS and getattr(options, name) is None:
            continue
        room = ends - time.monotonic()
        if "error" not in found.get(name, {"error": "not done"}):
            continue
        if room < 20:
            left.append(name)
            continue
        found[name] = in_child(name, options, room)
        options.results.write_text(json.dumps(found, indent=1))
    print(json.dumps(found | {"left": left} | ratios(found)))


def device_of() -> str:
    """The name of the device; ends with a message where there is none."""
    import torch

    if not torch.cuda.is_available():
        sys.exit("no CUDA device is visible to PyTorch; this benchmark measures nothing else")
    return torch.cuda.get_device_name()


def in_child(name: str, options: argparse.Namespace, seconds: float) -> Found:
    """What a part found, in a process whose memory and compiled kernels are its own."""
    command = [sys.executable, __file__, "--child", name]
    for peer in PEERS:
        if getattr(options, peer):
            command += [f"--{peer}", str(getattr(options, peer))]
    started = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {seconds:.0f} seconds"}
    if done.returncode:
        return {"error": done.stderr[-1500:]}
    told = json.loads(done.stdout.splitlines()[-1])
    return told | {"took": round(time.monotonic() - started, 1)}


def ratios(found: Found) -> Found:
    """Of the peers that were measured, how many times their tokens/s ours are."""
    ours = found.get("step-124M", {}).get("tokens_per_second")
    theirs = {name: found.get(name, {}).get("tokens_per_second") for name in PEERS}
    return {f"over_{n}": round(ours / t, 3) for n, t in theirs.items() if ours and t}


# Kernels


def kernels(_: argparse.Namespace) -> Found:
    """Time and accuracy of the heavy pieces of a step, by shape."""
    return {name: attention(config) | head(config) for name, config in SHAPES.items()}


def attention(config: ModelConfig) -> Found:
    """Forward and backward of one layer's attention, in each way, on two rows of documents."""
    import torch

    from model import attention as ours
    from model.documents import begins_of
    from model.masks import self_sight
    from model.sights import Blocks, Lengths

    rows, context = 2, config.context
    documents = torch.from_numpy(packed(config, 0, rows)["documents"])
    begins = begins_of(documents.numpy())
    assert begins is not None
    documents, device = documents.cuda(), torch.device("cuda")
    mask = self_sight(context, context, device, documents_BS=documents)
    ways = {
        "mask": mask,
        "varlen": Lengths(torch.from_numpy(begins).cuda()),
        "flex": Blocks.of(config, context, device, causal=True, documents_BT=documents),
    }
    torch.manual_seed(0)
    heads = (config.heads, config.kv_heads, config.kv_heads)
    parts = [torch.randn(rows, n, context, config.head_dim, device=device) for n in heads]
    exact = both_ways(partial(ours.attend, config, sight=mask, training=True), parts)
    flops = 12 * config.heads * config.head_dim * rows * context * seen(documents.cpu().numpy())
    found: Found = {}
    for name, sight in ways.items():
        call = partial(ours.attend, config, sight=sight, training=True)
        halves = [part.bfloat16() for part in parts]
        got = both_ways(call, halves)
        apart = [float((a.float() - b).norm() / b.norm()) for a, b in zip(got, exact, strict=True)]
        seconds = timed(lambda call=call, halves=halves: both_ways(call, halves))
        found[name] = {
            "ms": round(1e3 * seconds, 3),
            "tflops": round(flops / seconds / 1e12, 1),
            "error": round(max(apart), 5),
        }
    return {"attention": found}


def both_ways(call: Callable[..., "Tensor"], parts: list["Tensor"]) -> list["Tensor"]:
    """A value and the gradients of its inputs."""
    leaves = [part.detach().requires_grad_() for part in parts]
    out = call(*leaves)
    out.backward(out.detach())
    return [out.detach(), *(leaf.grad for leaf in leaves if leaf.grad is not None)]


def head(config: ModelConfig) -> Found:
    """The LM head with its loss, forward and backward, on 16k positions; and a matrix product."""
    import torch

    from model.objectives.losses import ChunkedCrossEntropy

    count, width, vocabulary = 16_384, config.width, config.vocab_size
    hidden = torch.randn(count, width, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn(vocabulary, width, device="cuda", requires_grad=True)
    targets = torch.randint(vocabulary, (count,), device="cuda")

    def loss() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            args = (hidden, weight, None, targets, None, 0.0, 0.0, True)
            ChunkedCrossEntropy.apply(*args)[0].backward()

    seconds = timed(loss)
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
    product = timed(lambda: a @ a)
    rate = 6 * count * width * vocabulary / seconds
    return {
        "head": {"ms": round(1e3 * seconds, 3), "tflops": round(rate / 1e12, 1)},
        "product": {"tflops": round(2 * 8192**3 / product / 1e12, 1)},
    }


def timed(work: Callable[[], object], rounds: int = 10) -> float:
    """Seconds of a piece of work, the median over rounds, by the device's own clock."""
    import torch

    for _ in range(3):
        work()
    times = []
    for _ in range(rounds):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


# Steps


def packed(config: ModelConfig, first: int, count: int) -> Batch:
    """Samples of random tokens in documents of random lengths, by the sample numbers."""
    draw = np.random.default_rng([first, count])
    tokens = draw.integers(1, config.vocab_size, (count, config.context + 1)) ** 2
    tokens //= config.vocab_size  # small ids are likelier: something to learn
    tokens[draw.random(tokens.shape) < 1 / DOCUMENT] = 0
    return assemble(tokens, eod=0)


def seen(documents_BT: np.ndarray) -> float:
    """Keys that a token looks at, at the mean: those of its document up to itself."""
    begins = np.flatnonzero(np.diff(documents_BT, axis=1, prepend=-1).ravel())
    lengths = np.diff(begins, append=documents_BT.size)
    return float((lengths * (lengths + 1) / 2).sum() / documents_BT.size)


def built(config: ModelConfig) -> Program:
    """The network with its objective, on random documents."""
    from model.encoder_decoder import build
    from model.objectives.modules import CausalLM

    return Program(CausalLM(build(config)), partial(packed, config))


def step(name: str, _: argparse.Namespace) -> Found:
    """The loop's step at one shape."""
    config = SHAPES[name] if name != "7B" else fitting(SHAPES[name])
    samples, micro, steps = BATCHES[name]
    per_token = flops_per_token(config, seen(packed(config, 0, samples)["documents"]))
    rows = trained(config, Placement(gpus=1, compile=True), steps, samples, micro, per_token)
    rows = rows[WARMUP:]
    seconds = statistics.median(row["seconds"] for row in rows)
    tokens = samples * config.context / seconds
    return {
        "params": parameter_count(config),
        "layers": config.depth,
        "tokens_per_second": round(tokens),
        "flops_per_second": tokens * per_token,
        "mfu": statistics.median(row["mfu"] for row in rows),
        "memory_bytes": max(row["memory_bytes"] for row in rows),
        "planned_bytes": planned(config, samples, micro),
        "loss": rows[-1]["loss"],
    }


def planned(config: ModelConfig, samples: int, micro: int) -> int:
    """What `headrace plan` says of the same."""
    from tasks.training.memory import device_bytes

    context = config.context
    settings = PretrainSettings(
        context=context, batch_tokens=samples * context, tokens=samples * context, precision="bf16"
    )
    return device_bytes(
        config, settings, Placement(gpus=1, micro_batch_tokens=micro * context)
    ).total


def fitting(config: ModelConfig) -> ModelConfig:
    """The shape with as many of its layers as the plan says the device has room for."""
    import torch

    room = 0.92 * torch.cuda.get_device_properties(0).total_memory
    samples, micro, _ = BATCHES["7B"]
    cut = (replace(config, depth=depth) for depth in range(config.depth, 0, -1))
    return next(one for one in cut if planned(one, samples, micro) < room)


def trained(
    config: ModelConfig,
    placement: Placement,
    steps: int,
    samples: int,
    micro: int,
    per_token: float = 0.0,
    precision: str = "bf16",
) -> list[Found]:
    """The rows that the loop writes of its steps; no checkpoint is written."""
    from cluster.world import join
    from tasks.training.loop import Trainer

    with tempfile.TemporaryDirectory() as folder:
        job = TrainJob(
            partial(built, config),
            steps,
            samples,
            Path(folder),
            optimizer=OPTIMIZER,
            micro_samples=micro,
            precision=precision,
            checkpoint_seconds=math.inf,
            flops_per_token=per_token,
        )
        trainer = Trainer(job, placement, join(gpu=placement.gpus > 0), None)
        try:
            trainer.run()
        finally:
            trainer.close()
        return [json.loads(line) for line in (Path(folder) / METRICS).read_text().splitlines()]


def parity(options: argparse.Namespace) -> Found:
    """The losses of both devices; DeepSpeed has one a process, so the CPU's is this one's child."""
    if not options.results.name.endswith(".cpu"):
        command = [sys.executable, __file__, "--child", "parity", "--results", "parity.cpu"]
        child = subprocess.run(command, capture_output=True, text=True, check=True)
        exact = json.loads(child.stdout.splitlines()[-1])["losses"]
        rows = trained(SMALL, Placement(gpus=1, compile=True), PARITY_STEPS, 32, 32)
        apart = [abs(row["loss"] - loss) / loss for row, loss in zip(rows, exact, strict=True)]
        return {"apart": max(apart), "last": [rows[-1]["loss"], exact[-1]]}
    rows = trained(SMALL, Placement(threads=8), PARITY_STEPS, 32, 32, precision="fp32")
    return {"losses": [row["loss"] for row in rows]}


# Peers


def nanogpt(options: argparse.Namespace) -> Found:
    """nanoGPT's GPT-2, as its train.py steps it."""
    peer = loaded(options.nanogpt, "nanogpt_model")
    config = SHAPES["124M"]
    shape = {"block_size": config.context, "vocab_size": config.vocab_size, "bias": True}
    model = peer.GPT(peer.GPTConfig(**shape)).cuda()
    return peer_steps(model, lambda x, y: compiled_call(model)(x, y)[1])


def nanochat(options: argparse.Namespace) -> Found:
    """nanochat's decoder with as many layers, of the same width."""
    sys.path.insert(0, str(options.nanochat))
    from nanochat.gpt import GPT, GPTConfig

    config = SHAPES["124M"]
    model = GPT(GPTConfig(sequence_len=config.context, vocab_size=config.vocab_size)).cuda()
    model.init_weights()
    return peer_steps(model, lambda x, y: compiled_call(model)(x, y))


_COMPILED: dict[int, Any] = {}


def compiled_call(model: Any) -> Any:
    """A network, compiled once."""
    import torch

    return _COMPILED.setdefault(id(model), torch.compile(model, dynamic=False))


def peer_steps(model: Any, loss_of: Callable[..., "torch.Tensor"]) -> Found:
    """Tokens a second of a peer's steps on the batches that ours has, one document a row."""
    import torch

    config = SHAPES["124M"]
    samples, micro, steps = BATCHES["124M"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    torch.set_float32_matmul_precision("high")
    times = []
    for number in range(steps):
        batch = packed(config, number * samples, samples)
        x, y = (torch.from_numpy(batch[name]).pin_memory() for name in ("inputs", "targets"))
        torch.cuda.synchronize()
        started = time.perf_counter()
        for at in range(0, samples, micro):
            pair = (t[at : at + micro].to("cuda", non_blocking=True) for t in (x, y))
            with torch.autocast("cuda", torch.bfloat16):
                (loss_of(*pair) * micro / samples).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    seconds = statistics.median(times[WARMUP:])
    return {
        "params": sum(p.numel() for p in model.parameters()),
        "tokens_per_second": round(samples * config.context / seconds),
        "memory_bytes": torch.cuda.max_memory_allocated(),
    }


def loaded(path: Path, name: str) -> Any:
    """A Python file as a module."""
    import importlib.util

    spec = importlib.util.spec_from_file_location(name, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# Decoding


def decoding(_: argparse.Namespace) -> Found:
    """Tokens a second of greedy decoding, and bytes a step must read over what the device can."""
    import torch

    from model.encoder_decoder import build
    from model.generation import Ending, stream

    config, prompt, count = SHAPES["7B"], 128, 64
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        network = build(config).eval()
        torch.set_default_dtype(torch.float32)
    named = [rate for part, rate in BANDWIDTH.items() if part in torch.cuda.get_device_name()]
    weights = 2 * (parameter_count(config) - config.vocab_size * config.width)
    token = 4 * config.depth * config.kv_heads * config.head_dim  # keys and values of one, in bytes
    found: Found = {}
    for rows in (1, 8, 64):
        prompts = torch.randint(config.vocab_size, (rows, prompt)).tolist()
        times = []
        for _ in stream(network, prompts, Ending(count), compiled=True):
            torch.cuda.synchronize()
            times.append(time.perf_counter())
        seconds = statistics.median(np.diff(times)[8:])
        read = weights + rows * token * (prompt + count / 2)
        found[f"batch {rows}"] = {
            "tokens_per_second": round(rows / seconds, 1),
            "bandwidth": round(read / seconds / named[0], 3) if named else None,
        }
    return found


PEERS = ("nanogpt", "nanochat")
PARTS: dict[str, Callable[[argparse.Namespace], Found]] = {
    "kernels": kernels,
    "step-124M": partial(step, "124M"),
    "nanogpt": nanogpt,
    "nanochat": nanochat,
    "step-7B": partial(step, "7B"),
    "decoding": decoding,
    "parity": parity,
    "step-1.5B": partial(step, "1.5B"),
}


if __name__ == "__main__":
    main()
