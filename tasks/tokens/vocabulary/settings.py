"""Settings of stage `tokenizer`: the kind of vocabulary and its size."""

import re
from typing import Literal

from pydantic import Field, model_validator

from cluster.settings import Settings
from tasks.tokens.encoder import SPECIALS


class TokenizerSettings(Settings):
    """How the vocabulary is learnt."""

    kind: Literal["bpe", "wordpiece", "unigram"] = Field(
        "bpe", description="subword algorithm, over bytes; unigram is not reproducible bit for bit"
    )
    vocab_size: int = Field(
        4096, ge=256 + len(SPECIALS), description="tokens at most: bytes and special ones included"
    )
    text_bytes: int = Field(
        50_000_000, ge=1, description="bytes of text to learn from, spread evenly over all of it"
    )
    special_tokens: tuple[str, ...] = Field(
        (),
        description="special tokens of your own, such as <|note|>; "
        "those that the objective needs are added by themselves",
    )

    @model_validator(mode="after")
    def _room_for_special_tokens(self) -> "TokenizerSettings":
        for token in self.special_tokens:
            # With a letter or digit inside, no word of the text, and so no merge, can spell it.
            if not re.fullmatch(r"<\|\w*[^\W_]\w*\|>", token) or token in SPECIALS:
                raise ValueError(f"special_tokens: {token!r} must look like <|note|> and be new")
        if self.vocab_size < self.least:
            raise ValueError(
                f"vocab_size {self.vocab_size} must be at least {self.least}: 256 bytes and "
                f"{self.least - 256} special tokens, of which the objective needs "
                f"{len(self.special_tokens)}"
            )
        return self

    @property
    def least(self) -> int:
        """Tokens of a vocabulary without merges: bytes and special tokens."""
        return 256 + len(SPECIALS) + len(self.special_tokens)
