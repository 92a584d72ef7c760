"""The costs of recurrent layers in closed form. Arithmetic only, no PyTorch.

A cell has G gates, each with a matrix on its I inputs, one on its H numbers of state, and a vector
for either, as in PyTorch's kernels. Letters: d width.
"""

from collections.abc import Iterator

from model.config import ModelConfig, RecurrentConfig
from model.part import Part


def recurrent_parts(
    config: ModelConfig, recurrent: RecurrentConfig, context: int, depth: int, name: str = ""
) -> Iterator[Part]:
    """The parts of one stack, its costs those of a token in a text of `context` tokens."""
    crossed, width = name == "decoder ", config.width
    directions = 1 if crossed or config.family == "decoder" else 2
    attends = crossed and recurrent.attention is not None
    inner = int(attends and recurrent.attention == "additive")
    read = width // 2 if recurrent.apart else width
    label = f"{name}{recurrent.cell}"
    if inner:
        yield _cells(recurrent, f"{label} with context", 1, 1, 2 * width, width)
    if depth > inner:
        size = width // directions
        yield _cells(recurrent, label, depth - inner, directions, read, size)
    if crossed:
        begun = recurrent.states * width
        yield Part(name=f"{name}beginning", layers=depth, vectors=(width + 1) * begun)  # one a row
    if attends:
        yield _alignment(recurrent, f"{name}attention", width, context)


def _cells(
    recurrent: RecurrentConfig, name: str, layers: int, directions: int, read: int, size: int
) -> Part:
    """Layers of cells, in one direction or two."""
    gates = recurrent.gates * size
    return Part(
        name=name,
        layers=layers,
        weights=directions * gates * (read + size),
        vectors=directions * 2 * gates,
        kept=directions * (read + 2 * gates + recurrent.states * size),
    )


def _alignment(recurrent: RecurrentConfig, name: str, width: int, context: int) -> Part:
    """Keys of a source token, queries of a target token, and what joins contexts and states."""
    additive = recurrent.attention == "additive"
    squares = {"additive": 2, "general": 1, "dot": 0}.get(recurrent.attention or "", 0)
    joined = 3 if additive else 2
    return Part(
        name=name,
        weights=(squares + joined) * width**2,
        vectors=width + 2 * width * additive,
        # Of each source token: its score, additive by a vector, and its share of the context.
        pairs=2 * width * context,
        kept=(squares + joined + 2) * width + additive * width * context,
    )
