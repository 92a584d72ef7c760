"""Exams between two steps: a copy of the weights sits them, so that training goes on as without.

    row |= sit(exams, engine, layout, world, alive)

Each exam is one rank's, whole: batches, and with them the last bits of scores, are those of
`headrace exam`. A rank that has none, or is done, waits for the others, be it for hours.
"""

import faulthandler
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from cluster.artifact import Artifact
from cluster.world import World
from model import hub
from model.config import ModelConfig
from model.encoder_decoder import build
from model.generation import Network
from model.initialise import without_mup
from model.objectives.modules import with_objective
from tasks.tokens.encoder import Encoder
from tasks.training import state
from tasks.training.exams import EXAMS, SECONDS, AskedExams, Exams, Row
from tasks.training.tensor_parallel import ParallelLayout

log = logging.getLogger("headrace.train")


def prepared(
    asked: AskedExams, config: ModelConfig, objective: str, encoder: Encoder, start: Artifact | None
) -> Exams:
    """Exams for networks of a shape that learn an objective, from nothing or from the model
    `start`. Raises BadInput for those that cannot be sat.
    """
    begins = start_ids(config, encoder, start)
    sittings = asked.sittings(config, encoder, begins)
    log.info("exams after steps %s: %s", asked.steps, [one.name for one in sittings])
    return Exams(asked.steps, sittings, partial(network_of, config, objective))


def start_ids(config: ModelConfig, encoder: Encoder, start: Artifact | None) -> list[int]:
    """What the decoder of an encoder-decoder begins with; nothing for a decoder."""
    if config.family != "encoder_decoder":
        return []
    special = hub.special_ids(start.path) if start else {}
    return [special.get("decoder_start_token_id", encoder.pad)]  # as in T5


def network_of(config: ModelConfig, objective: str, weights: Mapping[str, Tensor]) -> Network:
    """The network of these weights, as it would be saved; they are its own from now on."""
    with torch.device("meta"):
        module = with_objective(build(config), objective)
    own = {name.removeprefix("model."): weight for name, weight in weights.items()}
    module.load_state_dict(own, assign=True)
    without_mup(module)
    return module.network


def sit(
    exams: Exams, engine: Any, layout: ParallelLayout, world: World, alive: Callable[[], object]
) -> Row:
    """What a row of metrics tells of the exams (`tasks.training.exams`). All ranks must call this
    together; `alive` puts off the end of a process that does nothing.
    """
    began = time.monotonic()
    mine = exams.sittings[world.rank :: world.size]
    weights = state.copy_weights(engine, layout, leads=bool(mine))
    found, error = dict[str, Row](), None
    with world.patient() as gather:
        try:
            found = _sit(exams, mine, weights, world.device, alive)
        except Exception as failure:
            error = failure
        faulthandler.cancel_dump_traceback_later()
        everywhere = gather((found, error is not None))
    alive()
    if any(failed for _, failed in everywhere):
        world.fail(error)
    sat = {name: one for part, _ in everywhere for name, one in part.items()}
    in_order = {one.name: sat[one.name] for one in exams.sittings}
    return {EXAMS: in_order, SECONDS: round(time.monotonic() - began, 6)}


def _sit(
    exams: Exams,
    mine: Sequence[Any],
    weights: Mapping[str, Tensor],
    device: torch.device,
    alive: Callable[[], object],
) -> dict[str, Row]:
    """The exams of this rank."""
    if not mine:
        return {}
    network = exams.network(weights).to(device)
    found = {}
    for one in mine:
        alive()
        found[one.name] = one.sit(network, lambda done, of: alive())
    del network
    if device.type == "cuda":
        torch.cuda.empty_cache()  # training wants the room back in pieces of its own
    return found
