"""Stage `fresh`: a network that has learned nothing yet, for a task that needs no pretraining."""

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.tokens.encoder import load
from tasks.training.model_settings import ModelSettings


@stage(version=2)
def fresh(tokenizer: Artifact, model: ModelSettings, context: int, seed: int, draft: Draft) -> None:
    """Draw the weights of a network for a vocabulary and so many tokens of context.

    The artifact is a model folder, as `pretrain` leaves it. Metrics: `params`. Raises BadInput for
    a shape that cannot be built.
    """
    import torch

    from model.encoder_decoder import build
    from model.flops import parameter_count
    from model.objectives.catalog import DEFAULT
    from model.objectives.modules import with_objective
    from tasks.training.pretraining import write_model

    encoder = load(tokenizer)
    config = model.config(encoder.ids, context)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = build(config)
    write_model(with_objective(network, DEFAULT[config.family]), tokenizer, encoder, None, draft)
    draft.metrics = {"params": float(parameter_count(config))}
