"""Greedy decoding with a key-value cache: Headrace against transformers, on the CPU.

    uv run python benchmarks/decoding.py [--shape 91M] [--threads 2] [--tokens 24] [--rounds 3]
                                         [--requests 48] [--dtype float32]

All sides load the same model folder, a LLaMA shape with random weights, and write the same tokens,
which is checked in fp32: in 16 bits close scores are equal, and kernels that add up otherwise
choose otherwise. All take turns in one process.

First, equal lengths: prompts of 16 tokens, as many rows at once as the batch says. Headrace does it
four times: with its step as it is and compiled, and by the engine that serves, whose batch is
ragged, in `--dtype` and then with its matrices in fp16; it guesses as after many answers. Figures
are milliseconds a step, the least over rounds, compiling left out; in brackets, how many times as
long transformers takes.

Then random lengths: prompts of 16 to 512 tokens and answers of 16 to 256, of which 32 streams ask,
each the next as soon as it has its last. The engine stands beside transformers' static batches of
32, padded and run until the longest answer is there, and transformers' continuous batching. Figures
are tokens of answers a second, once through, and the engine's seconds to the first token, of 50 and
90 % of the requests behind the first 32. The time is the CPU's with one thread, the clock's with
more; with 91M and two threads all should take about eight minutes.
"""

import argparse
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

from model import hub
from model.config import ModelConfig
from model.generation import Ending, Token, generate
from model.generation.engine import Capacity, Engine, complete
from model.generation.packed import Half, packed
from model.generation.request import Request
from model.shapes import from_depth
from model.transformer import Transformer

PROMPT = 16
PROMPTS, ANSWERS = (16, 512), (16, 256)
STREAMS, PAGE = 32, 32
ROUNDED = 3
"""The place, among the sides, of the one with matrices in fp16."""
SHAPES = {
    "3M": from_depth(4, vocab_size=4096, context=1024, width=192, heads=6),
    "10M": from_depth(6, vocab_size=4096, context=1024, width=320, heads=10),
    "29M": from_depth(8, vocab_size=4096, context=1024, width=512, heads=8),
    "91M": from_depth(12, vocab_size=4096, context=1024, width=768, heads=12),
}
Decoder = Callable[[], list[list[int]]]
Asked = tuple[list[int], int]
"""A prompt, and how many tokens are to follow."""


def main() -> None:
    """Print the time of each side."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=24, help="written by each row")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=48, help="of random lengths; 0 for none")
    parser.add_argument("--shape", choices=SHAPES, help="only this one")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dtype = getattr(torch, options.dtype)
    for name in [options.shape] if options.shape else SHAPES:
        with tempfile.TemporaryDirectory() as folder:
            hub.save(folder, random_network(SHAPES[name]))
            columns = ("headrace", "compiled", "engine", "in fp16", "transformers")
            print("shape batch" + "".join(f"{column:>14}" for column in columns))
            for batch in (1, 8, 32):
                decoders = sides(folder, batch, options.tokens, dtype)
                *ours, theirs = (
                    1000 * s / options.tokens for s in measure(decoders, options.rounds, dtype)
                )
                told = "".join(f"{one:7.2f} ({theirs / one:.2f})" for one in ours)
                print(f"{name:5} {batch:5}{told} {theirs:13.2f}", flush=True)
            if options.requests:
                arrivals(folder, options.requests, dtype)


def random_network(config: ModelConfig) -> Transformer:
    """Weights large enough that the likeliest token is likeliest by far, in any order of adding."""
    torch.manual_seed(0)
    network = Transformer(config)
    for parameter in network.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.05)
    return network


def sides(folder: str, batch: int, tokens: int, dtype: torch.dtype) -> list[Decoder]:
    """What each side does: continue the same prompts; transformers is the last."""
    ours = hub.load(folder, dtype)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    generator = torch.Generator().manual_seed(batch)
    prompts = torch.randint(SHAPES["3M"].vocab_size, (batch, PROMPT), generator=generator)
    engines = [
        Engine(network, Capacity(chunk=batch * PROMPT)) for network in (ours, packed(ours, Half))
    ]
    for one in engines:
        one.drafts.left = one.drafts.left and 1  # as after many answers

    def headrace(compiled: bool) -> list[list[int]]:
        rows = generate(ours, prompts.tolist(), Ending(tokens), compiled=compiled)
        return [row.ids for row in rows]

    def engine(kept: Engine) -> list[list[int]]:
        kept.prefixes.forget()
        rows: list[list[int]] = [[] for _ in range(batch)]
        asked = [
            Request(prompt=prompt, max_tokens=tokens, on_token=partial(take, row))
            for row, prompt in zip(rows, prompts.tolist(), strict=True)
        ]
        complete(kept, asked)
        return rows

    return [
        partial(headrace, False),
        partial(headrace, True),
        *(partial(engine, kept) for kept in engines),
        lambda: static(theirs, [(prompt, tokens) for prompt in prompts.tolist()]),
    ]


def take(row: list[int], token: Token) -> bool:
    """Note a token; no answer ends by what it says."""
    row.append(token.id)
    return False


def static(model: Any, asked: Sequence[Asked]) -> list[list[int]]:
    """One batch of transformers, padded on the left."""
    longest, most = max(len(p) for p, _ in asked), max(n for _, n in asked)
    padded = torch.tensor([[0] * (longest - len(p)) + p for p, _ in asked])
    seen = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p, _ in asked])
    with torch.inference_mode():
        written = model.generate(
            padded,
            attention_mask=seen,
            max_new_tokens=most,
            do_sample=False,
            use_cache=True,
            eos_token_id=None,
            pad_token_id=0,
        )
    rows = written[:, longest:].tolist()
    return [row[:count] for row, (_, count) in zip(rows, asked, strict=True)]


def measure(decoders: list[Decoder], rounds: int, dtype: torch.dtype) -> list[float]:
    """The least seconds of each; a turn before, uncounted, compiles, and compares texts in fp32."""
    texts = [decode() for decode in [*decoders, *decoders]]
    first, *others = (text for n, text in enumerate(texts) if n % len(decoders) != ROUNDED)
    same = dtype != torch.float32 or all(other == first for other in others)
    assert same, "the sides write different tokens"
    return [
        min(times) for times in zip(*(map(timed, decoders) for _ in range(rounds)), strict=True)
    ]


def timed(decode: Callable[[], object]) -> float:
    """Seconds that it takes."""
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    started = clock()
    decode()
    return clock() - started


def arrivals(folder: str, count: int, dtype: torch.dtype) -> None:
    """Print tokens a second of each side where lengths are random."""
    numbers, vocabulary = random.Random(0), SHAPES["3M"].vocab_size
    asked = [
        ([numbers.randrange(vocabulary) for _ in range(numbers.randint(*PROMPTS))], length)
        for length in (numbers.randint(*ANSWERS) for _ in range(count))
    ]
    tokens = sum(length for _, length in asked)
    engine = Engine(hub.load(folder, dtype), Capacity(rows=STREAMS))
    complete(engine, [Request(prompt=[1], max_tokens=2)] * STREAMS)  # lays matrices out
    ours = Streams(engine, asked)
    seconds = [timed(ours.run)]
    waits = sorted(ours.waits[STREAMS:]) or sorted(ours.waits)
    model = AutoModelForCausalLM.from_pretrained(
        folder, attn_implementation="sdpa", dtype=dtype
    ).eval()
    batches = [asked[first : first + STREAMS] for first in range(0, count, STREAMS)]
    theirs: list[list[int]] = []
    seconds.append(timed(lambda: theirs.extend(row for b in batches for row in static(model, b))))
    third: list[list[int]] = []
    seconds.append(timed(lambda: third.extend(continuous(model, asked))))
    texts = zip(ours.rows, theirs, third, strict=True)
    same = sum(one == other == another for one, other, another in texts)
    print(f"random lengths, {count} requests, {same} with the same text from all three sides:")
    print(f"  engine              {tokens / seconds[0]:8.1f} tokens/s; first token after ", end="")
    print(f"{waits[len(waits) // 2]:.2f} s of half, {waits[len(waits) * 9 // 10]:.2f} s of 90 %")
    for name, one in zip(("static batches", "continuous batching"), seconds[1:], strict=True):
        print(f"  {name:20}{tokens / one:8.1f} ({one / seconds[0]:.2f})")


def continuous(model: Any, asked: Sequence[Asked]) -> list[list[int]]:
    """Transformers' continuous batching, with room for all streams at their longest."""
    room = ContinuousBatchingConfig(
        page_size=PAGE,
        num_blocks=STREAMS * (PROMPTS[1] + ANSWERS[1]) // PAGE,
        max_batch_tokens=512,
        max_requests_per_batch=STREAMS,
        use_async_batching=False,
    )
    greedy = GenerationConfig(do_sample=False, eos_token_id=-1, pad_token_id=0)
    written: dict[str, list[int]] = {}
    with model.continuous_batching_context_manager(
        greedy, continuous_batching_config=room
    ) as manager:
        for number, (prompt, most) in enumerate(asked):
            manager.add_request(prompt, request_id=str(number), max_new_tokens=most)
        while len(written) < len(asked):
            result = manager.get_result()
            assert result is not None and result.error is None, "continuous batching broke off"
            written[result.request_id] = result.generated_tokens
    return [written[str(number)] for number in range(len(asked))]


class Streams:
    """The engine asked by 32 streams, each for the next answer when it has its last."""

    def __init__(self, engine: Engine, asked: Sequence[Asked]) -> None:
        self.engine = engine
        self.rows: list[list[int]] = [[] for _ in asked]
        self.waits: list[float] = []
        self.left = iter(list(enumerate(asked)))

    def run(self) -> None:
        """Until all are answered."""
        for _ in range(STREAMS):
            self.ask()
        while self.engine.step() or self.engine.waiting:
            pass

    def ask(self) -> None:
        """Submit the next request, if there is one."""
        number, (prompt, most) = next(self.left, (0, ([], 0)))
        if not most:
            return
        row, begun = self.rows[number], time.perf_counter()

        def on_token(token: Token) -> bool:
            if not row:
                self.waits.append(time.perf_counter() - begun)
            return take(row, token)

        request = Request(
            prompt=prompt, max_tokens=most, on_token=on_token, on_end=lambda reason: self.ask()
        )
        self.engine.submit(request)


if __name__ == "__main__":
    main()
