"""Steps take the samples of a training in order, each once, whatever their sizes."""

from hypothesis import given
from hypothesis import strategies as st

from tasks.tokens.steps import Steps

SIZES = st.integers(1, 20)


@given(
    count=st.integers(0, 60),
    samples=SIZES,
    ramp=st.lists(st.tuples(st.integers(0, 9), SIZES), max_size=4),
)
def test_every_sample_belongs_to_one_step_in_order(
    count: int, samples: int, ramp: list[tuple[int, int]]
) -> None:
    sizes = [size for steps, size in ramp for _ in range(steps)] + [samples] * count
    steps = Steps(len(sizes), samples, tuple(ramp))
    assert [steps.size(step) for step in range(1, steps.count + 1)] == sizes
    assert [steps.before(step) for step in range(1, steps.count + 2)] == [
        sum(sizes[:n]) for n in range(len(sizes) + 1)
    ]
    assert steps.total == sum(sizes)


def test_the_clock_of_schedules_counts_full_batches() -> None:
    assert [Steps(4, 8).clock(step) for step in (1, 2, 3, 4)] == [1, 2, 3, 4]
    ramp = Steps(5, 8, ((2, 2), (1, 4)))
    assert [ramp.clock(step) for step in (1, 2, 3, 4, 5)] == [0.25, 0.5, 1, 2, 3]
