"""A placement that the nodes cannot hold is refused before the first stage, with what would fit."""

from contextlib import nullcontext

import pytest

from cluster import capacity, services
from cluster.capacity import check_fits
from cluster.errors import BadInput
from cluster.machine import cpus
from cluster.nodes import Nodes
from cluster.placement import Placement
from flows.cli import app
from flows.plan.schedule import Host
from flows.plan.sweep_estimate import slots_of


def cluster(**devices: tuple[int, int]) -> Nodes:
    """Nodes with so many CPUs and GPUs."""
    names = dict.fromkeys(devices, "")
    cpus, gpus = ({name: both[i] for name, both in devices.items()} for i in (0, 1))
    return Nodes(names, names, cpus, gpus)


@pytest.mark.parametrize(
    ("asked", "nodes", "why"),
    [
        ({"workers": 5, "gpus": 1}, cluster(a=(8, 2), b=(8, 2)), "workers=4` fits"),
        ({"workers": 4, "gpus": 1}, cluster(a=(8, 2), b=(8, 2)), None),
        (
            {"workers": 1, "gpus": 4},
            cluster(a=(8, 2), b=(8, 2)),
            "2 nodes such as a have 8",
        ),
        ({"workers": 4, "threads": 4}, cluster(a=(7, 0), b=(8, 0)), "4 CPUs, .* for 3: a has 7"),
        ({"workers": 3, "threads": 4}, cluster(a=(8, 0), b=(4, 0), head=(0, 0)), None),
        ({"workers": 9, "least_workers": 2}, cluster(a=(2, 0)), None),
        ({"workers": 9, "least_workers": 3}, cluster(a=(2, 0)), "least_workers=2` fits"),
        ({"gpus": 1}, cluster(a=(2, 0)), "each with 1 CPU and 1 GPU, .* room for 0: a has 2 CPUs"),
        ({}, cluster(head=(0, 1)), "no node of the Ray cluster has a CPU"),
    ],
)
def test_workers_need_a_place_on_the_nodes(
    asked: dict[str, int], nodes: Nodes, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity.Nodes, "of_session", lambda: nodes)
    with pytest.raises(BadInput, match=why) if why else nullcontext():
        check_fits(Placement(**asked), trains=True)


def test_a_run_that_does_not_train_needs_no_place_for_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capacity.Nodes, "of_session", lambda: cluster(a=(1, 0)))
    check_fits(Placement(gpus=8), trains=False)


@pytest.mark.usefixtures("ray_session")
def test_a_run_is_refused_before_its_first_stage() -> None:
    services.up()
    many = f"placement.workers={cpus() + 1}"
    with pytest.raises(BadInput, match=rf"^read: .*room for {cpus()}: .*workers={cpus()}` fits"):
        app(["pretrain", "smoke", "--set", many], standalone_mode=False)


def test_trainings_that_share_a_gpu_are_as_many_as_have_their_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(capacity.Nodes, "of_session", lambda: cluster(a=(8, 1)))
    check_fits(Placement(gpus=0.25), trains=True)
    with pytest.raises(ValueError, match=r"gpus is 1\.5 of each of 1 workers: a share of a GPU"):
        Placement(gpus=1.5)
    with pytest.raises(ValueError, match=r"gpus is 0\.5 of each of 2 workers"):
        Placement(gpus=0.5, workers=2)
    assert slots_of(Placement(gpus=0.25), [Host(8, 2)]) == 8
    assert Placement(gpus=0.25).device == "cuda" and Placement(gpus=1, workers=2).device == "cpu"
