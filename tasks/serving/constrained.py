"""Answers that have to be of a form: JSON of a schema, or a match of a regular expression.

llguidance says of every token whether it can come next; it knows the tokenizer's tokens byte by
byte.
"""

import json
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from cluster.errors import BadInput, MissingExtra
from tasks.tokens.encoder import Encoder


class Grammar:
    """A language, as `model.generation.request.Constraint` has it; for one answer."""

    def __init__(self, encoder: Encoder, size: int, grammar: str) -> None:
        llguidance = _library()
        tokens = _tokenizer(encoder.definition, size, encoder.eod)
        self._matcher = llguidance.LLMatcher(tokens, grammar)
        if error := self._matcher.get_error():
            raise BadInput(f"response_format: {error}")

    def restrict(self, logits_V: Tensor) -> None:
        """Set the scores of tokens that cannot come next to minus infinity, in place."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        allowed_V = torch.from_numpy(np.unpackbits(bits, bitorder="little")[: len(logits_V)])
        logits_V.masked_fill_(allowed_V.to(logits_V.device) == 0, -torch.inf)

    def accept(self, token: int) -> bool:
        """Note the token that was chosen; whether nothing may follow."""
        self._matcher.consume_token(token)
        return bool(self._matcher.is_stopped())


def grammar_of(form: dict[str, Any]) -> str | None:
    """The grammar of a `response_format`: `json_object`, `json_schema`, or `regex`, which OpenAI's
    interface has not; None for `text`. Raises BadInput for another, or one without its schema.
    """
    match form.get("type"):
        case "text":
            return None
        case "json_object":
            return _of_schema({"type": "object"})
        case "json_schema" if isinstance(schema := form.get("json_schema"), dict):
            return _of_schema(schema.get("schema", {}))
        case "regex" if isinstance(form.get("regex"), str):
            return str(_library().LLMatcher.grammar_from_regex(form["regex"]))
    raise BadInput(
        f"response_format is {json.dumps(form)[:200]}; its type must be 'text', 'json_object', "
        "'json_schema' with json_schema.schema, or 'regex' with regex"
    )


def _of_schema(schema: Any) -> str:
    # Else a small model fills its answer with blanks, which JSON allows anywhere.
    compact = {"whitespace_flexible": False}
    matcher = _library().LLMatcher
    return str(matcher.grammar_from_json_schema(json.dumps(schema), compact))


def _library() -> Any:
    try:
        import llguidance
    except ImportError as error:
        raise MissingExtra(
            "response_format needs llguidance: `uv pip install 'headrace[serve]'`"
        ) from error
    return llguidance


@lru_cache(maxsize=2)
def _tokenizer(definition: str, size: int, end: int) -> Any:
    return _library().LLTokenizer(definition, n_vocab=size, eos_token=end)
