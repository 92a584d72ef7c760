"""What a request in OpenAI's words asks of the engine: prompts as ids, sampling, bias, form.

Of a server and of batch inference alike: they differ in who is told the answer.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.errors import BadInput
from model.config import ModelConfig
from model.generation.ending import Token
from model.generation.request import Reason, Request
from tasks.serving.constrained import Grammar
from tasks.serving.protocol import Asked
from tasks.tokens import chat
from tasks.tokens.encoder import Encoder


@dataclass(frozen=True)
class Asker:
    """One model's words: its tokenizer, and how much it reads."""

    encoder: Encoder
    config: ModelConfig

    def text(self, prompt: str | list[int]) -> list[int]:
        """The ids of a text to go on from, or of ids that are given. An empty one is the start of a
        document. Raises BadInput for an id that no token has.
        """
        encoder = self.encoder
        if isinstance(prompt, str):
            return [*encoder.opening, *encoder.encode(prompt)] or [encoder.eod]
        if wrong := [id_ for id_ in prompt if not 0 <= id_ < encoder.ids]:
            raise BadInput(f"prompt: {wrong[0]} is no token; ids are 0 to {encoder.ids - 1}")
        return prompt

    def chat(self, messages: Sequence[Mapping[str, Any]]) -> list[int]:
        """The ids of a conversation, up to the assistant's turn. Raises BadInput where the model
        has no template, or its template does not take these messages.
        """
        return chat.prompt_ids(self.encoder, messages)

    def room(self, prompt: Sequence[int]) -> int:
        """Tokens that an answer may have at most, to fit into the context with its prompt."""
        return self.config.context - len(prompt)

    def check_length(self, prompt: Sequence[int], most: int) -> None:
        """Raise BadInput for a prompt that leaves less room than its answer may take."""
        if most > self.room(prompt):
            raise BadInput(
                f"the prompt has {len(prompt)} tokens and max_tokens is {most}; together they must "
                f"be at most the context of {self.config.context}"
            )

    def request(
        self,
        asked: Asked,
        prompt: Sequence[int],
        most: int,
        seed: int,
        likeliest: int,
        on_token: Callable[[Token], bool],
        on_end: Callable[[Reason], None],
        on_prompt: Callable[[list[Token]], None] | None,
    ) -> Request:
        """The engine's request. Raises BadInput for what this model cannot do."""
        self.check_length(prompt, most)
        grammar = asked.grammar
        return Request(
            prompt=prompt,
            max_tokens=most,
            stop_ids=self.encoder.ends,
            sampling=asked.sampling,
            seed=seed % 2**63,
            likeliest=likeliest,
            bias=self._bias(asked),
            penalties=asked.penalties,
            constraint=Grammar(self.encoder, self.config.vocab_size, grammar) if grammar else None,
            on_token=on_token,
            on_prompt=on_prompt,
            on_end=on_end,
        )

    def _bias(self, asked: Asked) -> dict[int, float]:
        found = asked.logit_bias or {}
        wrong = [id_ for id_ in found if not (id_.isdigit() and int(id_) < self.encoder.ids)]
        if wrong:
            raise BadInput(
                f"logit_bias: {wrong[0]} is no token; ids are 0 to {self.encoder.ids - 1}"
            )
        return {int(id_): value for id_, value in found.items()}
