"""Plan a sweep: widths times token counts, each with the shape and learning rate of its size.

Depth, head size, batch and context are the same for all members, since mixing them triples the
residuals of a fit; the learning rate of matrices falls with the width (`model.optim`), since one
rate for all bends the law.
"""

from itertools import product

from pydantic import Field

from cluster.errors import BadInput
from cluster.settings import Settings
from tasks.training.settings import ModelSettings, OptimizerSettings, PretrainSettings

# Fewer steps leave a run in its warm-up; such runs bend a law upwards at small budgets.
FEWEST_STEPS = 200


class SweepSettings(Settings):
    """The grid of small runs that a scaling law is fitted to."""

    widths: tuple[int, ...] = Field((32, 48, 64), description="sizes of the residual stream")
    depth: int = Field(3, ge=1, description="layers of every member")
    head_dim: int = Field(16, ge=2, description="size of one attention head of every member")
    tokens: tuple[int, ...] = Field(
        (110_000, 220_000, 440_000), description="training tokens; each width is trained on each"
    )
    target: tuple[int, int] | None = Field(
        None, description="width and tokens of one more, larger run to check the forecast against"
    )
    context: int = Field(128, ge=1, description="tokens of one sample")
    batch_tokens: int = Field(512, ge=1, description="tokens of one optimizer step")
    heldout_tokens: int = Field(
        131_072, ge=1, description="held-out tokens every member is measured on, the same for all"
    )
    optimizer: OptimizerSettings = Field(
        OptimizerSettings(),
        description="of all members; the rate of matrices falls as 1 / width by itself",
    )


class MemberSettings(Settings):
    """One run of a sweep."""

    model: ModelSettings
    training: PretrainSettings
    heldout_tokens: int = Field(131_072, ge=1, description="held-out tokens to measure the loss on")

    @property
    def label(self) -> str:
        """Width and tokens: `d32-t200k`."""
        return f"d{self.model.width}-t{short(self.training.tokens)}"


def members(settings: SweepSettings) -> list[MemberSettings]:
    """Every run of the sweep, cheapest first, the target last.

    Raises BadInput for a width that heads do not divide and for an empty grid.
    """
    if not settings.widths or not settings.tokens:
        raise BadInput("a sweep needs at least one width and one token count")
    grid = sorted(set(product(settings.widths, settings.tokens)), key=lambda p: p[0] ** 2 * p[1])
    if settings.target and settings.target not in grid:
        grid.append(settings.target)
    return [_member(settings, width, tokens) for width, tokens in grid]


def warnings(plan: list[MemberSettings]) -> list[str]:
    """What makes a planned sweep a poor basis for a law."""
    short_runs = [m for m in plan if m.training.steps < FEWEST_STEPS]
    found = [
        f"{m.label} has {m.training.steps} steps; below {FEWEST_STEPS} it is mostly warm-up, "
        "take smaller batches or more tokens"
        for m in short_runs
    ]
    for what, values in (
        ("widths", {m.model.width for m in plan}),
        ("token counts", {m.training.tokens for m in plan}),
    ):
        if len(values) < 3:
            found.append(f"{len(values)} {what}; a law in both size and data needs at least 3")
    return found


def short(count: int) -> str:
    """200000 as 200k, 1500000 as 1.5M."""
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.4g}{unit}"
    return str(count)


def _member(settings: SweepSettings, width: int, tokens: int) -> MemberSettings:
    if width % settings.head_dim:
        below = max(1, width // settings.head_dim) * settings.head_dim
        raise BadInput(
            f"width {width} is not a multiple of head_dim {settings.head_dim}; "
            f"use {below} or {below + settings.head_dim}"
        )
    return MemberSettings(
        model=ModelSettings(depth=settings.depth, width=width, heads=width // settings.head_dim),
        training=PretrainSettings(
            context=settings.context,
            tokens=tokens,
            batch_tokens=settings.batch_tokens,
            optimizer=settings.optimizer,
        ),
        heldout_tokens=settings.heldout_tokens,
    )
