"""Whether the session's nodes can hold what a run asks for; Ray would wait for ever for more."""

from cluster.errors import BadInput
from cluster.nodes import Nodes
from cluster.placement import Placement


def check_fits(placement: Placement, trains: bool) -> None:
    """Raise BadInput, which names what the nodes have and what would fit, where no node has a CPU
    for a stage, or the workers of a run that `trains` have no place.
    """
    nodes = Nodes.of_session()
    if not any(nodes.cpus.values()):
        raise BadInput(f"no node of the Ray cluster has a CPU for stages: {_listed(nodes)}")
    room = sum(_room(placement, nodes.cpus[name], nodes.gpus[name]) for name in nodes.ids)
    least = placement.least_workers or placement.workers
    if not trains or room >= least:
        return
    asked = "placement.least_workers" if placement.least_workers else "placement.workers"
    cure = f"`--set {asked}={room}` fits" if room else "Ask for less of each"
    raise BadInput(
        f"{asked} is {least}, each with {_devices(placement.cpu_threads, placement.gpus)}, and "
        f"there is room for {room}: {_listed(nodes)}. {cure}, or add nodes to "
        "the cluster of RAY_ADDRESS (`ray start --address=...`)"
    )


def _room(placement: Placement, cpus: int, gpus: int) -> int:
    """How many of a training's workers a node holds."""
    by_gpus = int(gpus / placement.gpus) if placement.gpus else cpus
    return min(cpus // placement.cpu_threads, by_gpus)


def _listed(nodes: Nodes) -> str:
    """What each node has; equal ones of a large cluster are counted."""
    kinds: dict[str, list[str]] = {}
    for name in nodes.ids:
        kinds.setdefault(_devices(nodes.cpus[name], nodes.gpus[name]), []).append(name)
    return "; ".join(f"{_named(names)} {what}" for what, names in kinds.items())


def _named(names: list[str]) -> str:
    return f"{names[0]} has" if len(names) == 1 else f"{len(names)} nodes such as {names[0]} have"


def _devices(cpus: int, gpus: float) -> str:
    counted = {"CPU": cpus, "GPU": gpus} if gpus else {"CPU": cpus}
    return " and ".join(f"{n} {kind}{'s' if n != 1 else ''}" for kind, n in counted.items())
