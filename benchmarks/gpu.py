"""What a GPU makes of Headrace, in ten minutes and one JSON object.

    uv run python benchmarks/gpu.py [--results gpu.json] [--minutes 10] [--parts kernels ...]
                                    [--nanogpt nanoGPT/model.py] [--nanochat nanochat/]

Each part (`gpu_parts/`) runs in a process of its own and is kept in the results file when it is
done: a run that was cut short goes on where it was, and a part that failed says why. What is left
when the time is up stands under `left`. The peers' networks train the same number of tokens on the
same device in the same run, compiled, in bf16, with fused AdamW.

    kernels     attention of packed documents by each way there is, the LM head with its loss, and
                a matrix product, at the shapes of 124M, 1.5B and 7B: milliseconds, TFLOP/s, and how
                far each way is from the mask in fp32
    step-*      the loop that trains, on packed documents: tokens/s, memory, and the share of the
                device's peak, attention counted inside documents and below the diagonal only. Of
                the 7B shape there are as many layers as the device has room for
    decoding    the 7B shape in bf16 at batch 1, 8 and 64: tokens/s, and bytes that must be read
                over the bandwidth of the data sheet
    reference   losses of 200 steps of a small network on the CPU in fp32, and
    parity      how far those of the device are from them, in bf16 compiled
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_parts.sizes import Found, Sizes

from cluster.environment import prepare

Part = Callable[[Sizes, argparse.Namespace], Found]


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
        print(json.dumps(PARTS[options.child](Sizes(), options)))
        return
    found = known(options) | {"device": device_of()}
    ends, left = time.monotonic() + 60 * options.minutes, []
    for name in options.parts:
        if name in PEERS and getattr(options, name) is None:
            continue
        if "error" not in found.get(name, {"error": "not done"}):
            continue
        room = ends - time.monotonic()
        if room < 20:
            left.append(name)
            continue
        found[name] = in_child(name, options, room)
        options.results.write_text(json.dumps(found, indent=1))
    print(json.dumps(found | {"left": left} | ratios(found)))


def known(options: argparse.Namespace) -> Found:
    """What was found earlier."""
    found: Found = json.loads(options.results.read_text()) if options.results.exists() else {}
    return found


def device_of() -> str:
    """The name of the device; ends with a message where there is none."""
    import torch

    if not torch.cuda.is_available():
        sys.exit("no CUDA device is visible to PyTorch; this benchmark measures nothing else")
    return torch.cuda.get_device_name()


def in_child(name: str, options: argparse.Namespace, seconds: float) -> Found:
    """What a part found, in a process whose memory, compiled kernels and DeepSpeed are its own."""
    command = [sys.executable, __file__, "--child", name, "--results", str(options.results)]
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
    told: Found = json.loads(done.stdout.splitlines()[-1])
    return told | {"took": round(time.monotonic() - started, 1)}


def ratios(found: Found) -> Found:
    """Of the peers that were measured, how many times their tokens/s ours are."""
    ours = found.get("step-124M", {}).get("tokens_per_second")
    theirs = {name: found.get(name, {}).get("tokens_per_second") for name in PEERS}
    return {f"over_{n}": round(ours / t, 3) for n, t in theirs.items() if ours and t}


def part(module: str, function: str, *first: Any, given: str | None = None) -> Part:
    """A part by name: a child imports what is its own, and gets the option of that name."""

    def measured(sizes: Sizes, options: argparse.Namespace) -> Found:
        from importlib import import_module

        call = getattr(import_module(f"gpu_parts.{module}"), function)
        return call(*first, sizes, *([getattr(options, given)] if given else []))

    return measured


def parity(sizes: Sizes, options: argparse.Namespace) -> Found:
    """The device's losses beside those of part `reference`."""
    from gpu_parts.steps import parity as compared

    return compared(sizes, known(options)["reference"]["losses"])


PEERS = ("nanogpt", "nanochat")
PARTS: dict[str, Part] = {
    "kernels": part("kernels", "kernels"),
    "step-124M": part("steps", "step", "124M"),
    "nanogpt": part("peers", "nanogpt", given="nanogpt"),
    "nanochat": part("peers", "nanochat", given="nanochat"),
    "step-7B": part("steps", "step", "7B"),
    "decoding": part("decoding", "decoding"),
    "reference": part("steps", "reference"),
    "parity": parity,
    "step-1.5B": part("steps", "step", "1.5B"),
}


if __name__ == "__main__":
    main()
