"""What a packing tells of itself, for the loader."""

from cluster.facts import Facts
from tasks.tokens.mixture.index import SourceSize


class PackingFacts(Facts):
    """`context` tokens a sample, and what one epoch of each source is."""

    context: int
    sources: tuple[SourceSize, ...]
