"""The next token of each row, by the row's own settings.

Letters: R rows, T positions, V vocabulary.
"""

from collections import Counter
from collections.abc import Sequence

import torch
from torch import Tensor

from model.generation.ending import Token
from model.generation.request import Request
from model.generation.sampling import GREEDY, Sampling, draw, restrict
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
    chosen_R = _drawn(shaped_RV, turns)
    most = max(request.likeliest for request, _, _ in turns)
    found = tokens_of(logits_RV, chosen_R, most)
    return [
        token._replace(likeliest=token.likeliest[: request.likeliest])
        for token, (request, _, _) in zip(found, turns, strict=True)
    ]


def _drawn(logits_RV: Tensor, turns: Sequence[Turn]) -> Tensor:
    """A token for each row; rows of the same settings together."""
    groups: dict[Sampling, list[int]] = {}
    for row, (request, _, _) in enumerate(turns):
        groups.setdefault(GREEDY if request.sampling.greedy else request.sampling, []).append(row)
    if list(groups) == [GREEDY]:
        return logits_RV.argmax(-1)
    chosen_R = torch.empty(len(turns), dtype=torch.long, device=logits_RV.device)
    for sampling, rows in groups.items():
        numbers_R = torch.tensor([turns[row][2] for row in rows], dtype=torch.float64)
        part_RV = logits_RV[rows]
        greedy = sampling is GREEDY
        chosen_R[rows] = (
            part_RV.argmax(-1) if greedy else draw(restrict(part_RV, sampling), numbers_R)
        )
    return chosen_R


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
