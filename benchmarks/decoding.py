"""Greedy decoding with a key-value cache: Headrace against transformers, on the CPU.

    uv run python benchmarks/decoding.py [--tokens 128] [--rounds 5] [--shape 10M] [--threads 2]

Both load the same model folder, a LLaMA shape with random fp32 weights, read prompts of 16 tokens
and write the same number of tokens, as many rows at once as the batch says; the tokens must be
equal. Headrace does so three times: with its step as it is and compiled, and by the engine that
serves, whose batch is ragged. All take turns in one process.
Figures are milliseconds a step, medians over rounds, compiling left out; in brackets, how many
times as long transformers takes. The time is the CPU's with one thread, the clock's with more.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial

import torch
from transformers import AutoModelForCausalLM

from model import hub
from model.config import ModelConfig, from_depth
from model.generation import Ending, Token, generate
from model.generation.engine import Capacity, Engine, complete
from model.generation.request import Request
from model.transformer import Transformer

PROMPT = 16
SHAPES = {
    "3M": from_depth(4, vocab_size=4096, context=1024, width=192, heads=6),
    "10M": from_depth(6, vocab_size=4096, context=1024, width=320, heads=10),
    "29M": from_depth(8, vocab_size=4096, context=1024, width=512, heads=8),
    "91M": from_depth(12, vocab_size=4096, context=1024, width=768, heads=12),
}
Decoder = Callable[[], list[list[int]]]


def main() -> None:
    """Print the time of each side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=128, help="written by each row")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--shape", choices=SHAPES, help="only this one")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print("shape batch      headrace      compiled        engine  transformers")
    for name in [options.shape] if options.shape else SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            hub.save(folder, random_network(SHAPES[name]))
            for batch in (1, 8, 32):
                decoders = sides(folder, batch, options.tokens)
                *ours, theirs = (
                    1000 * s / options.tokens for s in measure(decoders, options.rounds)
                )
                told = "".join(f"{one:7.2f} ({theirs / one:.2f})" for one in ours)
                print(f"{name:5} {batch:5}{told} {theirs:13.2f}")


def random_network(config: ModelConfig) -> Transformer:
    """Weights large enough that the likeliest token is likeliest by far, in any order of adding."""
    torch.manual_seed(0)
    network = Transformer(config)
    for parameter in network.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.05)
    return network


def sides(folder: str, batch: int, tokens: int) -> list[Decoder]:
    """What each side does: continue the same prompts; transformers is the last."""
    ours = hub.load(folder)
    theirs = AutoModelForCausalLM.from_pretrained(folder).eval()
    generator = torch.Generator().manual_seed(batch)
    prompts = torch.randint(SHAPES["3M"].vocab_size, (batch, PROMPT), generator=generator)

    def headrace(compiled: bool) -> list[list[int]]:
        rows = generate(ours, prompts.tolist(), Ending(tokens), compiled=compiled)
        return [row.ids for row in rows]

    def engine() -> list[list[int]]:
        rows: list[list[int]] = [[] for _ in range(batch)]
        asked = [
            Request(prompt=prompt, max_tokens=tokens, on_token=partial(take, row))
            for row, prompt in zip(rows, prompts.tolist(), strict=True)
        ]
        complete(Engine(ours, Capacity(chunk=batch * PROMPT)), asked)
        return rows

    def take(row: list[int], token: Token) -> bool:
        row.append(token.id)
        return False

    def transformers() -> list[list[int]]:
        written = theirs.generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=tokens,
            do_sample=False,
            use_cache=True,
            eos_token_id=None,
            pad_token_id=0,
        )
        return written[:, PROMPT:].tolist()

    return [partial(headrace, False), partial(headrace, True), engine, transformers]


def measure(decoders: list[Decoder], rounds: int) -> list[float]:
    """Median seconds of each; what comes before, uncounted, compiles and compares the texts."""
    first, *others = (decode() for decode in [*decoders, *decoders])
    assert all(other == first for other in others), "the sides write different tokens"
    seconds: list[list[float]] = [[] for _ in decoders]
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    for _ in range(rounds):
        for decode, times in zip(decoders, seconds, strict=True):
            started = clock()
            decode()
            times.append(clock() - started)
    return [statistics.median(times) for times in seconds]


if __name__ == "__main__":
    main()
