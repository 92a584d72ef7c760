"""Learning-rate schedules: pure functions of the step.

A schedule is a factor on each parameter group's own learning rate. Step 1 is the first one. Where
the batch grows, steps are counted in full batches (`tasks.tokens.steps.Steps.clock`), so that a
schedule goes by the tokens trained on, as GPT-3's does.
"""

import math
from collections.abc import Callable

from tasks.training.settings import OptimizerSettings

DEFAULT_WARMUP_SHARE = 0.05


def factor(step: float, steps: float, settings: OptimizerSettings) -> float:
    """The factor on the learning rate at `step` of `steps`."""
    warmup = warmup_steps(steps, settings)
    if settings.schedule == "inverse_sqrt":
        return noam(step, warmup)
    if step < warmup:
        return step / warmup
    if settings.schedule == "wsd":
        return cooldown(step, steps, settings.cooldown_share, settings.final_share)
    progress = (step - warmup) / max(1, steps - warmup)
    return DECAYS[settings.schedule](min(1.0, progress), settings.final_share)


def warmup_steps(steps: float, settings: OptimizerSettings) -> float:
    """Steps until the peak, at least 1 and at most all of them."""
    wanted = settings.warmup_steps
    if wanted is None:
        wanted = round(DEFAULT_WARMUP_SHARE * steps)
    return min(max(1, wanted), steps)


def noam(step: float, warmup: float) -> float:
    """Linear warm-up, then 1/sqrt(step) (Vaswani et al. 2017, section 5.3, equation 3).

    The original's d_model^-1/2 belongs to the learning rate. The peak is warmup^-1/2.
    """
    return min(step**-0.5, step * warmup**-1.5)


def cooldown(step: float, steps: float, share: float, final: float) -> float:
    """Constant, then linear to `final` over the last `share` of steps (Hu et al. 2024, MiniCPM)."""
    length = max(1, round(share * steps))
    return linear(max(0.0, (step - (steps - length)) / length), final)


def constant(progress: float, final: float) -> float:
    """1 all the way."""
    return 1.0


def linear(progress: float, final: float) -> float:
    """From 1 to `final` in a straight line."""
    return 1.0 + (final - 1.0) * progress


def cosine(progress: float, final: float) -> float:
    """From 1 to `final` along half a cosine (Loshchilov and Hutter 2017, equation 5)."""
    return final + (1.0 - final) * (1.0 + math.cos(math.pi * progress)) / 2.0


DECAYS: dict[str, Callable[[float, float], float]] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
}
