"""A Ray cluster of two nodes on this machine, each with a home of its own.

    with two_nodes(folder) as address: ...

What they share is the command's environment and no folder below theirs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def two_nodes(folder: Path) -> Iterator[str]:
    """The cluster's address while it runs; the homes are `folder/one` and `folder/two`."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(shutdown_at_exit=False)
    try:
        for name in ("one", "two"):
            variables = {"HEADRACE_HOME": str(folder / name), "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"}
            cluster.add_node(
                num_cpus=1,
                env_vars=variables,
                object_store_memory=100_000_000,
                include_dashboard=False,
                resources={name: 1},
            )
        yield cluster.address
    finally:
        cluster.shutdown()
