"""The pipeline's own instruct-tuned model as a judge: it chooses among the allowed answers.

Each allowed answer is scored as the model's reply; the sums of its tokens' log-probabilities, the
end of the reply not included, are made a distribution by softmax over the allowed answers. So every
question gets an answer, and a small model's answers exercise the machinery, no more.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tasks.evaluation.judging.questions import Distribution, Question, Unscored, Verdict
from tasks.tokens.chat import around

if TYPE_CHECKING:
    from model.generation import Network
    from tasks.tokens.vocabulary.stage import Encoder

PROMPT_TOKENS = 160


class LocalJudge:
    """A network and its encoder. Prompts are shortened to 160 tokens or the context."""

    writes = False
    repeats = 0
    name = "in-process model"

    def __init__(
        self,
        network: "Network",
        encoder: "Encoder",
        start_ids: Sequence[int] = (),
    ) -> None:
        self._network, self._encoder = network, encoder
        self._start_ids = start_ids
        self._known: dict[tuple[tuple[int, ...], tuple[str, ...]], Distribution] = {}
        self.calls, self.shortened = 0, 0

    @property
    def cost(self) -> float:
        """USD spent: none, as the model is asked in this process."""
        return 0.0

    @classmethod
    def load(cls, folder: Path) -> "LocalJudge":
        """The judge in a model folder. Raises BadInput for a folder that holds no model."""
        from tasks.inference.generation import load_model, start_ids

        network, encoder = load_model(folder)
        return cls(network, encoder, start_ids=start_ids(folder, network, encoder))

    def distributions(self, questions: Sequence[Question]) -> list[Verdict]:
        """The answers to all questions, in order; the same prompt is scored once."""
        from model.generation import score

        asked = [self._asked(question) for question in questions]
        keys = [
            (tuple(prompt), question.choices)
            for (prompt, _), question in zip(asked, questions, strict=True)
        ]
        new = {key: one for key, one in zip(keys, asked, strict=True) if key not in self._known}
        scored = score(self._network, list(new.values()), self._start_ids)
        for key, row in zip(new, scored, strict=True):
            nats = [one.nats for one in row]
            probabilities = dict(zip(key[1], softmax(nats), strict=True))
            self._known[key] = Distribution(probabilities, "choice")
        self.calls += len(new)
        return [self._known[key] for key in keys]

    def _asked(self, question: Question) -> tuple[list[int], list[list[int]]]:
        """The prompt, and what may answer it."""
        answers = [self._encoder.encode(choice) for choice in question.choices]
        return self._prompt(question, max(map(len, answers))), answers

    def texts(self, prompts: Sequence[str], sample: int = 0) -> list[str | Unscored]:
        """No text: a small model cannot write evaluation steps or questions."""
        return [Unscored("cannot_write", f"{self.name} only chooses") for _ in prompts]

    def _prompt(self, question: Question, answer_tokens: int) -> list[int]:
        """User mark, question, assistant mark; too long a one loses from its longest material,
        and its instruction never takes more than half of the room.
        """
        encode = self._encoder.encode
        context = self._network.config.context - answer_tokens
        limit = min(PROMPT_TOKENS, context)
        form = encode("\n" + question.form.split("\n")[-1])
        labels = [encode(f"\n{label}: ") for label, _ in question.material]
        texts = [encode(text) for _, text in question.material]
        before, behind = around(self._encoder)
        marks = len(form) + sum(map(len, labels)) + len(before) + len(behind)
        head = encode(question.brief)[: max(0, limit // 2 - marks)]
        sizes = shares([len(text) for text in texts], max(0, limit - marks - len(head)))
        self.shortened += sizes != [len(text) for text in texts]
        body = [t for label, x, n in zip(labels, texts, sizes, strict=True) for t in label + x[:n]]
        return [*before, *head, *body, *form, *behind][-context:]


def shares(sizes: Sequence[int], room: int) -> list[int]:
    """How much of each text fits in `room` together: the short ones whole, the long ones alike."""
    given = [0] * len(sizes)
    for rank, i in enumerate(sorted(range(len(sizes)), key=lambda i: sizes[i])):
        given[i] = min(sizes[i], room // (len(sizes) - rank))
        room -= given[i]
    return given


def softmax(scores: Sequence[float]) -> list[float]:
    """Probabilities proportional to exp(score)."""
    top = max(scores)
    weights = [math.exp(score - top) for score in scores]
    return [weight / sum(weights) for weight in weights]
