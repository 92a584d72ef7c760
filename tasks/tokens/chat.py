"""How a conversation becomes tokens: by the model's own template, its marks as single tokens.

    prompt = prompt_ids(encoder, [{"role": "user", "content": "Add 1 and 2."}])
    inputs, targets = supervised(encoder, messages)

A template is Jinja, rendered in a sandbox as `transformers` does. What it writes itself is read
with its marks recognised. What somebody says is text: a user who types `<|assistant|>` gets the
letters.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from cluster.errors import BadInput
from tasks.tokens.roles import KINDS, TEMPLATE, TOKEN_FILES

if TYPE_CHECKING:
    from jinja2 import Template

    from tasks.tokens.encoder import Encoder

NO_LOSS = -100
HELD = "\ue000{}\ue001"
"""Stands for what somebody says while a template is rendered; of characters for private use."""
GENERATION = re.compile(r"\{%-?\s*(end)?generation\s*-?%\}")
"""A tag of `transformers` about what the assistant says; it writes nothing."""
Message = Mapping[str, Any]
Token = tuple[int, int, int]
"""An id, and where its text begins and ends."""
Span = tuple[int, int]


class Rendered(NamedTuple):
    """What a template makes of a conversation; in `typed`, nothing is a mark."""

    text: str
    typed: list[Span]


def prompt_ids(encoder: "Encoder", messages: Sequence[Message]) -> list[int]:
    """The tokens that the assistant's next turn follows. Raises BadInput where the model has no
    template, or its template does not take these messages.
    """
    rendered = render(encoder, messages, prompt=True)
    return [id_ for id_, _, _ in encoder.encode_marked(*rendered)]


def supervised(
    encoder: "Encoder", messages: Sequence[Message], first: int = 0
) -> tuple[list[int], list[int]]:
    """Inputs and targets of a conversation, of equal length.

    `targets[i]` is the token after `inputs[i]` where that token belongs to what the assistant says
    from message `first` on, or ends its turn, and -100 (no loss) elsewhere. Raises BadInput where
    the template takes back what it wrote before, or does not end a turn with a mark.
    """
    whole = render(encoder, messages)
    tokens = encoder.encode_marked(*whole)
    taught = [False] * len(tokens)
    for turn, message in enumerate(messages):
        if turn >= first and message["role"] == "assistant":
            begin, end = _turn(encoder, messages, turn, whole.text)
            for place in _answer(encoder, tokens, begin, end):
                taught[place] = True
    ids = [id_ for id_, _, _ in tokens]
    last = max((place for place, yes in enumerate(taught) if yes), default=0)
    targets = [id_ if yes else NO_LOSS for id_, yes in zip(ids, taught, strict=True)]
    return ids[:last], targets[1 : last + 1]


def render(encoder: "Encoder", messages: Sequence[Message], prompt: bool = False) -> Rendered:
    """A conversation in the model's template, up to the assistant's turn if it is a `prompt`."""
    if not encoder.roles.template:
        raise BadInput("this model has no chat template: tune it with `instruct`, or do without")
    said = [str(message.get("content") or "") for message in messages]
    # What spells no mark goes through the template as it is: it may ask for it, or trim it.
    held = {
        n: text for n, text in enumerate(said) if any(m in text for m in encoder.special_tokens)
    }
    shown = [
        {**message, "content": HELD.format(n)} if n in held else dict(message)
        for n, message in enumerate(messages)
    ]
    given = {
        "bos_token": encoder.roles.begin or "",
        "eos_token": encoder.roles.end,
        "raise_exception": _refuse,
        "strftime_now": datetime.now().strftime,
    }
    try:
        text = _compiled(encoder.roles.template).render(
            messages=shown, add_generation_prompt=prompt, **given
        )
    except Exception as error:  # a template is a program
        raise BadInput(f"the model's chat template does not take this: {error}") from error
    return _filled(text, held)


def around(encoder: "Encoder") -> tuple[list[int], list[int]]:
    """The tokens before and behind what a user says, up to the assistant's turn."""
    text = render(encoder, [{"role": "user", "content": HELD.format("")}], prompt=True).text
    before, _, behind = text.partition(HELD.format(""))
    first, last = (encoder.encode_marked(part, []) for part in (before, behind))
    return [id_ for id_, _, _ in first], [id_ for id_, _, _ in last]


def _turn(encoder: "Encoder", messages: Sequence[Message], turn: int, whole: str) -> Span:
    """Where in the text a turn of the assistant begins, and all that belongs to it ends."""
    before = render(encoder, messages[:turn], prompt=True).text
    behind = render(encoder, messages[: turn + 1]).text
    if not whole.startswith(before) or not whole.startswith(behind):
        raise BadInput(
            f"the model's chat template writes turn {turn + 1} otherwise when more follow, so that "
            "its answer cannot be taught in place; give conversations that end with it"
        )
    return len(before), len(behind)


def _answer(encoder: "Encoder", tokens: Sequence[Token], begin: int, end: int) -> Iterator[int]:
    """The places of the tokens of an answer, the mark that ends it included."""
    inside = [n for n, (_, _, stop) in enumerate(tokens) if begin < stop <= end]
    for place in inside:
        yield place
        if tokens[place][0] in encoder.special_ids:
            return
    raise BadInput(
        "the model's chat template ends the assistant's turn with no special token, so that the "
        "tuned model would never stop"
    )


def _filled(text: str, held: Mapping[int, str]) -> Rendered:
    """The text with what was held back in its places."""
    typed: list[Span] = []
    for number, said in held.items():
        while (begin := text.find(HELD.format(number))) >= 0:
            text = text[:begin] + said + text[begin + len(HELD.format(number)) :]
            typed.append((begin, begin + len(said)))
    return Rendered(text, sorted(typed))


@lru_cache(maxsize=8)
def _compiled(template: str) -> "Template":
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    # As `transformers` sets it up: templates are written for that.
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    made.filters["tojson"] = lambda value, **how: json.dumps(value, ensure_ascii=False, **how)
    return made.from_string(GENERATION.sub("", template))


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)


def write_tokenizer_config(folder: Path, context: int) -> None:
    """Write `tokenizer_config.json`, chat template included, for transformers to load.

    The folder's `tokenizer.json` says which special tokens there are.
    """
    from tasks.tokens.encoder import load, special_token

    known = load(folder).special_tokens
    roles = {role: special_token(kind) for role, kind in KINDS.items()}
    config = {role: token for role, token in roles.items() if token in known} | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|pad|>",
        "additional_special_tokens": ["<|user|>", "<|assistant|>"],
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (folder / TOKEN_FILES[0]).write_text(json.dumps(config, indent=1) + "\n")
