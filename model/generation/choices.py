"""How probable given answers are, by the `Reader`: to one prompt at a time.

Letters: C choices, T positions, V vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from model.generation.reader import Network, Reader


class Scored(NamedTuple):
    """Tokens that were given: their log-probability in nats, and whether each was the likeliest."""

    nats: float
    greedy: bool


@torch.inference_mode()
def score_choices(
    network: Network,
    prompt: Sequence[int],
    choices: Sequence[Sequence[int]],
    start_ids: Sequence[int] = (),
) -> list[Scored]:
    """log p(choice | prompt) of each token sequence, and whether greedy decoding would write it.

    The prompt is read once. Choices of different lengths are not normalised by length.
    """
    longest = max(len(choice) for choice in choices)
    if min(len(choice) for choice in choices) < 1:
        raise ValueError("a choice has no tokens; each needs at least one")
    # The last token of a choice is predicted and never read.
    reader = Reader(network, [prompt], longest - 1, start_ids)
    first_CV = reader.read_prompts().expand(len(choices), -1)
    logits_CTV = first_CV[:, None]
    padded_CT = torch.tensor([[*choice, *[0] * (longest - len(choice))] for choice in choices])
    if longest > 1:
        reader.select([0] * len(choices))
        # What fills up a shorter choice lies behind its tokens, which do not see it.
        logits_CTV = torch.cat([logits_CTV, reader.read_many(padded_CT[:, :-1])], 1)
    log_probs_CTV = logits_CTV.float().log_softmax(-1).cpu()
    return [
        _scored(rows_TV[: len(choice)], torch.tensor([*choice]))
        for rows_TV, choice in zip(log_probs_CTV, choices, strict=True)
    ]


def _scored(log_probs_TV: Tensor, tokens_T: Tensor) -> Scored:
    taken_T = log_probs_TV.gather(-1, tokens_T[:, None])[:, 0]
    # Equal scores count as the likeliest, whichever of them is written.
    greedy = bool((taken_T == log_probs_TV.amax(-1)).all())
    return Scored(float(taken_T.double().sum()), greedy)
