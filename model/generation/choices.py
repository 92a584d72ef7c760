"""How probable given answers are.

Letters: C choices, T positions, V vocabulary.
"""

from collections.abc import Sequence

import torch

from model.generation.reader import Network, Reader


@torch.inference_mode()
def choice_log_probabilities(
    network: Network,
    prompt: Sequence[int],
    choices: Sequence[Sequence[int]],
    start_ids: Sequence[int] = (),
) -> list[float]:
    """log p(choice | prompt) in nats of each token sequence: the sum over its tokens.

    The prompt is read once. Choices of different lengths are not normalised by length.
    """
    longest = max(len(choice) for choice in choices)
    if min(len(choice) for choice in choices) < 1:
        raise ValueError("a choice has no tokens; each needs at least one")
    reader = Reader(network, [prompt], longest, start_ids)
    first_V = reader.read_prompts()[0].float().log_softmax(-1)
    totals = [float(first_V[choice[0]]) for choice in choices]
    if longest == 1:
        return totals
    reader.select([0] * len(choices))
    padded_CT = torch.tensor([[*choice, *[0] * (longest - len(choice))] for choice in choices])
    # What fills up a shorter choice lies behind its tokens, which do not see it.
    log_probs_CTV = reader.read_many(padded_CT[:, :-1]).float().log_softmax(-1).cpu()
    taken_CT = log_probs_CTV.gather(-1, padded_CT[:, 1:, None])[..., 0].tolist()
    return [
        total + sum(row[: len(choice) - 1])
        for total, row, choice in zip(totals, taken_CT, choices, strict=True)
    ]
