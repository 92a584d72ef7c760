"""Which samples each optimizer step takes: always as many, or fewer at first.

Samples are numbered over the whole training, and each step takes the next ones in that order. So a
batch-size ramp (Brown et al. 2020, GPT-3, section 2.3) cuts the same order at other places, and the
loader need not know of it.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Steps:
    """`count` steps, numbered from 1, of `samples` each; save the first ones, where `ramp` has how
    many steps take how many samples.
    """

    count: int
    samples: int
    ramp: tuple[tuple[int, int], ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """The different numbers of samples, in order of their steps."""
        return (*(samples for _, samples in self.ramp), self.samples)

    @property
    def total(self) -> int:
        """Samples of all steps."""
        return self.before(self.count + 1)

    def size(self, step: int) -> int:
        """Samples of a step."""
        return self.before(step + 1) - self.before(step)

    def before(self, step: int) -> int:
        """Samples of all steps before this one: the number of its first."""
        steps, samples = step - 1, 0
        for length, size in self.ramp:
            here = min(steps, length)
            steps, samples = steps - here, samples + here * size
        return samples + steps * self.samples

    def clock(self, step: int) -> float:
        """Samples up to the end of a step, in full batches: the time that schedules go by."""
        return self.before(step + 1) / self.samples
