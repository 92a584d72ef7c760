"""The next token of each row, by the row's own settings.

Letters: R rows, T positions, V vocabulary.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import torch
from torch import Tensor

from model.generation.ending import Token
from model.generation.request import Request
from model.generation.sampling import draw, restrict
from model.generation.stream import tokens_of

Turn = tuple[Request, list[int], float]
"""A request, the tokens of its prompt and answer so far, and a number in [0, 1) to draw by."""


def choose(logits_RV: Tensor, turns: Sequence[Turn]) -> list[Token]:
    """The next tokens, each with its log-probability by the network itself."""
    shaped_RV = logits_RV
    if any(request.shaped for request, _, _ in turns):
        shaped_RV = logits_RV.clone()
        for logits_V, (request, tokens, _) in zip(shaped_RV, turns, strict=True):
            shape(logits_V, request, tokens)
    chosen_R = torch.empty(len(turns), dtype=torch.long, device=logits_RV.device)
    order = sorted(range(len(turns)), key=lambda row: repr(turns[row][0].sampling))
    for sampling, group in groupby(order, key=lambda row: turns[row][0].sampling):
        rows = list(group)
        part_RV = shaped_RV[rows]
        if sampling.greedy:
            chosen_R[rows] = part_RV.argmax(-1)
        else:
            numbers_R = torch.tensor([turns[row][2] for row in rows], dtype=torch.float64)
            chosen_R[rows] = draw(restrict(part_RV, sampling), numbers_R)
    most = max(request.likeliest for request, _, _ in turns)
    found = tokens_of(logits_RV, chosen_R, most)
    return [
        token._replace(likeliest=token.likeliest[: request.likeliest])
        for token, (request, _, _) in zip(found, turns, strict=True)
    ]


def shape(logits_V: Tensor, request: Request, tokens: Sequence[int]) -> None:
    """Change a row's scores, in place: penalties, then the bias, then what may come at all."""
    penalties = request.penalties
    if penalties.repetition != 1:
        seen = torch.tensor(sorted(set(tokens)), device=logits_V.device)
        scores = logits_V[seen]
        factor = penalties.repetition
        logits_V[seen] = torch.where(scores > 0, scores / factor, scores * factor)
    if penalties.frequency or penalties.presence:
        counts = Counter(tokens[len(request.prompt) :])
        for token, count in counts.items():
            logits_V[token] -= penalties.frequency * count + penalties.presence
    for token, value in request.bias.items():
        logits_V[token] += value
    if request.constraint is not None:
        request.constraint.restrict(logits_V)


def scored(logits_TV: Tensor, tokens: Sequence[int], likeliest: int) -> list[Token]:
    """Given tokens with their log-probabilities; `logits_TV[i]` are the scores of the i-th. Scores
    behind the last token are left out.
    """
    given_T = torch.tensor(tokens, dtype=torch.long, device=logits_TV.device)
    return tokens_of(logits_TV[: len(tokens)], given_T, likeliest) if tokens else []
