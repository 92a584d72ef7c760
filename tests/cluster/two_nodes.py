"""A Ray cluster of two nodes on this machine, each with a home of its own.

    with two_nodes(folder) as address: ...

What they share is the command's environment and no folder below theirs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster.ray_daemons import only_needed

ATTEMPTS = 4  # Ray's daemons have 30 seconds to start, too few on a machine that is busy


@contextmanager
def two_nodes(folder: Path) -> Iterator[str]:
    """The cluster's address while it runs; the homes are `folder/one` and `folder/two`."""
    cluster = _started(folder)
    try:
        yield cluster.address
    finally:
        cluster.shutdown()


def _started(folder: Path) -> Any:
    from ray.cluster_utils import Cluster

    for attempt in range(1, ATTEMPTS + 1):
        cluster = Cluster(shutdown_at_exit=False)
        try:
            for name in ("one", "two"):
                own = {"HEADRACE_HOME": str(folder / name), "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
                with only_needed():
                    cluster.add_node(
                        num_cpus=1,
                        env_vars=own,
                        object_store_memory=100_000_000,
                        include_dashboard=False,
                        resources={name: 1},
                    )
            return cluster
        except Exception:  # Ray raises plain exceptions here
            cluster.shutdown()
            if attempt == ATTEMPTS:
                raise
    raise AssertionError("unreachable")
