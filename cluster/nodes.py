"""The nodes of the Ray cluster that `RAY_ADDRESS` names, each asked by a task that runs on it."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from cluster import node_report
from cluster.node_report import NodeReport, Questions

ANSWER_S = 240.0


@dataclass(frozen=True)
class Nodes:
    """By name: each node's id in Ray, its address, and the CPUs and GPUs that Ray was told of."""

    ids: Mapping[str, str]
    addresses: Mapping[str, str]
    cpus: Mapping[str, int]
    gpus: Mapping[str, int]

    @classmethod
    def of_session(cls) -> "Nodes":
        """Those of the cluster that this process has joined."""
        import ray

        alive: list[dict[str, Any]] = [node for node in ray.nodes() if node["Alive"]]
        hosts = [node["NodeManagerHostname"] for node in alive]
        names = [  # of several nodes on one host each has the beginning of its id behind the name
            host if hosts.count(host) == 1 else f"{host}/{node['NodeID'][:4]}"
            for host, node in zip(hosts, alive, strict=True)
        ]
        named = dict(zip(names, alive, strict=True))
        return cls(
            {name: node["NodeID"] for name, node in named.items()},
            {name: node["NodeManagerAddress"] for name, node in named.items()},
            *(
                {name: int(node["Resources"].get(kind, 0)) for name, node in named.items()}
                for kind in ("CPU", "GPU")
            ),
        )

    def reports(self, asked: Questions) -> tuple[dict[str, NodeReport], dict[str, str]]:
        """What each node tells of itself; and of those that cannot, why."""
        told = self.ask(
            node_report.report,
            {name: (asked, self.addresses[name], gpus) for name, gpus in self.gpus.items()},
        )
        silent = {name: answer for name, answer in told.items() if isinstance(answer, str)}
        return {name: one for name, one in told.items() if name not in silent}, silent

    def skews(self, names: Mapping[str, NodeReport]) -> dict[str, float]:
        """Seconds by which a node's clock is ahead for certain; 0 where it may be right."""
        found: dict[str, float] = {}
        for name in names:
            before = time.time()
            there = self.ask(node_report.clock, {name: ()})[name]
            after = time.time()
            if isinstance(there, float):
                found[name] = there - min(max(there, before), after)
        return found

    def groups(self, reports: Mapping[str, NodeReport]) -> dict[str, str]:
        """By backend, what goes wrong where the nodes sum together: gloo, and nccl over GPUs."""
        found: dict[str, str] = {}
        for backend in ("gloo", "nccl"):
            names = [name for name in reports if backend == "gloo" or self.gpus[name]]
            if len(names) > 1 or (names and backend == "nccl"):
                found[backend] = self._sum(names, reports[names[0]], backend)
        return found

    def _sum(self, names: list[str], first: NodeReport, backend: str) -> str:
        meeting = f"{first.address}:{first.port}"
        asked = {name: (rank, len(names), meeting, backend) for rank, name in enumerate(names)}
        told = self.ask(node_report.sum_of_ones, asked, gpus=1 if backend == "nccl" else 0)
        wrong = [f"{name}: {sum_}" for name, sum_ in told.items() if sum_ != len(names)]
        return "; ".join(wrong)

    def ask(
        self, function: Callable[..., Any], asked: Mapping[str, tuple[Any, ...]], gpus: int = 0
    ) -> dict[str, Any]:
        """What a function returns on each node for its arguments; a sentence where it does not."""
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        task = ray.remote(function).options
        references = {
            name: task(
                num_cpus=0,
                num_gpus=gpus,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(self.ids[name], soft=False),
            ).remote(*arguments)
            for name, arguments in asked.items()
        }
        ray.wait(list(references.values()), num_returns=len(references), timeout=ANSWER_S)
        return {name: _answer(reference) for name, reference in references.items()}


def _answer(reference: Any) -> Any:
    import ray

    try:
        return ray.get(reference, timeout=1)
    except ray.exceptions.GetTimeoutError:
        ray.cancel(reference, force=True)
        return f"no answer in {ANSWER_S:.0f} seconds"
    except ray.exceptions.RayError as error:
        return str(getattr(error, "cause", None) or error).strip().splitlines()[-1]
