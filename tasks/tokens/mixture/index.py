"""Which source the n-th sample of a training comes from, and which sample of that source it is.

1. A source's share p of the samples makes sample n its own when round(n p) < round((n + 1) p).
   Before it lie round(n p) of its samples: a Bresenham line, so every prefix has its share to
   within a sample. What is left over is dealt out among the other sources in the same way.
2. Shares are whole multiples of 2**-24, so this is exact at any n, and takes no memory.
3. A segment is a stretch of constant shares. A new one begins where a stage of the mixture ends, or
   where a source has been repeated as often as it may: the others then share its part.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cluster.errors import BadInput
from tasks.tokens.mixture.settings import Mixture, known
from tasks.tokens.steps import Steps

UNIT = 1 << 24


@dataclass(frozen=True)
class SourceSize:
    """One epoch of a source: samples, and the tokens they predict."""

    name: str
    samples: int
    tokens: int

    @property
    def tokens_per_sample(self) -> float:
        """Mean; below the context where samples are padded."""
        return self.tokens / max(self.samples, 1)


@dataclass(frozen=True)
class Segment:
    """Samples from `begin` on with constant shares.

    `quotas` are, per source, its share in `UNIT`s of what the sources before it leave; `before` the
    samples drawn of each source before `begin`.
    """

    begin: int
    quotas: tuple[int, ...]
    before: tuple[int, ...]

    def counts(self, samples: int) -> list[int]:
        """How many of the segment's first samples each source has."""
        found = []
        for quota in self.quotas:
            found.append(_share(samples, quota))
            samples -= found[-1]
        return found


@dataclass(frozen=True)
class MixtureIndex:
    """The sources of samples 0 to `samples` - 1; `locate` is all that a loader needs."""

    sources: tuple[SourceSize, ...]
    segments: tuple[Segment, ...]
    samples: int

    def locate(self, number_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The source of each sample, and its place [B] among that source's, over all epochs."""
        source_B, place_B = np.empty_like(number_B), np.empty_like(number_B)
        begins = np.array([segment.begin for segment in self.segments])
        segment_B = np.searchsorted(begins, number_B, side="right") - 1
        for index in np.unique(segment_B):
            rows = segment_B == index
            source_B[rows], place_B[rows] = _deal(self.segments[index], number_B[rows])
        return source_B, place_B

    def counts(self, samples: int | None = None) -> list[int]:
        """How many of the first samples (default: all) each source has."""
        samples = self.samples if samples is None else samples
        last = [segment for segment in self.segments if segment.begin <= samples][-1]
        inside = last.counts(samples - last.begin)
        return [a + b for a, b in zip(last.before, inside, strict=True)]

    def summary(self) -> list[dict[str, Any]]:
        """Per source: its `samples`, `tokens`, their `share`, and how many `epochs` they make."""
        counts = self.counts()
        tokens = [n * s.tokens_per_sample for n, s in zip(counts, self.sources, strict=True)]
        return [
            {
                "source": source.name,
                "samples": count,
                "tokens": round(part),
                "share": round(part / sum(tokens), 6),
                "epochs": round(count / max(source.samples, 1), 3),
            }
            for source, count, part in zip(self.sources, counts, tokens, strict=True)
        ]


def plan_mixture(mixture: Mixture, sources: Sequence[SourceSize], steps: Steps) -> MixtureIndex:
    """The draws of a training of these steps.

    Raises BadInput for a source that is not there or fills no sample, and when the caps on
    repetition leave fewer samples than the training takes.
    """
    weighed = {name for stage in mixture.stages for name in stage.weights}
    for name in sorted(weighed | mixture.max_epochs.keys()):
        known(name, (source.name for source in sources), "the shards' training split")
    caps = [_cap(source, mixture.max_epochs.get(source.name)) for source in sources]
    segments: list[Segment] = []
    begin, before = 0, [0] * len(sources)
    for stage in mixture.stages:
        weights = [stage.weights.get(source.name, 0.0) for source in sources]
        _check_filled(sources, weights)
        end = steps.before(round(stage.until * steps.count) + 1)
        while begin < end:
            open_ = [w * (n < cap) for w, n, cap in zip(weights, before, caps, strict=True)]
            if not any(open_):
                _refuse(sources, before, begin, steps.total)
            segment = Segment(begin, _quotas(sources, open_), tuple(before))
            left = [cap - n for cap, n in zip(caps, before, strict=True)]
            length = _length(segment, left, end - begin)
            segments.append(segment)
            before = [n + c for n, c in zip(before, segment.counts(length), strict=True)]
            begin += length
    return MixtureIndex(tuple(sources), tuple(segments), begin)


def _share(number: Any, quota: int) -> Any:
    """round(number x quota / UNIT), exact for any int64."""
    whole, rest = number // UNIT, number % UNIT
    return whole * quota + (rest * quota + UNIT // 2) // UNIT


def _deal(segment: Segment, number_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    source_B, place_B = np.full_like(number_B, -1), np.empty_like(number_B)
    rank_B = number_B - segment.begin
    for source, quota in enumerate(segment.quotas):
        taken_B = _share(rank_B, quota)
        here_B = (_share(rank_B + 1, quota) > taken_B) & (source_B < 0)
        source_B[here_B] = source
        place_B[here_B] = segment.before[source] + taken_B[here_B]
        rank_B -= taken_B
    return source_B, place_B


def _quotas(sources: Sequence[SourceSize], weights: Sequence[float]) -> tuple[int, ...]:
    """Weights are shares of tokens; samples of some sources hold fewer tokens than others."""
    parts = [w / s.tokens_per_sample if w else 0.0 for w, s in zip(weights, sources, strict=True)]
    last = max(index for index, part in enumerate(parts) if part)
    return tuple(
        UNIT if index == last else round(UNIT * part / sum(parts[index:])) if part else 0
        for index, part in enumerate(parts)
    )


def _cap(source: SourceSize, max_epochs: float | None) -> float:
    return math.inf if max_epochs is None else math.floor(max_epochs * source.samples)


def _length(segment: Segment, left: Sequence[float], limit: int) -> int:
    """Samples until a source has none left, by bisection: its count never falls."""

    def fits(samples: int) -> bool:
        return all(n <= most for n, most in zip(segment.counts(samples), left, strict=True))

    if fits(limit):
        return limit
    low, high = 0, limit
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _check_filled(sources: Sequence[SourceSize], weights: Sequence[float]) -> None:
    for source, weight in zip(sources, weights, strict=True):
        if weight and not source.samples:
            raise BadInput(
                f"source '{source.name}' has a weight of {weight:g}, and its training text fills "
                "no sample; lower `pretrain.context`, give it more text, or leave it out"
            )


def _refuse(
    sources: Sequence[SourceSize], before: Sequence[int], reached: int, wanted: int
) -> None:
    spent = ", ".join(
        f"{s.name} {n / s.samples:g}" for s, n in zip(sources, before, strict=True) if n
    )
    raise BadInput(
        f"max_epochs leaves {reached} samples and training takes {wanted}; epochs by then: "
        f"{spent or 'none'}. Lower `pretrain.tokens`, raise `max_epochs`, or give more text"
    )
