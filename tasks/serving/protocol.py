"""OpenAI's requests for completions and chat, and what of them the engine is asked.

Names and meanings are those of OpenAI's API reference; beside them stand `top_k`, `min_p` and
`repetition_penalty`, as other servers have them. A key that is not known is refused: it would be a
wish that nobody fulfils.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from model.generation.request import Penalties
from model.generation.sampling import GREEDY, Sampling
from tasks.serving.constrained import grammar_of

IGNORED = ("user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key")
"""Keys that change nothing in an answer."""
DEFAULT_TOKENS = 16
"""Tokens of a completion, unless it says otherwise; as in OpenAI's interface."""
Texts = str | list[str] | list[int] | list[list[int]]


class Asked(BaseModel):
    """What requests for a completion and for a chat have in common."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    model: str | None = None
    temperature: Annotated[float, Field(ge=0, le=100)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[float, Field(ge=0, le=1)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] = 1
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: str | list[str] | None = None
    stream: bool = False
    stream_options: dict[str, Any] | None = None
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] | None = None
    presence_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    frequency_penalty: Annotated[float, Field(ge=-2, le=2)] = 0.0
    repetition_penalty: Annotated[float, Field(gt=0, le=100)] = 1.0
    response_format: dict[str, Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _without_what_changes_nothing(cls, values: Any) -> Any:
        """Nulls are defaults; some keys are about the asker."""
        if not isinstance(values, dict):
            raise ValueError("a request is a JSON object")
        return {k: v for k, v in values.items() if v is not None and k not in IGNORED}

    @field_validator("stop")
    @classmethod
    def _few_stops(cls, value: Any) -> Any:
        stops = [value] if isinstance(value, str) else value or []
        if len(stops) > 16 or not all(stops):
            raise ValueError("stop takes up to 16 texts, none of them empty")
        return stops

    @property
    def stops(self) -> list[str]:
        """The texts before which an answer ends."""
        return list(self.stop or [])

    @property
    def sampling(self) -> Sampling:
        """How tokens are drawn."""
        if self.temperature == 0:
            return GREEDY
        few = self.top_k if self.top_k and self.top_k > 0 else None
        return Sampling(
            temperature=self.temperature, top_p=self.top_p, top_k=few, min_p=self.min_p or None
        )

    @cached_property
    def grammar(self) -> str | None:
        """What an answer has to be a word of, where it has to be of a form. Raises BadInput for a
        form that there is not.
        """
        return grammar_of(self.response_format) if self.response_format else None

    @property
    def penalties(self) -> Penalties:
        """What is taken from tokens that occurred."""
        return Penalties(
            repetition=self.repetition_penalty,
            frequency=self.frequency_penalty,
            presence=self.presence_penalty,
        )

    @property
    def tells_usage(self) -> bool:
        """Whether a stream ends with what it took."""
        return bool((self.stream_options or {}).get("include_usage"))


class CompletionRequest(Asked):
    """`POST /v1/completions`."""

    prompt: Texts
    max_tokens: Annotated[int, Field(ge=0)] = DEFAULT_TOKENS
    logprobs: Annotated[int, Field(ge=0, le=100)] | None = None
    echo: bool = False
    best_of: Annotated[int, Field(ge=1)] | None = None
    suffix: str | None = None

    @model_validator(mode="after")
    def _what_is_not_there(self) -> "CompletionRequest":
        if self.suffix:
            raise ValueError("suffix: no model here fills in between two texts")
        if self.best_of not in (None, self.n):
            raise ValueError(f"best_of is {self.best_of}; it must be n, {self.n}")
        if self.max_tokens == 0 and not self.echo:
            raise ValueError("max_tokens is 0; it must be at least 1, but with echo")
        return self

    @property
    def prompts(self) -> Sequence[str | list[int]]:
        """Each prompt, as text or as ids."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]
        return self.prompt  # pyrefly: ignore[bad-return]

    @property
    def likeliest(self) -> int | None:
        """How many likeliest tokens are told; None tells no log-probabilities."""
        return self.logprobs


class ChatRequest(Asked):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[dict[str, Any]], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=100)] = 0

    @field_validator("messages")
    @classmethod
    def _said(cls, value: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Content in parts becomes one text."""
        return [{**message, "content": _text(message.get("content"))} for message in value]

    @property
    def most(self) -> int | None:
        """Tokens of the answer, where that is said."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def likeliest(self) -> int | None:
        """See `CompletionRequest`."""
        return self.top_logprobs if self.logprobs else None


class EmbeddingRequest(BaseModel):
    """`POST /v1/embeddings`."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    input: str | Annotated[list[str], Field(min_length=1, max_length=2048)]
    encoding_format: Literal["float", "base64"] = "float"
    user: str | None = None

    @property
    def texts(self) -> list[str]:
        """Each text."""
        return [self.input] if isinstance(self.input, str) else self.input


class TokenizeRequest(BaseModel):
    """`POST /tokenize`, as vLLM has it."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True


class DetokenizeRequest(BaseModel):
    """`POST /detokenize`."""

    model_config = ConfigDict(extra="forbid")

    model: str | None = None
    tokens: list[Annotated[int, Field(ge=0)]]


def _text(content: Any) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(
        isinstance(part, dict) and isinstance(part.get("text"), str) for part in content
    ):
        return "".join(part["text"] for part in content)
    raise ValueError("content is a text, or a list of {'type': 'text', 'text': ...}")
