"""What the tokens of a vocabulary are for: what ends a text, what fills a row, how one converses.

Headrace's own tokenizers say it by the names of their tokens. A published folder says it in
`tokenizer_config.json`, `special_tokens_map.json`, `generation_config.json` and `config.json`, its
chat template also in `chat_template.jinja`; where two of them speak of one token, the first does.

    roles = read_roles(folder)
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cluster.errors import BadInput

TOKEN_FILES = ("tokenizer_config.json", "special_tokens_map.json")
"""What names special tokens as they are written."""
ID_FILES = ("generation_config.json", "config.json")
"""What names them by their ids."""
TEMPLATE_FILE = "chat_template.jinja"
TOKENIZER_FILES = ("tokenizer.json", *TOKEN_FILES, TEMPLATE_FILE, ID_FILES[0])
"""What of a model folder is about its tokens."""
WEIGHT_FILES = ("model.safetensors", "model.safetensors.index.json")
"""What a whole model's folder has one of."""
KINDS = {"mask_token": "mask", "cls_token": "class", "sep_token": "separator"}
"""Special tokens of objectives that `transformers` has a name for, and ours."""
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}<|endoftext|>"
    "{% elif message['role'] in ('system', 'user', 'tool') %}<|user|>{{ message['content'] }}"
    "{% else %}{{ raise_exception('role ' + message['role'] + ' is none of system, user, "
    "assistant, tool') }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""How those talk that Headrace tunes from nothing: whoever is not the assistant speaks to it."""


@dataclass(frozen=True)
class Roles:
    """Tokens by what they are for, as they are written; `ends` are ids of more that end a text."""

    end: str = "<|endoftext|>"
    pad: str = "<|pad|>"
    begin: str | None = None
    ends: tuple[int, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    template: str | None = TEMPLATE


def read_roles(folder: Path) -> Roles:
    """What a model folder says; Headrace's own roles where it says nothing.

    Raises BadInput for a file that is not JSON, and where nothing says what ends a text.
    """
    said: dict[str, str] = {}
    for file in reversed(TOKEN_FILES):
        said |= {key: _written(value) for key, value in _read(folder / file).items() if value}
    if not said:
        return Roles()
    end = said.get("eos_token") or said.get("sep_token")
    if end is None:
        raise BadInput(f"{folder} does not say what ends a text: no eos_token in {TOKEN_FILES[0]}")
    return Roles(
        end=end,
        pad=said.get("pad_token") or end,
        begin=said.get("bos_token"),
        ends=tuple(_ends(folder)),
        kinds={kind: said[name] for name, kind in KINDS.items() if said.get(name)},
        template=_template(folder),
    )


def _ends(folder: Path) -> list[int]:
    """The ids that end what is generated, of which there may be several."""
    found = [_read(folder / file).get("eos_token_id") for file in ID_FILES]
    lists = [value if isinstance(value, list) else [value] for value in found]
    return sorted({one for values in lists for one in values if isinstance(one, int)})


def _template(folder: Path) -> str | None:
    file = folder / TEMPLATE_FILE
    if file.is_file():
        return file.read_text(encoding="utf-8")
    said = _read(folder / TOKEN_FILES[0]).get("chat_template")
    if isinstance(said, list):  # several by name, as of models with tools
        named = {one["name"]: one["template"] for one in said}
        return named.get("default") or next(iter(named.values()), None)
    return said


def _written(value: Any) -> Any:
    """How a token is written, which some files say among other things of it."""
    return value["content"] if isinstance(value, dict) and "content" in value else value


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(
            f"{path} cannot be read as JSON: {error}; copy the folder here once more, or build it "
            "again: `headrace verify` tells what is damaged"
        ) from error
    return found if isinstance(found, dict) else {}
