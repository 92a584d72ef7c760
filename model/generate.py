"""Decoding: greedy, sampling, beam search, and the probability of given answers.

    generate(network, prompt_ids, max_tokens=64, decoding="sample", top_p=0.9, seed=1)

Every method reads its prompt once and then one token a step, through a key-value cache. Prompts of
different lengths share a batch: shorter ones are padded on the left with document 0, which real
tokens (document 1) do not see, so a row's text does not depend on its company.

Letters: B rows, T positions, V vocabulary.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from model.attention import Cache
from model.transformer import Transformer

log = logging.getLogger("headrace.generate")

Decoding = Literal["greedy", "sample", "beam"]


def generate(
    network: Transformer,
    prompt_ids: Sequence[int],
    *,
    max_tokens: int,
    decoding: Decoding = "greedy",
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    num_beams: int = 4,
    stop_ids: Sequence[int] = (),
    seed: int = 0,
) -> list[int]:
    """The ids that follow the prompt, at most `max_tokens`, without the stop id that ended them.

    `temperature`, `top_k`, `top_p` and `seed` shape sampling, `num_beams` beam search. A prompt
    that leaves no room in the network's context loses its beginning, with a warning.
    Raises `ValueError` for an empty prompt or a setting out of its range.
    """
    _check(network, [prompt_ids], max_tokens, temperature, top_k, top_p, num_beams)
    if decoding == "beam":
        return _beam(network, prompt_ids, max_tokens, num_beams, frozenset(stop_ids))
    return generate_batch(
        network,
        [prompt_ids],
        max_tokens=max_tokens,
        decoding=decoding,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        stop_ids=stop_ids,
        seeds=[seed],
    )[0]


@torch.no_grad()
def generate_batch(
    network: Transformer,
    prompts: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    decoding: Literal["greedy", "sample"] = "greedy",
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
    stop_ids: Sequence[int] = (),
    seeds: Sequence[int] | None = None,
) -> list[list[int]]:
    """`generate` for several prompts at once; row i is sampled with `seeds[i]` (default: i)."""
    _check(network, prompts, max_tokens, temperature, top_k, top_p)
    if decoding not in ("greedy", "sample"):
        raise ValueError(f"decoding is {decoding!r}; it must be greedy | sample | beam")
    seeds = range(len(prompts)) if seeds is None else seeds
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    reader = _Reader(network, prompts, max_tokens)
    logits_BV = reader.read_prompts()
    rows: list[list[int]] = [[] for _ in prompts]
    ended = [False] * len(prompts)
    for _ in range(max_tokens):
        if decoding == "greedy":
            tokens_B = logits_BV.argmax(-1)
        else:
            tokens_B = _draw(restrict(logits_BV, temperature, top_k, top_p), generators)
        for row, token in enumerate(tokens_B.tolist()):
            ended[row] = ended[row] or token in stop_ids
            if not ended[row]:
                rows[row].append(token)
        if all(ended) or len(rows[ended.index(False)]) == max_tokens:
            break
        logits_BV = reader.read(tokens_B)
    return rows


def restrict(
    logits_BV: Tensor,
    temperature: float = 1.0,
    top_k: int | None = None,
    top_p: float | None = None,
) -> Tensor:
    """Log-probabilities of softmax(logits / temperature), renormalised over what may be drawn.

    `top_k` keeps the k likeliest tokens (Fan et al. 2018); `top_p` the smallest set of likeliest
    tokens whose mass reaches p (Holtzman et al. 2020, section 3.1). Given both, top_k comes first.
    """
    logits_BV = logits_BV.float() / temperature
    if top_k is not None and top_k < logits_BV.shape[-1]:
        kept = torch.zeros_like(logits_BV, dtype=torch.bool)
        kept.scatter_(-1, logits_BV.topk(top_k, -1).indices, True)
        logits_BV = logits_BV.masked_fill(~kept, -math.inf)
    if top_p is not None:
        falling_BV, order = logits_BV.sort(stable=True, dim=-1, descending=True)
        probs_BV = falling_BV.softmax(-1)
        mass_before = probs_BV.cumsum(-1) - probs_BV
        dropped = torch.zeros_like(logits_BV, dtype=torch.bool)
        dropped.scatter_(-1, order, mass_before >= top_p)
        logits_BV = logits_BV.masked_fill(dropped, -math.inf)
    return logits_BV.log_softmax(-1)


@torch.no_grad()
def choice_log_probabilities(
    network: Transformer, prompt_ids: Sequence[int], choices: Sequence[Sequence[int]]
) -> list[float]:
    """log p(choice | prompt) in nats of each token sequence: the sum over its tokens.

    The prompt is read once. Choices of different lengths are not normalised by length.
    """
    longest = max(len(choice) for choice in choices)
    if min(len(choice) for choice in choices) < 1:
        raise ValueError("a choice has no tokens; each needs at least one")
    reader = _Reader(network, [prompt_ids], longest)
    first_V = reader.read_prompts()[0].float().log_softmax(-1)
    totals = [float(first_V[choice[0]]) for choice in choices]
    if longest == 1:
        return totals
    reader.select([0] * len(choices))
    padded = torch.tensor([[*choice, *[0] * (longest - len(choice))] for choice in choices])
    log_probs = reader.read_many(padded[:, :-1]).float().log_softmax(-1)
    taken = log_probs.gather(-1, padded[:, 1:, None].to(log_probs.device))[..., 0].tolist()
    return [
        total + sum(row[: len(choice) - 1])
        for total, row, choice in zip(totals, taken, choices, strict=True)
    ]


@dataclass(frozen=True)
class _Hypothesis:
    """A beam: its tokens and the sum of their log-probabilities, in nats."""

    tokens: tuple[int, ...]
    score: float


@torch.no_grad()
def _beam(
    network: Transformer, prompt: Sequence[int], max_tokens: int, beams: int, stops: frozenset[int]
) -> list[int]:
    """The best of `beams` hypotheses by the sum of log-probabilities, not normalised by length.

    An extension by a stop id is a finished hypothesis. The search ends when no running one can
    overtake the best that finished: a sum of log-probabilities only falls.
    """
    reader = _Reader(network, [prompt], max_tokens)
    logits_BV = reader.read_prompts()
    running = [_Hypothesis((), 0.0)]
    best: _Hypothesis | None = None
    for step in range(max_tokens):
        running, parents, ended = _extend(running, logits_BV, beams, stops)
        best = max([*ended, *([best] if best else [])], key=lambda h: h.score, default=None)
        if not running or (best and best.score >= running[0].score):
            break
        if step < max_tokens - 1:
            reader.select(parents)
            logits_BV = reader.read(torch.tensor([h.tokens[-1] for h in running]))
    finalists = [*running, *([best] if best else [])]
    return list(max(finalists, key=lambda h: h.score).tokens)


def _extend(
    running: list[_Hypothesis], logits_BV: Tensor, beams: int, stops: frozenset[int]
) -> tuple[list[_Hypothesis], list[int], list[_Hypothesis]]:
    """The `beams` best one-token extensions that go on, the rows they came from, and the ended."""
    log_probs_BV = logits_BV.double().log_softmax(-1)
    scores_BV = log_probs_BV + torch.tensor([[h.score] for h in running], device=logits_BV.device)
    vocab = scores_BV.shape[1]
    # Each row can end in every stop id, so this many candidates always leave `beams` that go on.
    count = min(scores_BV.numel(), beams + len(stops) * len(running))
    scores, places = (z.tolist() for z in scores_BV.flatten().topk(count))
    going: list[_Hypothesis] = []
    parents: list[int] = []
    ended: list[_Hypothesis] = []
    for score, (row, token) in zip(scores, (divmod(place, vocab) for place in places), strict=True):
        if token in stops:
            ended.append(_Hypothesis(running[row].tokens, score))
        elif len(going) < beams:
            going.append(_Hypothesis((*running[row].tokens, token), score))
            parents.append(row)
    return going, parents, ended


class _Reader:
    """Feeds tokens to a network in evaluation mode and keeps its cache."""

    def __init__(self, network: Transformer, prompts: Sequence[Sequence[int]], room: int) -> None:
        keep = network.config.context - room
        self.network = network.eval()
        self.device = network.embedding.weight.device
        self.prompts = [_fit(prompt, keep) for prompt in prompts]
        self.cache = Cache(network.config)
        self.lengths_B1 = torch.tensor([[len(prompt)] for prompt in self.prompts])

    def read_prompts(self) -> Tensor:
        """Logits `[B, V]` after each prompt's last token."""
        longest = int(self.lengths_B1.max())
        rows = [[0] * (longest - len(prompt)) + prompt for prompt in self.prompts]
        positions_BT = torch.arange(longest) - (longest - self.lengths_B1)
        hidden_BTD = self._forward(torch.tensor(rows), positions_BT)
        return self.network.logits(hidden_BTD[:, -1])

    def select(self, rows: list[int]) -> None:
        """Go on with these rows, in this order; a row named twice is copied."""
        self.lengths_B1 = self.lengths_B1[rows]
        self.cache.select(torch.tensor(rows, device=self.device))

    def read(self, tokens_B: Tensor) -> Tensor:
        """Logits `[B, V]` after one more token a row."""
        return self.read_many(tokens_B[:, None])[:, -1]

    def read_many(self, tokens_BT: Tensor) -> Tensor:
        """Logits `[B, T, V]` after each of the next tokens of every row."""
        positions_BT = self.lengths_B1 + torch.arange(tokens_BT.shape[1])
        self.lengths_B1 = self.lengths_B1 + tokens_BT.shape[1]
        return self.network.logits(self._forward(tokens_BT, positions_BT))

    def _forward(self, tokens_BT: Tensor, positions_BT: Tensor) -> Tensor:
        documents_BT = (positions_BT >= 0).long().to(self.device)
        positions_BT = positions_BT.clamp(min=0).to(self.device)
        return self.network(tokens_BT.to(self.device), documents_BT, positions_BT, self.cache)


def _fit(prompt: Sequence[int], keep: int) -> list[int]:
    if len(prompt) > keep:
        log.warning(
            "prompt cut from %d to its last %d tokens to fit the context", len(prompt), keep
        )
    return list(prompt[-keep:])


def _draw(log_probs_BV: Tensor, generators: list[torch.Generator]) -> Tensor:
    """One token a row from its own generator; on the CPU, where a seed always means the same."""
    probs_BV = log_probs_BV.exp().cpu()
    draws = [
        torch.multinomial(probs_V, 1, generator=generator)
        for probs_V, generator in zip(probs_BV, generators, strict=True)
    ]
    return torch.cat(draws)


def _check(
    network: Transformer,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
    temperature: float,
    top_k: int | None,
    top_p: float | None,
    num_beams: int = 1,
) -> None:
    context, shortest = network.config.context, min(map(len, prompts))
    room = f"1 to {context - 1} (the context is {context})"
    warm = "above 0; decoding=greedy takes the likeliest"
    rules = [
        ("the prompt's length", shortest, shortest >= 1, "at least 1"),
        ("max_tokens", max_tokens, 1 <= max_tokens < context, room),
        ("temperature", temperature, temperature > 0, warm),
        ("top_k", top_k, top_k is None or top_k >= 1, "at least 1"),
        ("top_p", top_p, top_p is None or 0 < top_p <= 1, "above 0, at most 1"),
        ("num_beams", num_beams, num_beams >= 1, "at least 1"),
    ]
    for name, value, holds, allowed in rules:
        if not holds:
            raise ValueError(f"{name} is {value}; it must be {allowed}")
