"""The interval of a share, from counts alone."""

import math


def wilson_interval(right: int, rows: int) -> tuple[float, float]:
    """The 95 % interval of a share, from counts (Wilson 1927)."""
    z = 1.96
    share, weight = right / rows, z * z / rows
    middle = (share + weight / 2) / (1 + weight)
    half = z * math.sqrt(share * (1 - share) / rows + weight / (4 * rows)) / (1 + weight)
    return max(0.0, middle - half), min(1.0, middle + half)
