import itertools
import os
from functools import partial
from pathlib import Path
from types import ModuleType

import pytest

from cluster import fan_out as module
from cluster.errors import BadInput
from cluster.fan_out import fan_out
from cluster.resources import measured

FOLDER = Path(__file__).parent


@pytest.fixture
def toy(ray_session: None, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Functions that the workers of the session can import."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import fan_out_toy

    return fan_out_toy


@pytest.mark.parametrize("at_once", [1, 2, 4, None])
def test_results_come_in_the_order_of_the_items(toy: ModuleType, at_once: int | None) -> None:
    assert list(fan_out(toy.square, range(20), at_once)) == [n * n for n in range(20)]


def test_one_at_a_time_stays_in_this_process(toy: ModuleType) -> None:
    assert set(fan_out(toy.pid, range(3), at_once=1)) == {os.getpid()}
    assert set(fan_out(toy.pid, [7], at_once=2)) == {os.getpid()}
    assert os.getpid() not in set(fan_out(toy.pid, range(3), at_once=2))


def test_an_error_of_the_work_is_raised_as_it_is(toy: ModuleType) -> None:
    results = fan_out(toy.refuse_three, range(9), at_once=2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(BadInput, match=r"^row 3 is bad: mend it$"):
        next(results)


def test_a_worker_that_dies_is_replaced(toy: ModuleType, tmp_path: Path) -> None:
    assert list(fan_out(partial(toy.die_once, tmp_path), range(4), at_once=2)) == [0, 1, 2, 3]
    assert (tmp_path / "died").exists()


def test_work_that_keeps_killing_its_workers_is_an_error(
    toy: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RETRIES", 0)
    with pytest.raises(RuntimeError, match=r"died 1 times.*placement\.data_workers=1"):
        list(fan_out(toy.die, range(2), at_once=2))


def test_items_are_taken_as_they_are_needed(toy: ModuleType) -> None:
    endless = EndlessItems()
    results = fan_out(toy.square, endless, at_once=2)  # type: ignore[arg-type]
    assert list(itertools.islice(results, 6)) == [0, 1, 4, 9, 16, 25]
    results.close()  # type: ignore[attr-defined]
    assert endless.taken < 6 + 4 * module.AHEAD


class EndlessItems:
    """A sequence as long as one likes, that knows how far it was read."""

    taken = 0

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> int:
        self.taken = index
        return index


def test_what_the_workers_take_is_counted_here(toy: ModuleType) -> None:
    with measured() as usage:
        assert list(fan_out(toy.burn, [0.3] * 4, at_once=2)) == [0.3] * 4
    assert usage.cpu_seconds >= 1.2
