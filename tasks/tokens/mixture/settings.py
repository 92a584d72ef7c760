"""What a mixture of sources is: shares of the training tokens, by stages of the training.

    sources: [{path: web/, weight: 0.8}, {path: books/, weight: 0.2, max_epochs: 4}]
    pretrain: {mixture: [{until: 0.8, weights: {web: 0.9, books: 0.1}}, {weights: {books: 1}}]}

`tasks.tokens.mixture.index` turns it into the source of every sample.
"""

from collections.abc import Iterable

from pydantic import Field, field_validator

from cluster.errors import BadInput
from cluster.settings import Settings, nearest

MANY_EPOCHS = 4.0
"""Up to about four epochs repeated text is worth nearly as much as new text; then its worth falls
(Muennighoff et al. 2023, "Scaling data-constrained language models", section 5)."""


class MixtureStage(Settings):
    """Which sources training draws from, up to some part of its steps."""

    until: float = Field(1.0, gt=0, le=1, description="share of the steps at which it ends")
    weights: dict[str, float] = Field(
        min_length=1,
        description="share of the tokens by source, named by its path or its label; "
        "sources left out get none",
    )

    @field_validator("weights")
    @classmethod
    def _shares(cls, weights: dict[str, float]) -> dict[str, float]:
        if any(not 0 <= weight < float("inf") for weight in weights.values()):
            raise ValueError("weights must be finite numbers from 0 on")
        if not sum(weights.values()):
            raise ValueError("one of the weights must be above 0")
        return weights


class Mixture(Settings):
    """The stages in order, and how often each source may be repeated at most, by label."""

    stages: tuple[MixtureStage, ...] = Field(min_length=1)
    max_epochs: dict[str, float] = {}

    @field_validator("stages")
    @classmethod
    def _to_the_end(cls, stages: tuple[MixtureStage, ...]) -> tuple[MixtureStage, ...]:
        check_stages(stages)
        return stages


def check_stages(stages: tuple[MixtureStage, ...]) -> None:
    """Raise ValueError unless each stage ends after the one before, and the last one at 1."""
    ends = [stage.until for stage in stages]
    if ends != sorted(set(ends)) or ends[-1:] not in ([], [1.0]):
        raise ValueError(f"mixture: `until` must rise from stage to stage up to 1, it is {ends}")


def known(name: str, names: Iterable[str], where: str) -> str:
    """A source's name. Raises BadInput when there is no such source."""
    choices = list(names)
    if name not in choices:
        raise BadInput(f"no source '{name}' in {where}: {nearest(name, choices)}")
    return name
