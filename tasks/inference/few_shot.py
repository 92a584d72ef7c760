"""Few-shot prompts: a task shown by examples, without training (Brown et al. 2020, section 2).

Input: sea
Output: la mer

Input: tree
Output:
"""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks.tokens.chat import prompt_ids

if TYPE_CHECKING:
    from tasks.tokens.encoder import Encoder

Shot = tuple[str, str]
STOP = "\n\nInput:"
"""What a model writes when it goes on to an example of its own."""


def few_shot_prompt(shots: Sequence[Shot], question: str) -> str:
    """The examples and then the question, whose answer is to follow; no more without examples."""
    if not shots:
        return question
    shown = [f"Input: {asked}\nOutput: {answer}\n\n" for asked, answer in shots]
    return "".join(shown) + f"Input: {question}\nOutput:"


def few_shot_chat(encoder: "Encoder", shots: Sequence[Shot], question: str) -> list[int]:
    """The tokens of that prompt for a model tuned to chat: examples are earlier turns."""
    said = [text for shot in shots for text in shot] + [question]
    roles = itertools.cycle(("user", "assistant"))
    turns = [{"role": role, "content": text} for role, text in zip(roles, said, strict=False)]
    return prompt_ids(encoder, turns)
