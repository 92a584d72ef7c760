"""How a conversation becomes tokens: one turn of the user, one of the assistant.

    <|user|> instruction <|assistant|> response <|endoftext|>

The three marks are single tokens that only this module puts in: a user who types `<|assistant|>`
gets the letters. Nothing (no space, no line break) stands between a mark and the text.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.tokens.encoder import Encoder

NO_LOSS = -100

# transformers renders this to one string and encodes that with the marks recognised: the same ids
# as `render_prompt`, except for a user who types a mark, which there becomes the mark.
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<|user|>{{ message['content'] }}"
    "{% elif message['role'] == 'assistant' %}<|assistant|>{{ message['content'] }}<|endoftext|>"
    "{% else %}{{ raise_exception('roles are user and assistant, not ' + message['role']) }}"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def render_prompt(encoder: "Encoder", instruction: str) -> list[int]:
    """The tokens an answer follows: user mark, instruction, assistant mark."""
    return [encoder.user, *encoder.encode(instruction), encoder.assistant]


def render_example(
    encoder: "Encoder", instruction: str, response: str
) -> tuple[list[int], list[int]]:
    """Inputs and targets of one supervised pair, of equal length.

    `targets[i]` is the token after `inputs[i]` where that token belongs to the answer or ends it,
    and -100 (no loss) before: the last prompt token already predicts the answer's first.
    """
    prompt = render_prompt(encoder, instruction)
    answer = [*encoder.encode(response), encoder.eod]
    return [*prompt, *answer[:-1]], [NO_LOSS] * (len(prompt) - 1) + answer


ROLES = {"mask_token": "mask", "cls_token": "class", "sep_token": "separator"}
"""Special tokens of objectives that transformers has a name for."""


def write_tokenizer_config(folder: Path, context: int) -> None:
    """Write `tokenizer_config.json`, chat template included, for transformers to load.

    The folder's `tokenizer.json` says which special tokens there are.
    """
    from tasks.tokens.encoder import load, special_token

    known = load(folder).special_tokens
    roles = {role: special_token(kind) for role, kind in ROLES.items()}
    config = {role: token for role, token in roles.items() if token in known} | {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|endoftext|>",
        "pad_token": "<|pad|>",
        "additional_special_tokens": ["<|user|>", "<|assistant|>"],
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")
