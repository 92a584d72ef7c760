"""Few-shot prompts: a task shown by examples, without training (Brown et al. 2020, section 2).

Input: sea
Output: la mer

Input: tree
Output:
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tasks.tokens.chat import render_prompt

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
    """The same for a model tuned to chat, as earlier turns of the conversation."""
    turns = (
        [*render_prompt(encoder, asked), *encoder.encode(answer), encoder.eod]
        for asked, answer in shots
    )
    return [*(token for turn in turns for token in turn), *render_prompt(encoder, question)]
