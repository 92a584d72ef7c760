"""What a planned run takes, as a whole and stage by stage: seconds, device-hours, USD, bytes, a
judge's tokens, joules; each with the band that holds 80 % of what may come.

The time of the whole is that of its schedule on the hosts (`flows.plan.schedule`), and of what runs
take beside their stages. Its band is drawn: all stages are off by a factor that is half their own
and half one of the whole machine. Whoever rents pays for the most workers that are busy at once, as
long as the run lasts.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.machine import cpus, gpus
from cluster.manifest import Manifest
from cluster.nodes import Nodes
from cluster.placement import Placement
from flows.plan.dag import Dag, Node
from flows.plan.experience import NOTHING, REMEMBERED, Z90, Experience, Guess
from flows.plan.schedule import Host, Job, Timeline, schedule
from flows.plan.work import KEPT_BYTES, Work, work_of

TOKENS_PER_REPLY = 600.0  # of a judge: the question, the text, a few words
DRAWN = 20_000
"""Stages whose times are drawn, in all draws of a run together."""
MOST_DRAWS, FEWEST_DRAWS = 200, 24
SHARED = math.sqrt(0.5)
"""A stage's time is off by a factor of the machine's, alike for all stages, times one of its own,
each with half of the variance of the product's logarithm."""
HOUR = 3600.0
SCRATCH = ("pretrain", "trunk", "sweep")
Bands = dict[str, float | None]


@dataclass(frozen=True)
class StagePrice:
    """What one stage takes; a cached one takes nothing."""

    job: Job
    work: Work
    seconds: Guess = NOTHING
    written: Guess = NOTHING
    judge_tokens: float = 0.0

    @property
    def devices(self) -> float:
        """GPUs that it holds, or CPUs where it has none."""
        return self.job.workers * (self.job.gpus or self.job.cpus)


@dataclass(frozen=True)
class Price:
    """What a run takes on some hosts."""

    stages: Mapping[str, StagePrice]
    beside: Guess
    place: Placement
    hosts: Sequence[Host]
    watts: float | None
    basis: str

    @cached_property
    def timeline(self) -> Timeline:
        """When each stage runs, each taking its likely time."""
        return self.scheduled({name: one.seconds.value for name, one in self.stages.items()})

    @property
    def seconds(self) -> float:
        """Wall time."""
        return self.timeline.seconds + self.beside.value

    @property
    def usd_per_hour(self) -> float:
        """What is paid for as long as the run lasts."""
        return self.timeline.most * self.place.usd_per_hour

    @property
    def replies(self) -> float:
        """USD of the judge's replies."""
        asked = sum(one.judge_tokens for one in self.stages.values())
        return asked * self.place.judge_usd / 1e6

    def scheduled(self, seconds: Mapping[str, float], names: Sequence[str] = ()) -> Timeline:
        """The schedule of all stages, or of some, that take these times."""
        jobs = [self.stages[name].job for name in names or self.stages]
        if names:
            jobs = [job._replace(needs=tuple(n for n in job.needs if n in seconds)) for job in jobs]
        return schedule(jobs, seconds, self.hosts)

    @cached_property
    def drawn(self) -> list[tuple[float, float]]:
        """Wall time and device-hours as they may come."""
        return [self._draw(*z) for z in self._normal()]

    def whole(self) -> Bands:
        """All figures of the run."""
        times, hours = zip(*self.drawn, strict=True)
        low, high = _middle(times, self.seconds)
        paid, replies = self.usd_per_hour / HOUR, self.replies
        asked = sum(one.judge_tokens for one in self.stages.values())
        held = sum(s.seconds.value * s.devices for s in self.stages.values()) / HOUR
        written = _sum([one.written for one in self.stages.values()])
        joules = (
            None
            if self.watts is None
            else self.watts * sum(one.seconds.value for one in self.stages.values())
        )
        return (
            _band("seconds", self.seconds, low, high)
            | _band("cost", *(paid * t + replies for t in (self.seconds, low, high)))
            | _band("device_hours", held, *_middle(hours, held))
            | _band("bytes_written", written.value, written.low, written.high)
            | _band("judge_tokens", asked, asked / 2, asked * 2)
            | _band("joules", *_scaled(joules, self.seconds, low, high))
        )

    def of(self, name: str) -> Bands:
        """The figures of one stage."""
        one = self.stages[name]
        paid = one.job.workers * self.place.usd_per_hour / HOUR
        replies = one.judge_tokens * self.place.judge_usd / 1e6
        times = (one.seconds.value, one.seconds.low, one.seconds.high)
        return (
            _band("seconds", *times)
            | _band("cost", *(paid * t + replies for t in times))
            | _band("device_hours", *(t * one.devices / HOUR for t in times))
            | _band("bytes_written", one.written.value, one.written.low, one.written.high)
            | _band("judge_tokens", *(one.judge_tokens * by for by in (1.0, 0.5, 2.0)))
        )

    def _normal(self) -> np.ndarray[Any, Any]:
        """Standard normal numbers, `[draw, machine + run + stages]`, the same every time."""
        width = len(self.stages) + 2
        draws = min(MOST_DRAWS, max(FEWEST_DRAWS, DRAWN // width))
        return np.random.default_rng(0).standard_normal((draws, width))

    def _draw(self, machine: float, run: float, *own: float) -> tuple[float, float]:
        def off(guess: Guess, z: float) -> float:
            return guess.value * math.exp(guess.reach / Z90 * SHARED * (machine + z))

        pairs = zip(self.stages.items(), own, strict=True)
        seconds = {name: off(one.seconds, z) for (name, one), z in pairs}
        hours = sum(seconds[name] * one.devices for name, one in self.stages.items()) / HOUR
        return self.scheduled(seconds).seconds + off(self.beside, run), hours


def price(dag: Dag, place: Placement, hosts: Sequence[Host] = ()) -> Price:
    """What a plan takes on these hosts; without any, on this machine or the cluster that is joined.

    What is cached takes nothing.
    """
    built = [node for node in dag if not node.found]
    kinds = {node.spec.stage for node in built}
    past = Experience({kind: _of_kind(dag, kind) for kind in kinds}, dag.spent)
    stages: dict[str, StagePrice] = {}
    sizes: dict[str, float] = {}

    def size(one: Node | Artifact) -> float:
        return sizes[one.name] if isinstance(one, Node) else _handed_on(one.manifest)

    for node in dag:
        stages[node.name] = found = _stage(node, place, past, size)
        kept = KEPT_BYTES * found.work.get("kept", 0.0)
        sizes[node.name] = (
            _handed_on(node.found.manifest) if node.found else found.written.value - kept
        )
    hosts = hosts or machines()
    for node in _cold([node for node in built if node.about.trains], stages, hosts):
        stages[node.name] = _colder(stages[node.name], node, past)
    return Price(
        stages,
        past.beside(_run_work(len(built), len(stages) - len(built))),
        place,
        hosts,
        past.watts,
        f"{past.known} stages built before" if past.known else "nominal speeds",
    )


def _handed_on(manifest: Manifest) -> float:
    """Bytes of an artifact that other stages read: all but its checkpoints."""
    return manifest.size - KEPT_BYTES * manifest.work.get("kept", 0.0)


def _of_kind(dag: Dag, kind: str) -> list[Manifest]:
    """What stages of a kind left; trainings from scratch are one kind."""
    same = SCRATCH if kind in SCRATCH else (kind,)
    return [manifest for one in same for manifest in dag.past(one, REMEMBERED)]


def read_hosts(text: str | None) -> list[Host]:
    """`8`, hosts such as those at hand; `8x32`, of 32 CPUs; `8x32x4`, and 4 GPUs each. None are
    those at hand. Raises BadInput for another form.
    """
    if text is None:
        return []
    parts = text.lower().split("x")
    if len(parts) > 3 or not all(part.isdecimal() for part in parts) or not int(parts[0]):
        raise BadInput(
            f"--hosts {text}: write their number, or 8x32 with the CPUs of each, or 8x32x4 with "
            "its GPUs as well"
        )
    count, *own = map(int, parts)
    mine = machines()[0]
    return [Host(max(1, own[0] if own else mine.cpus), own[1] if own[1:] else mine.gpus)] * count


def machines() -> list[Host]:
    """The hosts of the Ray cluster that this process has joined; else this machine."""
    if "ray" in sys.modules and sys.modules["ray"].is_initialized():
        nodes = Nodes.of_session()
        return [Host(nodes.cpus[name], nodes.gpus[name]) for name in nodes.ids if nodes.cpus[name]]
    return [Host(cpus(), gpus())]


def _run_work(built: int, cached: int) -> Work:
    """The figures of what a run takes beside its stages."""
    return {"built": float(built), "cached": float(cached), "session": float(built > 0)}


def job_of(node: Node, place: Placement) -> Job:
    """What a stage waits for, and what it holds: that of its training, or one CPU."""
    names = [need.name for need in node.needs]
    if node.about.scores:
        return Job(node.name, tuple(names), gpus=min(1, place.gpus))
    if not node.about.trains:
        return Job(node.name, tuple(names))
    return Job(node.name, tuple(names), place.cpu_threads, place.gpus, place.workers)


def _cold(
    trainings: Sequence[Node], stages: Mapping[str, StagePrice], hosts: Sequence[Host]
) -> list[Node]:
    """The trainings that are the first of their process, and import what trains: a process whose
    training has ended takes the next one, so that a new one is begun only where as many others run
    as processes were begun so far.
    """
    line = schedule(
        [one.job for one in stages.values()],
        {name: one.seconds.value for name, one in stages.items()},
        hosts,
    )
    found: list[Node] = []
    running: list[float] = []
    for node in sorted(trainings, key=lambda node: line.starts[node.name]):
        running = [end for end in running if end > line.starts[node.name]]
        if len(running) >= len(found) or stages[node.name].job.workers > 1:
            found.append(node)
        running.append(line.ends[node.name])
    return found


def _colder(one: StagePrice, node: Node, past: Experience) -> StagePrice:
    """The same in a process that has not trained yet."""
    work = one.work | {"cold": 1.0}
    return replace(one, work=work, seconds=past.seconds(node.spec.stage, _settings(node), work))


def _settings(node: Node) -> Mapping[str, Any]:
    found: Mapping[str, Any] = node.spec.settings.get("settings", node.spec.settings)
    return found


def _stage(node: Node, place: Placement, past: Experience, size: Any) -> StagePrice:
    job = job_of(node, place)
    if node.found:
        return StagePrice(job, {})
    work, kind = work_of(node, place, size), node.spec.stage
    settings = _settings(node)
    asked = work["steps"] * TOKENS_PER_REPLY if work.get("endpoint") else 0.0
    seconds, written = past.seconds(kind, settings, work), past.written(kind, settings, work)
    return StagePrice(job, work, seconds, written, asked)


def _middle(drawn: Sequence[float], likely: float) -> tuple[float, float]:
    """The ends of the middle 80 %, which the likely value is always in."""
    low, high = np.quantile(drawn, (0.1, 0.9))
    return min(float(low), likely), max(float(high), likely)


def _sum(guesses: Sequence[Guess]) -> Guess:
    """Of things that go up and down together."""
    value = sum(one.value for one in guesses)
    reach = sum(one.value * one.reach for one in guesses) / value if value else 0.0
    return Guess(value, reach)


def _scaled(
    value: float | None, seconds: float, low: float, high: float
) -> tuple[float | None, float | None, float | None]:
    """A figure that goes with the time, and its ends."""
    if value is None or not seconds:
        return value, value, value
    return value, value * low / seconds, value * high / seconds


def _band(name: str, value: float | None, low: float | None, high: float | None) -> Bands:
    """A figure and its ends, in four digits."""
    named = {name: value, f"{name}_low": low, f"{name}_high": high}
    return {k: None if v is None else float(f"{v:.4g}") for k, v in named.items()}
