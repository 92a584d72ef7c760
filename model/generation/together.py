"""Many texts, and the likelihoods of many answers, at once: decoders by the engine.

    rows = generate(network, [[5, 8], [3]], Ending(64), Sampling(top_p=0.9), seeds=[1, 2])
    scored = score(network, [([5, 8], [[1], [2, 3]])])

A step that is compiled, and an encoder-decoder, go by the `Reader` (`model.generation.stream`,
`model.generation.choices`).
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from model.generation.choices import Scored, score_choices
from model.generation.drafts import BEGIN
from model.generation.ending import Continuation, Ending, Token
from model.generation.engine import Capacity, Engine, complete
from model.generation.reader import Network, check, fit
from model.generation.request import Reason, Request
from model.generation.sampling import GREEDY, Sampling
from model.generation.stream import stream

CHUNK = 512
"""Tokens of prompts that are read in a step; nobody waits for a first token here."""
BLOCK = 16
"""Rows of one batch by the `Reader`, and prompts that are read before further choices of them."""
Choices = tuple[Sequence[int], Sequence[Sequence[int]]]
"""A prompt, and what may follow it."""
Progress = Callable[[int, int], object]


def silent(done: int, of: int) -> None:
    """Tell nobody."""


def generate(
    network: Network,
    prompts: Sequence[Sequence[int]],
    ending: Ending,
    sampling: Sampling = GREEDY,
    *,
    samples: int = 1,
    seeds: Sequence[int] | None = None,
    likeliest: int = 0,
    start_ids: Sequence[int] = (),
    compiled: bool = False,
    progress: Progress = silent,
) -> list[Continuation]:
    """What follows each prompt, `samples` times over; the arguments are those of `stream`.

    `progress` is told how many rows have ended, of how many.
    """
    check(network, prompts, ending.max_tokens, start_ids)
    rows = [prompt for prompt in prompts for _ in range(samples)]
    seeds = range(len(rows)) if seeds is None else seeds
    if not compiled and network.config.family == "decoder":
        return _by_engine(network, rows, ending, sampling, seeds, likeliest, progress)
    size = len(prompts) if compiled else BLOCK
    found: list[Continuation] = []
    for first in range(0, len(prompts), size):
        part = seeds[samples * first : samples * (first + size)]
        steps = stream(
            network,
            prompts[first : first + size],
            ending,
            sampling,
            samples=samples,
            seeds=part,
            likeliest=likeliest,
            start_ids=start_ids,
            compiled=compiled,
        )
        found += _gathered(steps, len(part), ending)
        progress(len(found), len(rows))
    return found


def _by_engine(
    network: Network,
    prompts: Sequence[Sequence[int]],
    ending: Ending,
    sampling: Sampling,
    seeds: Sequence[int],
    likeliest: int,
    progress: Progress,
) -> list[Continuation]:
    """What follows each prompt, drawn with the seed beside it; a decoder's."""
    written = [_Written(ending) for _ in prompts]
    done = itertools.count(1)

    def on_end(reason: Reason) -> None:
        progress(next(done), len(prompts))

    asked = [
        _request(network, prompt, one, sampling, seed, likeliest, on_end)
        for prompt, seed, one in zip(prompts, seeds, written, strict=True)
    ]
    complete(_engine(network, len(prompts), ending.max_tokens), asked)
    return [one.continuation() for one in written]


def tokens(
    network: Network,
    prompt: Sequence[int],
    ending: Ending,
    sampling: Sampling = GREEDY,
    *,
    seed: int = 0,
    likeliest: int = 0,
    start_ids: Sequence[int] = (),
    compiled: bool = False,
) -> Iterator[Token]:
    """What follows a prompt, as it is chosen; the arguments are those of `stream`."""
    if compiled or network.config.family != "decoder":
        how = {"likeliest": likeliest, "start_ids": start_ids, "compiled": compiled}
        for (token,) in stream(network, [prompt], ending, sampling, seeds=[seed], **how):
            if token is not None:
                yield token
        return
    check(network, [prompt], ending.max_tokens, ())
    written, told = _Written(ending), 0
    engine = _engine(network, 1, ending.max_tokens)
    engine.submit(_request(network, prompt, written, sampling, seed, likeliest))
    while engine.step():
        yield from written.tokens[told:]
        told = len(written.tokens)


def _request(
    network: Network,
    prompt: Sequence[int],
    written: "_Written",
    sampling: Sampling,
    seed: int,
    likeliest: int,
    on_end: Callable[[Reason], None] = lambda reason: None,
) -> Request:
    """What is asked of an engine for a prompt, cut where it leaves no room."""
    ending = written.ending
    return Request(
        prompt=fit(prompt, network.config.context - ending.max_tokens),
        max_tokens=ending.max_tokens,
        stop_ids=ending.stop_ids,
        sampling=sampling,
        seed=seed,
        likeliest=likeliest,
        on_token=written.take,
        on_end=on_end,
    )


class _Written:
    """What a row writes."""

    def __init__(self, ending: Ending) -> None:
        self.ending, self.tokens = ending, list[Token]()

    def take(self, token: Token) -> bool:
        """Whether this token is the last."""
        self.tokens.append(token)
        return self.ending.stopped([token.id for token in self.tokens])

    def continuation(self) -> Continuation:
        """All of it, and why it ended."""
        whole = len(self.tokens) < self.ending.max_tokens or self.ending.stopped(
            [token.id for token in self.tokens]
        )
        return Continuation(tuple(self.tokens), "stop" if whole else "length")


def _gathered(
    steps: Iterator[list[Token | None]], count: int, ending: Ending
) -> list[Continuation]:
    rows = [_Written(ending) for _ in range(count)]
    for tokens in steps:
        for row, token in zip(rows, tokens, strict=True):
            if token is not None:
                row.tokens.append(token)
    return [row.continuation() for row in rows]


def score(
    network: Network,
    asked: Sequence[Choices],
    start_ids: Sequence[int] = (),
    progress: Progress = silent,
) -> list[list[Scored]]:
    """log p(choice | prompt) of each choice of each prompt: the sum over its tokens.

    Prompts, and what several begin with, are read once. Choices of different lengths are not
    normalised by length. A prompt too long for the context loses its beginning, with a warning.
    `progress` is told how many prompts are done, of how many. Raises as `score_choices` does.
    """
    if network.config.family != "decoder":
        scored = []
        for prompt, choices in asked:
            scored.append(score_choices(network, prompt, choices, start_ids))
            progress(len(scored), len(asked))
        return scored
    found = [[Scored(0.0, greedy=False)] * len(choices) for _, choices in asked]
    left, done = [len(choices) for _, choices in asked], itertools.count(1)

    def tell(place: int, number: int, tokens: Sequence[Token]) -> None:
        # Equal scores count as the likeliest, whichever of them is written.
        greedy = all(token.log_prob >= token.likeliest[0][1] for token in tokens)
        found[place][number] = Scored(sum(token.log_prob for token in tokens), greedy)
        left[place] -= 1
        if not left[place]:
            progress(next(done), len(asked))

    requests = [
        _scoring(network, *asked[place], number, partial(tell, place, number))
        for place, number in _in_turn(left)
    ]
    complete(_engine(network, len(requests), 0), requests)
    return found


def _in_turn(counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Places and numbers of choices: the first of some prompts, then all others of these, which
    find read what they begin with.
    """
    for first in range(0, len(counts), BLOCK):
        block = range(first, min(first + BLOCK, len(counts)))
        for number in range(max(counts[place] for place in block)):
            yield from ((place, number) for place in block if number < counts[place])


def _scoring(
    network: Network,
    prompt: Sequence[int],
    choices: Sequence[Sequence[int]],
    number: int,
    tell: Callable[[list[Token]], None],
) -> Request:
    """A request for the log-probabilities of a choice's tokens."""
    if not min(map(len, choices)):
        raise ValueError("a choice has no tokens; each needs at least one")
    # The last token of a choice is predicted and never read.
    room = max(map(len, choices)) - 1
    check(network, [prompt], room, ())
    kept = fit(prompt, network.config.context - room)
    ids = [*kept, *choices[number]]
    return Request(prompt=ids, max_tokens=0, scored_from=len(kept), likeliest=1, on_prompt=tell)


def _engine(network: Network, rows: int, written: int) -> Engine:
    """An engine for so many rows, each of which writes so many tokens at most."""
    tokens, packing = max(Capacity().tokens, network.config.context), rows > 1 or written > BEGIN
    rows = max(1, min(rows, Capacity().rows))
    return Engine(network, Capacity(rows=rows, chunk=CHUNK, tokens=tokens, packing=packing))
