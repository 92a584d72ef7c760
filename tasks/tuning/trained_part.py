"""How much of a model is trained: all, its head, its last layers, or adapters.

    module = trained_part(Headed(hub.load(base), head), settings, base)

What is frozen is as it is built, in every process: it has no optimizer state, and is in no
checkpoint.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

from torch import nn

from cluster.errors import BadInput, MissingExtra
from model.dropout import set_dropout
from model.hub import read_config
from model.hub_lora import add_lora
from model.lora import LoraShape
from model.objectives.base import Objective
from model.optim import freeze
from model.stack import Stack
from model.transformer import LanguageModel
from tasks.tuning.settings import LoraSettings, TuningSettings

Module = TypeVar("Module", bound=nn.Module)


def trained_part(module: Module, settings: TuningSettings, base: Path) -> Module:
    """`module`, a network of the folder `base` with its head or objective, after all is frozen that
    the settings do not train. Raises BadInput when nothing is left to train.
    """
    if settings.dropout is not None:
        set_dropout(module, settings.dropout)
    if settings.train == "full":
        return module
    network = next(part for part in module.modules() if isinstance(part, LanguageModel))
    kept = set(_last(module, network, settings.last_layers)) if settings.train == "last" else ()
    # A pooler is where a head begins.
    body = (p for name, p in network.named_parameters() if not name.startswith("pooler."))
    freeze(p for p in body if p not in kept)
    if settings.train == "lora":
        _adapt(network, settings.lora, base)
    if not any(p.requires_grad for p in module.parameters()):
        raise BadInput(
            f"train is {settings.train}, which leaves nothing to train: this task has no head "
            f"beside {base}'s own; take last, lora or full"
        )
    return module


def _adapt(network: LanguageModel, settings: LoraSettings, base: Path) -> None:
    shape = LoraShape(settings.rank, settings.alpha, settings.dropout, bool(settings.bits))
    try:
        add_lora(network, read_config(base)["model_type"], shape, settings.matrices)
    except ImportError as error:
        raise MissingExtra(
            f"lora.bits is 4, which needs bitsandbytes ({error}): uv pip install 'headrace[qlora]'"
        ) from error


def _last(module: nn.Module, network: LanguageModel, layers: int) -> Iterator[nn.Parameter]:
    """The parameters of the last layers of each stack and of what comes behind them: the last norm
    and, under an objective, the LM head; one that is tied to the embedding counts as coming before
    the first layer.
    """
    for name, stack in network.named_modules():
        if isinstance(stack, Stack):
            depth = len(stack.blocks)
            if layers > depth:
                raise BadInput(f"last_layers is {layers}, the model has {depth} {name} layers")
            for block in stack.blocks[depth - layers :]:
                yield from block.parameters()
            yield from stack.norm.parameters()
    if isinstance(module, Objective):
        behind = ("head.", "head_")
        yield from (p for name, p in network.named_parameters() if name.startswith(behind))
