"""What a recurrent decoder looked at while it wrote: a map of attention for each text."""

from collections.abc import Sequence
from typing import Any

import torch

from model.alignment import Alignment
from model.encoder_decoder import EncoderDecoder
from model.generation import Network
from tasks.tuning.text_to_text.rows import Layout, TextPair


@torch.inference_mode()
def attention_maps(
    network: Network, layout: Layout, rows: Sequence[TextPair], texts: Sequence[str]
) -> list[dict[str, Any]]:
    """For each text, the tokens `read` and `written`, and by written token the `weights` of those
    that were read; empty for a network without a recurrent decoder that attends.
    """
    found = [part for part in network.modules() if isinstance(part, Alignment)]
    if not found or not isinstance(network, EncoderDecoder):
        return []
    kept: list[torch.Tensor] = []
    hook = found[0].register_forward_hook(lambda _, __, made: kept.append(made[1]))
    maps, device = [], network.embedding.weight.device
    for row, text in zip(rows, texts, strict=False):
        kept.clear()
        read, ids = layout.prompt(row), layout.encoder.encode(text)[: layout.length - 1]
        written = torch.tensor([[*layout.start, *ids]], device=device)
        network(torch.tensor([read], device=device), written)
        weights_TS = torch.cat(kept, 1)[0, len(layout.start) - 1 :].float().cpu()
        names = [*(layout.encoder.decode([id_]) for id_ in ids), "(end)"]
        weights = [[round(share, 3) for share in line] for line in weights_TS.tolist()]
        sources = [layout.encoder.decode([id_]) for id_ in read]
        maps.append({"read": sources, "written": names, "weights": weights})
    hook.remove()
    return maps
