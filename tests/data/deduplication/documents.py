"""Documents of random words, and copies with some of them changed."""

import random

from tasks.data.deduplication.settings import DedupSettings

SETTINGS = DedupSettings(lines=True, passage_words=20)
PARTITION_BYTES = 10_000  # many partitions of few documents
WORDS = [f"word{i}" for i in range(500)]


def document(seed, length=200):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(length))


def edited(text, changes, seed=0):
    rng, words = random.Random(seed), text.split()
    for _ in range(changes):
        words[rng.randrange(len(words))] = f"new{rng.randrange(10**6)}"
    return " ".join(words)
