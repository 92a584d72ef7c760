"""A vocabulary of words, and texts of it."""

import numpy as np
import pytest

from model.objectives.rows import Vocabulary

KINDS = ("end", "pad", "mask", "class", "separator", "denoise_r", "denoise_x", "denoise_s")
SENTINELS = 60
STOP = 99
"""The id of the full stop, after which a sentence ends."""
WORDS = 1000


@pytest.fixture(scope="session")
def vocabulary() -> Vocabulary:
    """Special tokens from 0 on, then words; 99 is the full stop."""
    ids = {kind: i for i, kind in enumerate(KINDS)}
    ids |= {f"sentinel_{i}": len(KINDS) + i for i in range(SENTINELS)}
    return Vocabulary(ids, np.arange(len(ids), WORDS), np.arange(WORDS) == STOP)
