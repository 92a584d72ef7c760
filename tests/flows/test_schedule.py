"""The schedule of a plan, against another simulation of the same rules, tick by tick."""

import random
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from cluster.placement import Placement
from cluster.stage import info
from flows.execution import _resources
from flows.plan.price import job_of
from flows.plan.schedule import Host, Job, schedule
from tasks.evaluation.heldout.stage import evaluate


def ticked(jobs: Sequence[Job], seconds: Mapping[str, int], slots: int) -> int:
    """Whole seconds until all jobs of one CPU are done: one second after the other, by hand."""
    left, waiting, running, clock = dict(seconds), list(jobs), list[Job](), 0
    done: set[str] = set()
    arrived: list[Job] = []
    while len(done) < len(jobs):
        arrived += [j for j in waiting if j not in arrived and set(j.needs) <= done]
        waiting = [j for j in waiting if j not in arrived]
        while arrived and len(running) < slots:
            running.append(arrived.pop(0))
        clock += 1
        for job in list(running):
            left[job.name] -= 1
            if not left[job.name]:
                running.remove(job)
                done.add(job.name)
    return clock


@pytest.mark.parametrize("seed", range(20))
def test_a_schedule_is_that_of_another_simulation(seed: int) -> None:
    draw = random.Random(seed)
    names = [f"s{number}" for number in range(draw.randint(1, 60))]
    jobs = [
        Job(n, tuple(draw.sample(names[:i], min(i, draw.choice((0, 0, 1, 2))))))
        for i, n in enumerate(names)
    ]
    seconds = {name: draw.randint(1, 30) for name in names}
    hosts = [Host(draw.randint(1, 3)) for _ in range(draw.randint(1, 4))]
    slots = sum(host.cpus for host in hosts)
    assert schedule(jobs, seconds, hosts).seconds == ticked(jobs, seconds, slots)


def test_a_training_takes_the_places_of_all_its_workers_at_once() -> None:
    wide = Job("wide", (), cpus=2, workers=3)
    hosts = [Host(4), Host(4)]
    narrow = [Job(f"n{i}", ()) for i in range(2)]
    line = schedule([*narrow, wide], {"wide": 5.0, "n0": 1.0, "n1": 2.0}, hosts)
    assert (line.starts["wide"], line.seconds, line.most) == (0.0, 5.0, 5)
    busy = schedule([Job("all", (), cpus=4), wide], {"wide": 5.0, "all": 1.0}, hosts)
    assert busy.starts["wide"] == 1.0


def test_gpus_bound_trainings_and_cpus_the_rest() -> None:
    jobs = [Job(f"t{i}", (), gpus=1) for i in range(4)] + [Job("score", ("t0",))]
    line = schedule(jobs, {job.name: 1.0 for job in jobs}, [Host(8, 2)])
    assert line.seconds == 2.0 and line.starts["score"] == 1.0


def test_what_is_cached_holds_no_place_and_what_fits_nowhere_has_all_places() -> None:
    jobs = [Job("a", ()), Job("b", ("a",)), Job("c", ("b",), cpus=64, gpus=8, workers=9)]
    line = schedule(jobs, {"a": 0.0, "b": 0.0, "c": 3.0}, [Host(2)])
    assert line.starts == {"a": 0.0, "b": 0.0, "c": 0.0} and line.seconds == 3.0


def test_a_stage_that_scores_asks_ray_for_a_gpu_where_the_placement_has_some() -> None:
    node: Any = SimpleNamespace(name="evaluate", needs=[], about=info(evaluate))
    for gpus, asked in ((0, 0), (0.5, 0.5), (4, 1)):
        place = Placement(gpus=gpus, workers=1 if gpus < 1 else 2)
        assert _resources(node, place) == {"num_cpus": 1, "num_gpus": asked}
        assert job_of(node, place).shape == (1, 1, asked)
