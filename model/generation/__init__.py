"""Decoding: greedy, sampling, beam search, minimum Bayes risk, the probability of given answers.

    generate(network, [[5, 8], [3]], Ending(64), Sampling(temperature=0.8, top_p=0.9), seeds=[1, 2])
    for tokens in stream(network, [[5, 8]], Ending(64, stop_ids=frozenset({0}))): ...
    beam_search(network, [5, 8], Ending(64), beams=4, length_penalty=0.6)

Every method reads its prompt once and then a token a step, through a key-value cache: many at once
by the engine that also serves (`model.generation.engine`). The prompt of an encoder-decoder is what
its encoder reads; what it writes begins after its start token.
"""

from model.generation.beam import beam_search
from model.generation.choices import Scored
from model.generation.ending import Continuation, Ending, Token
from model.generation.reader import Network
from model.generation.risk import minimum_bayes_risk
from model.generation.sampling import GREEDY, Sampling, restrict
from model.generation.stream import stream
from model.generation.together import generate, score, tokens

__all__ = [
    "GREEDY",
    "Continuation",
    "Ending",
    "Network",
    "Sampling",
    "Scored",
    "Token",
    "beam_search",
    "generate",
    "minimum_bayes_risk",
    "restrict",
    "score",
    "stream",
    "tokens",
]
