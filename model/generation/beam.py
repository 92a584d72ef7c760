"""Beam search: the likeliest continuation, as far as a few hypotheses show.

Wu et al. 2016, section 7. Letters: B hypotheses, V vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from model.generation.ending import Continuation, Ending, Token
from model.generation.reader import Network, Reader


@dataclass(frozen=True)
class Hypothesis:
    """A continuation and its log-probability in nats, with that of the stop id that ended it."""

    tokens: tuple[Token, ...] = ()
    log_prob: float = 0.0
    ended: bool = False


@torch.inference_mode()
def beam_search(
    network: Network,
    prompt: Sequence[int],
    ending: Ending,
    *,
    beams: int = 4,
    length_penalty: float = 0.0,
    start_ids: Sequence[int] = (),
) -> Continuation:
    """The continuation with the best score that `beams` hypotheses lead to.

    The score is log p / ((5 + n) / 6)^a of n tokens, the stop id among them, with a the
    `length_penalty` (Wu et al. 2016, equation 14). At 0 it is the log-probability itself, and the
    answer that of Transformers; else that library divides by n^a, which favours longer answers more
    and may choose another. The larger, the longer the answers. Each step keeps the `beams`
    likeliest extensions that go on; those that end are finished when they are among the `beams`
    likeliest of all. The search stops when no running hypothesis can overtake the best finished
    one. Raises as `stream` does.
    """
    if beams < 1:
        raise ValueError(f"num_beams is {beams}; it must be at least 1")

    def score(log_prob: float, length: int) -> float:
        return log_prob / ((5 + length) / 6) ** length_penalty

    reader = Reader(network, [prompt], ending.max_tokens, start_ids)
    logits_BV = reader.read_prompts()
    running, best, best_score = [Hypothesis()], Hypothesis(), -torch.inf
    for length in range(1, ending.max_tokens + 1):
        running, parents, finished = _extend(running, logits_BV, beams, ending)
        if length == ending.max_tokens:
            finished, running = [*finished, *running], []
        for one in finished:
            if score(one.log_prob, length) > best_score:
                best, best_score = one, score(one.log_prob, length)
        # A log-probability only falls; what it is divided by is largest at one of these lengths.
        lengths = (length + 1, ending.max_tokens)
        # The first is the best of those that go on.
        if not running or best_score >= max(score(running[0].log_prob, n) for n in lengths):
            break
        reader.select(parents)
        logits_BV = reader.read(torch.tensor([one.tokens[-1].id for one in running]))
    return Continuation(best.tokens, "stop" if best.ended else "length")


def _extend(
    running: list[Hypothesis], logits_BV: Tensor, beams: int, ending: Ending
) -> tuple[list[Hypothesis], list[int], list[Hypothesis]]:
    """The `beams` best one-token extensions that go on, the rows they came from, and the ended."""
    # Sums over many tokens are compared: in fp32 rounding would choose between close ones.
    log_probs_BV = logits_BV.double().log_softmax(-1).cpu()
    scores_BV = log_probs_BV + torch.tensor([[one.log_prob] for one in running])
    # Each hypothesis can end in every stop id, so this many candidates leave `beams` that go on.
    count = min(scores_BV.numel(), beams + len(ending.stop_ids) * len(running))
    places = scores_BV.flatten().topk(count).indices.tolist()
    going: list[Hypothesis] = []
    parents: list[int] = []
    ended: list[Hypothesis] = []
    for rank, (row, token) in enumerate(divmod(place, scores_BV.shape[1]) for place in places):
        one = _extended(running[row], Token(token, float(log_probs_BV[row, token])), ending)
        if one.ended and rank < beams:
            ended.append(one)
        elif not one.ended and len(going) < beams:
            going.append(one)
            parents.append(row)
    return going, parents, ended


def _extended(one: Hypothesis, token: Token, ending: Ending) -> Hypothesis:
    log_prob = one.log_prob + token.log_prob
    if token.id in ending.stop_ids:
        return Hypothesis(one.tokens, log_prob, ended=True)
    tokens = (*one.tokens, token)
    return Hypothesis(tokens, log_prob, ending.stopped([token.id for token in tokens]))
