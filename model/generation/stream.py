"""Greedy decoding and sampling: many prompts at once, token by token.

Letters: B rows, V vocabulary.
"""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from model.generation.ending import Ending, Token
from model.generation.reader import Network, Reader
from model.generation.sampling import GREEDY, Sampling, draw, restrict, uniforms


@torch.inference_mode()
def stream(
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
) -> Iterator[list[Token | None]]:
    """The next token of every row, step by step; None for a row that has ended.

    Rows are the prompts, each `samples` times in a row. Row i is drawn with `seeds[i]` (default: i)
    and does not depend on its company. Each token comes with the step's `likeliest` ones. The
    decoder of an encoder-decoder begins with `start_ids`. A prompt that leaves no room in the
    network's context loses its beginning, with a warning. `compiled` is for long or many texts: the
    first takes half a minute more, all others four fifths of the time or less on a CPU. Raises
    `ValueError` as `Reader` does.
    """
    count = samples * len(prompts)
    # All at once: which rows have ended must not shift what the others draw.
    uniform_BT = uniforms(range(count) if seeds is None else seeds, ending.max_tokens)
    reader = Reader(network, prompts, ending.max_tokens, start_ids, compiled)
    logits_BV = reader.read_prompts().repeat_interleave(samples, 0)
    if samples > 1:
        reader.select([row // samples for row in range(count)])
    rows = _Rows(count, ending)
    for step in range(ending.max_tokens):
        chosen_B = _choose(logits_BV, sampling, uniform_BT[:, step])
        yield rows.take(tokens_of(logits_BV, chosen_B, likeliest))
        going = rows.going()
        if not going or step == ending.max_tokens - 1:
            return
        # Rows that ended are read along until half have, or to the end by a step compiled for all.
        if 2 * len(going) <= len(chosen_B) and not compiled:
            reader.select(going)
            rows.keep(going)
            chosen_B, uniform_BT = chosen_B[going], uniform_BT[going]
        logits_BV = reader.read(chosen_B)


def tokens_of(logits_BV: Tensor, chosen_B: Tensor, likeliest: int = 0) -> list[Token]:
    """The tokens chosen in each row, with their log-probabilities."""
    logits_BV = logits_BV.float()
    total_B1 = logits_BV.logsumexp(-1, keepdim=True)
    taken_B = (logits_BV.gather(-1, chosen_B[:, None]) - total_B1)[:, 0]
    pairs = zip(chosen_B.tolist(), taken_B.tolist(), strict=True)
    if not likeliest:
        return [Token(*pair) for pair in pairs]
    best = (logits_BV - total_B1).topk(min(likeliest, logits_BV.shape[-1]), -1)
    best_rows = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [
        Token(*pair, tuple(zip(*row, strict=True)))
        for pair, row in zip(pairs, best_rows, strict=True)
    ]


def _choose(logits_BV: Tensor, sampling: Sampling, uniform_B: Tensor) -> Tensor:
    if sampling.greedy:
        return logits_BV.argmax(-1)
    return draw(restrict(logits_BV, sampling), uniform_B)


class _Rows:
    """What each row has written, and at which places of the batch rows still go on."""

    def __init__(self, count: int, ending: Ending) -> None:
        self.ending = ending
        self.written: list[list[int]] = [[] for _ in range(count)]
        self.ended = [False] * count
        self.places = list(range(count))
        """The row at each place."""

    def take(self, tokens: list[Token]) -> list[Token | None]:
        """Add a token to each row that goes on; by row, what was added."""
        taken: list[Token | None] = [None] * len(self.written)
        for row, token in zip(self.places, tokens, strict=True):
            if token.id in self.ending.stop_ids:
                self.ended[row] = True
            if not self.ended[row]:
                taken[row] = token
                self.written[row].append(token.id)
                self.ended[row] = self.ending.stopped(self.written[row])
        return taken

    def going(self) -> list[int]:
        """The places of rows that have not ended."""
        return [place for place, row in enumerate(self.places) if not self.ended[row]]

    def keep(self, places: list[int]) -> None:
        """Leave the other places."""
        self.places = [self.places[place] for place in places]
