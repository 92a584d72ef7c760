"""Plan a sweep: a grid of sizes and tokens, each with the shape and learning rate of its size.

Sizes are widths. Each is trained on the tokens that a compute budget pays for (`budgets`, IsoFLOP),
on so many tokens a parameter (`ratios`, an over-training ladder) or on given `tokens` (N x D).

Depth, head size, batch and context are the same for all members, since mixing them triples the
residuals of a fit. Learning rates go with the width by default, as one rate at every width is too
fast for wide members or too slow for narrow ones, which bends the law: those of matrices and head
fall as 1 / width from `optimizer.base_width` on. `horizon` says how fast all of them fall with the
tokens of a width's longest run. Runs of one width branch off one trunk before their cooldown (Hu et
al. 2024, MiniCPM; Hagele et al. 2024), so they share its tokens and are, to the bit, the runs that
would have started from scratch.
"""

from collections import defaultdict
from collections.abc import Iterable
from itertools import product
from typing import Any, NamedTuple

from pydantic import Field, field_validator, model_validator

from cluster.errors import BadInput
from cluster.settings import Settings
from model.flops import flops_per_token, parameter_count
from tasks.training.model_settings import ModelSettings
from tasks.training.settings import OptimizerSettings, PretrainSettings, RateScales, over_defaults

WARMUP_STEPS, WARMUP_SHARE = 100, 0.2
BY_WIDTH = OptimizerSettings(
    learning_rate=2e-3,
    weight_decay=0.05,
    cooldown_share=0.2,
    base_width=96,
    scales=RateScales(head=2.5, embeddings=15.0, positions=0.5, vectors=2.5),
    decayed=("matrices",),
)


class TargetSettings(Settings):
    """A run that is predicted before it is trained, and takes no part in the fit."""

    width: int = Field(ge=1, description="size of the residual stream")
    flops: float | None = Field(None, gt=0, description="its training compute; or give tokens")
    tokens: int | None = Field(None, ge=1, description="its training tokens")

    @model_validator(mode="after")
    def _one_size(self) -> "TargetSettings":
        if (self.flops is None) == (self.tokens is None):
            raise ValueError("a target has either flops or tokens")
        return self


class SweepSettings(Settings):
    """The grid of small runs that a scaling law is fitted to."""

    widths: tuple[int, ...] = Field((32, 48, 64), description="sizes of the residual stream")
    depth: int = Field(3, ge=1, description="layers of every member")
    head_dim: int = Field(16, ge=1, description="size of one attention head of every member")
    budgets: tuple[float, ...] = Field(
        (), description="compute budgets in FLOPs; each width is trained at each (IsoFLOP)"
    )
    ratios: tuple[float, ...] = Field(
        (), description="training tokens per parameter; each width is trained at each"
    )
    tokens: tuple[int, ...] = Field(
        (110_000, 220_000, 440_000),
        description="training tokens; each width is trained on each. None with budgets or ratios",
    )
    window: tuple[float, float] = Field(
        (1.0, 250.0), description="tokens per parameter outside which a budget leaves a width out"
    )
    targets: tuple[TargetSettings, ...] = Field(
        (), description="larger runs to predict, then train; none: the grid's largest is kept out"
    )
    trunks: bool = Field(True, description="runs of one width share their tokens before cooldown")
    context: int = Field(128, ge=1, description="tokens of one sample")
    batch_tokens: int = Field(512, ge=1, description="tokens of one optimizer step")
    heldout_tokens: int = Field(
        131_072, ge=1, description="held-out tokens every member is measured on, the same for all"
    )
    horizon: float = Field(
        0.0,
        description="the learning rate falls as (1M / tokens of the width's longest run)^horizon; "
        "0.3 in Marin's sweeps, below 0 by Step Law",
    )
    optimizer: OptimizerSettings = Field(
        BY_WIDTH,
        description="of all members; what is left out is as here, where rates go with the width: "
        "base_width 96, and scales found by search at widths 96 and 128",
    )

    def shape(self, width: int) -> ModelSettings:
        """The network of a width. Raises BadInput for one that heads do not divide."""
        if width % self.head_dim:
            below = max(1, width // self.head_dim) * self.head_dim
            raise BadInput(
                f"width {width} is not a multiple of head_dim {self.head_dim}; "
                f"use {below} or {below + self.head_dim}"
            )
        return ModelSettings(depth=self.depth, width=width, heads=width // self.head_dim)

    @field_validator("optimizer", mode="before")
    @classmethod
    def _the_rest_by_width(cls, value: Any) -> Any:
        """What a recipe leaves out of the optimizer is as sweeps have it."""
        own = BY_WIDTH.model_dump(exclude_unset=True)
        return over_defaults(own, value) if isinstance(value, dict) else value

    @model_validator(mode="before")
    @classmethod
    def _one_design(cls, values: Any) -> Any:
        """Token counts are the default design, not an addition to another."""
        if isinstance(values, dict) and (values.get("budgets") or values.get("ratios")):
            return {"tokens": (), **values}
        return values


class MemberSettings(Settings):
    """One run of a sweep."""

    model: ModelSettings
    training: PretrainSettings
    heldout_tokens: int = Field(131_072, ge=1, description="held-out tokens to measure the loss on")

    @property
    def label(self) -> str:
        """Width and tokens: `d32-t200k`."""
        return f"d{self.model.width}-t{short(self.training.tokens)}"

    @property
    def branch_step(self) -> int:
        """The step after which it cools down; 0 where its schedule has no constant stretch."""
        steps, optimizer = self.training.steps, self.training.optimizer
        if optimizer.schedule != "wsd":
            return 0
        return steps - max(1, round(optimizer.cooldown_share * steps))

    def trunk(self) -> "TrunkSettings":
        """What comes before the cooldown."""
        training, rest = self.training, {"schedule": "constant"}
        return TrunkSettings(
            model=self.model,
            training=training.model_copy(
                update={
                    "tokens": self.branch_step * training.batch_tokens,
                    "optimizer": training.optimizer.model_copy(update=rest),
                }
            ),
        )


class TrunkSettings(Settings):
    """A training at constant learning rate, which runs of its size branch off."""

    model: ModelSettings
    training: PretrainSettings

    @property
    def label(self) -> str:
        """Width and steps: `d32-s400`."""
        return f"d{self.model.width}-s{self.training.steps}"


class SweepPlan(NamedTuple):
    """The runs that a law is fitted to, cheapest first, and those it then predicts."""

    grid: list[MemberSettings]
    targets: list[MemberSettings]
    trunks: bool

    @property
    def members(self) -> list[MemberSettings]:
        """Every run, the targets last."""
        return self.grid + self.targets


def plan_sweep(settings: SweepSettings, vocab_size: int) -> SweepPlan:
    """Every run of the sweep. Without targets the largest run of the grid becomes one.

    Raises BadInput for a width that heads do not divide and for an empty grid.
    """
    points = _grid(settings, vocab_size)
    if not points:
        raise BadInput(
            "a sweep needs at least one width and one of budgets, ratios or tokens; budgets leave "
            f"out widths with tokens per parameter outside {settings.window}"
        )
    targets = {(t.width, _target_tokens(settings, t, vocab_size)) for t in settings.targets}
    everything = _members(settings, points | targets)
    everything.sort(key=lambda m: flops(m, vocab_size))
    grid = [m for m in everything if (m.model.width, m.training.tokens) not in targets]
    if not targets and len(grid) > 2:
        return SweepPlan(grid[:-1], grid[-1:], settings.trunks)
    return SweepPlan(grid, [m for m in everything if m not in grid], settings.trunks)


def flops(member: MemberSettings | TrunkSettings, vocab_size: int) -> float:
    """Training compute of a run from its first step, by exact count."""
    training = member.training
    config = member.model.config(vocab_size, training.context)
    tokens = training.steps * training.batch_tokens
    return float(flops_per_token(config, training.context) * tokens)


def parameters(member: MemberSettings, vocab_size: int) -> int:
    """Parameters of a run, embeddings and head included."""
    return parameter_count(member.model.config(vocab_size, member.training.context))


def short(count: int) -> str:
    """200000 as 200k, 1500000 as 1.5M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.4g}{unit}"
    return str(count)


def _grid(settings: SweepSettings, vocab_size: int) -> set[tuple[int, int]]:
    """Width and tokens of every run of the grid."""
    points = set(product(settings.widths, settings.tokens))
    for width in settings.widths:
        size, per_token = _cost(settings, width, vocab_size)
        low, high = (size * ratio for ratio in settings.window)
        paid = (budget / per_token for budget in settings.budgets)
        points |= {(width, _whole(settings, t)) for t in paid if low <= t <= high}
        points |= {(width, _whole(settings, size * ratio)) for ratio in settings.ratios}
    return points


def _target_tokens(settings: SweepSettings, target: TargetSettings, vocab_size: int) -> int:
    if target.flops is None:
        assert target.tokens is not None
        return target.tokens
    return _whole(settings, target.flops / _cost(settings, target.width, vocab_size)[1])


def _cost(settings: SweepSettings, width: int, vocab_size: int) -> tuple[int, float]:
    """Parameters, and FLOPs a token, of a width."""
    config = settings.shape(width).config(vocab_size, settings.context)
    return parameter_count(config), flops_per_token(config, settings.context)


def _whole(settings: SweepSettings, tokens: float) -> int:
    """Tokens of the nearest number of whole batches."""
    return max(1, round(tokens / settings.batch_tokens)) * settings.batch_tokens


def _members(settings: SweepSettings, points: Iterable[tuple[int, int]]) -> list[MemberSettings]:
    by_width = defaultdict(list)
    for width, tokens in points:
        by_width[width].append(tokens)
    return [
        MemberSettings(
            model=settings.shape(width),
            training=PretrainSettings(
                context=settings.context,
                tokens=tokens,
                batch_tokens=settings.batch_tokens,
                optimizer=_optimizer(settings, lengths),
                most_skipped=0,  # all members of a width see the same text, or say they diverged
            ),
            heldout_tokens=settings.heldout_tokens,
        )
        for width, lengths in by_width.items()
        for tokens in lengths
    ]


def _optimizer(settings: SweepSettings, lengths: list[int]) -> OptimizerSettings:
    """The optimizer of one width, from the tokens of its runs: one for all that share a trunk."""
    optimizer = settings.optimizer
    warmup = optimizer.warmup_steps
    if warmup is None:
        shortest = -(-min(lengths) // settings.batch_tokens)
        warmup = min(WARMUP_STEPS, int(WARMUP_SHARE * shortest))
    rate = optimizer.learning_rate * (1e6 / max(lengths)) ** settings.horizon
    return optimizer.model_copy(update={"learning_rate": rate, "warmup_steps": warmup})
