"""Settings of stage `tokenizer`: the kind of vocabulary, its size, and the rules of learning it."""

import re
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from cluster.settings import Settings, said
from tasks.tokens.encoder import SPECIALS
from tasks.tokens.origins import TOKENIZER, tokens_of
from tasks.tokens.patterns import KERNEL_PATTERN, expression


class TokenizerSettings(Settings):
    """How the vocabulary is learnt, or where there is one."""

    model_config = ConfigDict(serialize_by_alias=True)  # `from` is no name in Python

    origin: Annotated[str | None, TOKENIZER] = Field(
        None,
        alias="from",
        description="a folder with a tokenizer to take as it is, or hf://org/name@revision; null "
        "learns one, or takes that of model.from",
    )
    kind: Literal["bpe", "wordpiece", "unigram"] = Field(
        "bpe", description="subword algorithm, over bytes; unigram is not reproducible bit for bit"
    )
    vocab_size: int = Field(
        4096, ge=256 + len(SPECIALS), description="tokens at most: bytes and special ones included"
    )
    pattern: str = Field(
        KERNEL_PATTERN,
        description="words, which no token reaches across: as published for gpt2, cl100k, o200k or "
        "qwen, or the matches of a regular expression of `tokenizers` (Oniguruma) and what lies "
        "between them",
    )
    ties: Literal["huggingface", "lexical"] = Field(
        "huggingface",
        description="which of equally frequent pairs bpe merges first: huggingface, the one with "
        "the lowest ids, as `tokenizers` does; lexical, the one whose strings of bytes are the "
        "greatest, as trainers in textbooks do",
    )
    text_bytes: int = Field(
        50_000_000, ge=1, description="bytes of text to learn from, spread evenly over all of it"
    )
    special_tokens: tuple[str, ...] = Field(
        (),
        description="special tokens of your own, such as <|note|>; "
        "those that the objective needs are added by themselves",
    )

    @model_validator(mode="before")
    @classmethod
    def _as_it_is(cls, values: Any) -> Any:
        """One that exists is not learnt: it has its size, and nothing else is to be said of it."""
        if not isinstance(values, dict) or not values.get("from"):
            return values
        size = tokens_of(values["from"])
        own = {"from": values["from"], **({"vocab_size": size} if size else {})}
        if others := sorted(said(cls, values) - set(own)):
            named = ", ".join(others)
            raise ValueError(f"from: a tokenizer that exists is taken as it is; leave out {named}")
        return own

    @field_validator("pattern")
    @classmethod
    def _pattern_can_be_used(cls, value: str) -> str:
        expression(value)
        return value

    @model_validator(mode="after")
    def _ties_of_merges(self) -> "TokenizerSettings":
        if self.ties != "huggingface" and self.kind != "bpe":
            raise ValueError(f"ties {self.ties} is for kind bpe, not for {self.kind}")
        return self

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
        return 256 + len(self.all_special_tokens)

    @property
    def all_special_tokens(self) -> list[str]:
        """Those that every tokenizer has, and then its own, in the order of their ids."""
        return [*SPECIALS, *self.special_tokens]
