"""Attention maps of a text: what each token of it looks at, by layer and head.

Letters: H heads, T tokens that look, S tokens that are looked at.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cluster.errors import BadInput
from tasks.inference.generation import load_model, start_ids
from tasks.tokens.encoder import Encoder
from tasks.tokens.frames import read_frame


@dataclass(frozen=True)
class Map:
    """The weights `[H, T, S]` of one attention, with the tokens on both sides."""

    name: str
    rows: list[str]
    columns: list[str]
    weights_HTS: np.ndarray

    def patterns(self) -> list[dict[str, Any]]:
        """For each head the mean weight of a token for the first, the previous, itself and the
        next, and the entropy of what it looks at, in bits.
        """
        found = []
        for head, weights_TS in enumerate(self.weights_HTS):
            near = {
                name: float(np.diagonal(weights_TS, step).sum() / len(weights_TS))
                for name, step in (("previous", -1), ("itself", 0), ("next", 1))
            }
            logs = np.log2(weights_TS, where=weights_TS > 0, out=np.zeros_like(weights_TS))
            entropy = float(-(weights_TS * logs).sum(-1).mean())
            first = float(weights_TS[:, 0].mean())
            found.append(
                {"map": self.name, "head": head, "first": first, **near, "entropy": entropy}
            )
        return found


def attention_of(folder: Path, text: str, target: str | None) -> list[Map]:
    """The maps of a model reading `text`; an encoder-decoder writes `target` beside it.

    Raises BadInput for a text that is too long, for a target without a decoder of its own or one
    that is missing, and for a model whose attention leaves no weights.
    """
    import torch

    from model.attention_maps import attention_maps

    network, encoder = load_model(folder)
    family, network = network.config.family, network.eval()
    writes = family == "encoder_decoder"
    if writes != (target is not None):
        raise BadInput(
            f"{folder} is {'an' if family != 'decoder' else 'a'} {family}: "
            + ("give what it writes: --target TEXT" if writes else "leave out --target")
        )
    given = [_read(encoder, text, family)]
    if target is not None:
        given.append([*start_ids(folder, network, encoder), *encoder.encode(target)])
    if (longest := max(map(len, given))) > (room := network.config.context):
        raise BadInput(f"the text has {longest} tokens; {room} have room")
    inputs = [torch.tensor([ids]) for ids in given]
    sides = [[encoder.decode([token]) for token in ids] for ids in given]
    found = [
        Map(name, *_sides(name, sides), weights[0].float().numpy())
        for name, weights in attention_maps(network, lambda: network(*inputs))
    ]
    if not found:
        raise BadInput(f"{folder} has latent attention, which keeps no weights by token")
    return found


def _read(encoder: Encoder, text: str, family: str) -> list[int]:
    ids = encoder.encode(text)
    if family == "decoder":
        return [*encoder.opening, *ids]
    return read_frame(encoder, 1, family).lay([ids]).ids


def _sides(name: str, sides: Sequence[list[str]]) -> tuple[list[str], list[str]]:
    """The tokens that look, and those that are looked at."""
    rows = sides[-1] if "decoder" in name else sides[0]
    return rows, sides[0] if "cross" in name else rows
