"""What shards tell of themselves, for those that read them."""

from cluster.facts import Facts


class SplitFacts(Facts):
    """One split; `bytes` of UTF-8 text, without end-of-document tokens."""

    documents: int
    tokens: int
    bytes: int
    shards: tuple[int, ...]
    """The tokens of each shard."""


class ShardFacts(Facts):
    """Both splits, and what their numbers are."""

    train: SplitFacts
    heldout: SplitFacts
    vocab_size: int
    dtype: str
    eod: int
    """The id that ends a document."""
    tombstone: int | None = None
    """What stands for each token of a document that was erased, if any was."""

    def split(self, name: str) -> SplitFacts:
        """One of the two."""
        return self.heldout if name == "heldout" else self.train


class EncodingFacts(Facts):
    """How text became tokens; tokens with their counts."""

    tokenizer_sha256: str
    bytes_per_token: float
    """Without end-of-document tokens."""
    fertility: float
    """Tokens per word."""
    vocabulary_use: float
    """Share of ids that occur."""
    rarest: tuple[tuple[str, int], ...]
    longest: tuple[tuple[str, int], ...]
