"""What a run does right now, for whoever asks from outside: `runs/<id>.live` beside its record.

Its driver writes it every other second and removes it at the end; a killed one leaves the last.
"""

import time
from collections.abc import Iterable
from pathlib import Path

from cluster.files import write_atomically
from cluster.settings import Record

EVERY_SECONDS = 2.0


class UnderWay(Record):
    """A stage that was started, and when, in seconds since the epoch."""

    name: str
    stage: str
    fingerprint: str
    since: float


class Live(Record):
    """Where a run stood `at` a time, in seconds since the epoch. `cpus` and `gpus` are those of its
    Ray cluster: in use, by whomever, and all that there are.
    """

    done: int
    total: int
    under_way: list[UnderWay] = []
    waiting: list[str] = []
    cpus: tuple[float, float] | None = None
    gpus: tuple[float, float] | None = None
    at: float


class Pulse:
    """Writes where a run stands, every `EVERY_SECONDS` at most."""

    def __init__(self, root: Path, run: str | None, total: int):
        self._path = None if run is None else path_of(root, run)
        self._total, self._due = total, time.monotonic() + EVERY_SECONDS
        self._since: dict[str, float] = {}

    def beat(
        self, under_way: Iterable[tuple[str, str, str]], waiting: Iterable[str], done: int
    ) -> None:
        """Note what is under way: name, kind and fingerprint of each stage; unless just noted."""
        now = time.time()
        stages = list(under_way)
        for name, *_ in stages:
            self._since.setdefault(name, now)
        if self._path is None or time.monotonic() < self._due:
            return
        self._due = time.monotonic() + EVERY_SECONDS
        found = Live(
            done=done,
            total=self._total,
            under_way=[
                UnderWay(name=n, stage=s, fingerprint=f, since=self._since[n]) for n, s, f in stages
            ],
            waiting=list(waiting),
            at=now,
            **_in_use(),
        )
        write_atomically(self._path, found.model_dump_json())

    def close(self) -> None:
        """Remove the file: the run has ended."""
        if self._path:
            self._path.unlink(missing_ok=True)


def path_of(root: Path, run: str) -> Path:
    """Where a run tells of itself."""
    return root / "runs" / f"{run}.live"


def read(root: Path, run: str) -> Live | None:
    """What a run told last; None where it has not yet, or has ended."""
    try:
        return Live.model_validate_json(path_of(root, run).read_bytes())
    except (OSError, ValueError):
        return None


def _in_use() -> dict[str, tuple[float, float]]:
    """CPUs and GPUs of the Ray cluster that this process has joined: in use, and all."""
    import ray

    if not ray.is_initialized():
        return {}
    there, free = ray.cluster_resources(), ray.available_resources()
    names = {"cpus": "CPU", "gpus": "GPU"}
    return {
        key: (there[name] - free.get(name, 0.0), there[name])
        for key, name in names.items()
        if name in there
    }
