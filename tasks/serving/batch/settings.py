"""Settings of stage `infer`: the rows, what of each is asked, and how an answer is drawn."""

from typing import Annotated, Any

from pydantic import Field

from cluster.settings import Aside, Gate, Settings
from tasks.inference.generation import Precision
from tasks.tuning.files import ROWS

FIELDS = ("messages", "prompt", "text")
"""Where a row's prompt is looked for, unless a field is named."""
MOST_TOKENS = 64
ANSWERS, REJECTS = "answers.jsonl", "rejects.jsonl"
"""What the stage writes."""


class InferSettings(Settings):
    """Rows to be answered by the finished model, one by one."""

    data: Annotated[str, ROWS] = Field(
        description="a file of rows: .jsonl, .csv or .tsv (also compressed)"
    )
    field: str | None = Field(
        None,
        description="the field of a row that is asked: a text, or a list of messages; null is the "
        f"first of {', '.join(FIELDS)} that it has",
    )
    chat: bool = Field(False, description="a text is put as a user's turn to a tuned model")
    temperature: float = Field(
        0.0, ge=0, le=100, description="divides the logits; 0 takes the likeliest token"
    )
    top_k: int | None = Field(None, ge=1, description="sample among the k most likely tokens")
    top_p: float = Field(
        1.0, gt=0, le=1, description="sample among the fewest tokens that hold this probability"
    )
    min_p: float | None = Field(
        None, gt=0, le=1, description="sample among tokens this share as likely as the likeliest"
    )
    repetition_penalty: float = Field(
        1.0, gt=0, le=100, description="divides positive logits of tokens that occurred"
    )
    presence_penalty: float = Field(
        0.0, ge=-2, le=2, description="taken once from the logit of a token that was written"
    )
    frequency_penalty: float = Field(
        0.0, ge=-2, le=2, description="taken from it for each time that it was written"
    )
    max_tokens: int | None = Field(
        None,
        ge=1,
        description=f"of an answer at most; null is {MOST_TOKENS}, or what the context has room "
        "for. A prompt that leaves less room is too long",
    )
    stop: tuple[str, ...] = Field((), description="texts before which an answer ends")
    response_format: dict[str, Any] | None = Field(
        None, description="the form of an answer, as OpenAI's interface has it: a JSON schema, ..."
    )
    precision: Precision = Field(
        "fp32",
        description="fp16: half the memory, on a CPU less time a token, scores to three digits; "
        "bf16: to two or three, and less time where a device multiplies it",
    )
    max_failed: Annotated[float, Gate()] = Field(
        1.0, ge=0, le=1, description="share of rows without an answer above which the stage fails"
    )
    concurrency: Annotated[int, Aside()] = Field(
        64, ge=1, description="rows answered at a time, by each process"
    )
