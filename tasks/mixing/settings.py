"""Settings of `headrace mix`: the swarm, what it is measured on, and the runs that confirm."""

from pydantic import Field

from cluster.settings import Settings
from tasks.tokens.mixture.settings import MixtureStage


class MixSettings(Settings):
    """How a mixture is looked for, and confirmed."""

    runs: int = Field(18, ge=4, description="small runs over the weights of the sources")
    compute: float = Field(
        4.0,
        ge=1,
        description="tokens of the runs that confirm, which are pretrain.tokens, over those of a "
        "run of the swarm",
    )
    seeds: int = Field(
        3, ge=1, description="seeds of each confirming mixture: proposed, natural and uniform"
    )
    least_share: float = Field(
        0.02, gt=0, lt=0.5, description="share of the tokens that every source keeps"
    )
    domain_tokens: int = Field(
        50_000, ge=1, description="held-out tokens of each source that losses are measured on"
    )


class ProposeSettings(Settings):
    """What the swarm was, and what it is to be used for."""

    mixtures: tuple[MixtureStage, ...] = Field(description="weights of each run of the swarm")
    least_share: float = Field(gt=0, lt=0.5, description="share that every source keeps")
    max_epochs: dict[str, float] = Field({}, description="caps on repetition, by source")
