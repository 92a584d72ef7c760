"""When each stage of a plan would run: an event simulation of stages on hosts, as Ray places them.

A stage starts when what it needs has ended and its CPUs and GPUs are free, the one that has waited
longest first; another of another size may go ahead of one that does not fit yet. A training of
several workers takes the places of all of them at once, on one host or several.
"""

import heapq
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Host(NamedTuple):
    """What one machine offers."""

    cpus: int
    gpus: int = 0


class Shape(NamedTuple):
    """The workers of a stage, each of so many CPUs and GPUs; those of one shape fit alike."""

    workers: int
    cpus: int
    gpus: float


class Job(NamedTuple):
    """A stage to place: what it waits for, and its workers, each of so many CPUs and GPUs."""

    name: str
    needs: tuple[str, ...]
    cpus: int = 1
    gpus: float = 0
    workers: int = 1

    @property
    def shape(self) -> Shape:
        """What it holds."""
        return Shape(self.workers, self.cpus, self.gpus)


@dataclass(frozen=True)
class Timeline:
    """When each job starts and ends, in seconds, and the most workers that are busy at once."""

    starts: Mapping[str, float]
    ends: Mapping[str, float]
    most: int

    @property
    def seconds(self) -> float:
        """When the last one ends."""
        return max(self.ends.values(), default=0.0)


def schedule(jobs: Sequence[Job], seconds: Mapping[str, float], hosts: Sequence[Host]) -> Timeline:
    """Place jobs, given in the order in which they are submitted, each after all that it needs.
    One that takes no time (it is cached) holds no place. A job that no host could ever take has
    all of them to itself.
    """
    run = _Simulation(jobs, seconds, hosts)
    run.carry_out()
    return Timeline(run.starts, run.ends, run.most)


class _Simulation:
    def __init__(self, jobs: Sequence[Job], seconds: Mapping[str, float], hosts: Sequence[Host]):
        self.seconds = seconds
        self.free = [[float(host.cpus), float(host.gpus)] for host in hosts]
        fits = {shape: _within(shape, hosts) for shape in {job.shape for job in jobs}}
        self.jobs = {job.name: fits[job.shape] for job in jobs}
        self.order = {job.name: number for number, job in enumerate(jobs)}
        self.left = {job.name: len(set(job.needs)) for job in jobs}
        self.next: dict[str, list[str]] = {job.name: [] for job in jobs}
        for job in jobs:
            for need in set(job.needs):
                self.next[need].append(job.name)
        self.ready: dict[Shape, deque[str]] = {}
        self.running: list[tuple[float, int, str, list[int]]] = []
        self.starts: dict[str, float] = {}
        self.ends: dict[str, float] = {}
        self.arrived = 0
        self.turn: dict[str, int] = {}
        self.busy = self.most = 0

    def carry_out(self) -> None:
        self.arrive([name for name, count in self.left.items() if not count], 0.0)
        self.fill(0.0)
        while self.running:
            now = self.running[0][0]
            done: list[str] = []
            while self.running and self.running[0][0] == now:
                _, _, name, places = heapq.heappop(self.running)
                self.release(self.jobs[name], places)
                done += self.after(name)
            self.arrive(sorted(done, key=self.order.__getitem__), now)
            self.fill(now)

    def arrive(self, names: Iterable[str], now: float) -> None:
        """Queue what can start; what takes no time is over at once."""
        queue = deque(names)
        while queue:
            name = queue.popleft()
            if not self.seconds[name]:
                self.starts[name] = self.ends[name] = now
                queue.extend(self.after(name))
                continue
            self.turn[name] = self.arrived
            self.arrived += 1
            self.ready.setdefault(self.jobs[name], deque()).append(name)

    def after(self, name: str) -> list[str]:
        """What waited for nothing but this."""
        for other in self.next[name]:
            self.left[other] -= 1
        return [other for other in self.next[name] if not self.left[other]]

    def fill(self, now: float) -> None:
        """Start what fits, by turn; where one does not fit, none of its shape does."""
        blocked: set[Shape] = set()
        while shapes := [s for s, queue in self.ready.items() if queue and s not in blocked]:
            shape = min(shapes, key=lambda one: self.turn[self.ready[one][0]])
            name = self.ready[shape][0]
            if (places := self.take(shape)) is None:
                blocked.add(shape)
                continue
            self.ready[shape].popleft()
            self.starts[name], self.ends[name] = now, now + self.seconds[name]
            heapq.heappush(self.running, (self.ends[name], self.order[name], name, places))

    def take(self, shape: Shape) -> list[int] | None:
        """The hosts of its workers, whose CPUs and GPUs are its own from now on."""
        places: list[int] = []
        for number, (cpus, gpus) in enumerate(self.free):
            both = ((cpus, shape.cpus), (gpus, shape.gpus))
            fits = [int(room / asked) for room, asked in both if asked]
            places += [number] * min([shape.workers - len(places), *fits])
        if len(places) < shape.workers:
            return None
        for number in places:
            self.free[number][0] -= shape.cpus
            self.free[number][1] -= shape.gpus
        self.busy += shape.workers
        self.most = max(self.most, self.busy)
        return places

    def release(self, shape: Shape, places: list[int]) -> None:
        for number in places:
            self.free[number][0] += shape.cpus
            self.free[number][1] += shape.gpus
        self.busy -= shape.workers


def _within(shape: Shape, hosts: Sequence[Host]) -> Shape:
    """What these hosts can take: the same, or what takes whole hosts."""
    most = Host(max(host.cpus for host in hosts), max(host.gpus for host in hosts))
    small = shape._replace(cpus=min(shape.cpus, most.cpus), gpus=min(shape.gpus, most.gpus))
    room = sum(
        min([host.cpus // small.cpus] + ([int(host.gpus / small.gpus)] if small.gpus else []))
        for host in hosts
    )
    return small._replace(workers=min(small.workers, room))
