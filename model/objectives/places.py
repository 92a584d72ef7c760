"""Where a batch has targets, counted before it is on a device, which then need not be asked."""

import numpy as np

from model.objectives.rows import IGNORED

PLACES = "places"
"""What they are called in a batch."""
LEAST, PARTS = 64, 64


def places_of(targets: np.ndarray) -> np.ndarray:
    """The places among all of a batch's that have a target, in order, int64; then one that has none
    once more until there are a multiple of a 64th of all, so that steps have few different shapes.
    """
    flat = targets.ravel()
    found, step = np.flatnonzero(flat != IGNORED), max(LEAST, flat.size // PARTS)
    room = min(flat.size, step * max(1, -(-len(found) // step)))
    spare = np.argmin(flat != IGNORED)
    return np.pad(found, (0, room - len(found)), constant_values=spare)
