"""Who sits an exam: the network of a model folder, a model behind an OpenAI-compatible endpoint, or
a file of answers that were given elsewhere.

A network gives every choice and text its likelihood. An endpoint only writes: it is shown the
choices with letters and asked for one, and the likelihood of a text is not to be had from it.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cluster.errors import BadInput
from tasks.data.row_files import read_row_file
from tasks.evaluation.judging.questions import Distribution, Question, Unscored
from tasks.evaluation.judging.reply_store import ReplyStore
from tasks.inference.generation import load_model, start_ids
from tasks.inference.text_stream import first_stop

if TYPE_CHECKING:
    from tasks.evaluation.judging.endpoint import Endpoint

BATCH = 16
IMPOSSIBLE = -1e3  # nats; JSON has no infinity
LETTERS = "abcdefghijklmnopqrstuvwxyz"  # as replies are read
Progress = Callable[[int, int], object]


class Likelihood(NamedTuple):
    """Of a text: log-probability in nats of its tokens, the end of the document among them."""

    nats: float
    tokens: int


class Candidate(Protocol):
    """Answers to whole prompts; an endpoint may fail to give one."""

    manner: str
    """How answers come about, for signatures."""

    def choose(
        self, prompts: Sequence[str], choices: Sequence[Sequence[str]], progress: Progress
    ) -> list[list[float] | Unscored]:
        """The log-probability, in nats, of every choice behind its prompt."""

    def write(
        self, prompts: Sequence[str], max_tokens: int, stop: Sequence[str], progress: Progress
    ) -> list[str | Unscored]:
        """What follows each prompt, greedily, up to a stop text."""

    def read(self, texts: Sequence[str], progress: Progress) -> list[Likelihood]:
        """How likely each text is as a document."""


class LocalCandidate:
    """The network of a model folder. Raises BadInput for one that does not write text."""

    manner = "likelihood"

    def __init__(self, folder: Path) -> None:
        import torch

        self._network, self._encoder = load_model(folder)
        if self._network.config.family == "encoder":
            raise BadInput(f"{folder} is an encoder: it can neither write nor choose an answer")
        self._start = start_ids(folder, self._network, self._encoder)
        if torch.cuda.is_available():
            self._network.to("cuda")

    def choose(
        self, prompts: Sequence[str], choices: Sequence[Sequence[str]], progress: Progress
    ) -> list[list[float] | Unscored]:
        """See Candidate: the sums over the tokens of each choice."""
        from model.generation import choice_log_probabilities

        found: list[list[float] | Unscored] = []
        for prompt, row in zip(prompts, choices, strict=True):
            ids = [self._encoder.encode(choice) for choice in row]
            asked = self._encoder.encode(prompt) or [self._encoder.eod]
            found.append(choice_log_probabilities(self._network, asked, ids, self._start))
            progress(len(found), len(prompts))
        return found

    def write(
        self, prompts: Sequence[str], max_tokens: int, stop: Sequence[str], progress: Progress
    ) -> list[str | Unscored]:
        """See Candidate."""
        from model.generation import Ending, generate

        def stopped(tokens: Sequence[int]) -> bool:
            return first_stop(self._encoder.decode(tokens), stop) is not None

        ending = Ending(max_tokens, self._encoder.ends, stopped)
        found: list[str | Unscored] = []
        for first in range(0, len(prompts), BATCH):
            batch = prompts[first : first + BATCH]
            ids = [self._encoder.encode(prompt) or [self._encoder.eod] for prompt in batch]
            for row in generate(self._network, ids, ending, start_ids=self._start):
                text = self._encoder.decode(row.ids)
                found.append(text[: first_stop(text, stop)])
            progress(len(found), len(prompts))
        return found

    def read(self, texts: Sequence[str], progress: Progress) -> list[Likelihood]:
        """See Candidate: a long text is read in windows, each beginning with the last token of the
        one before, so that every token is predicted once.
        """
        if self._start:
            raise BadInput("an encoder-decoder predicts parts of a text only; ask it to write")
        found = []
        for text in texts:
            found.append(self._read(text))
            progress(len(found), len(texts))
        return found

    def _read(self, text: str) -> Likelihood:
        from model.generation import choice_log_probabilities

        eod, room = self._encoder.eod, self._network.config.context - 1
        ids = [eod, *self._encoder.encode(text), eod]
        nats = 0.0
        for first in range(0, len(ids) - 1, room):
            window = ids[first + 1 : first + 1 + room]
            (part,) = choice_log_probabilities(self._network, [ids[first]], [window])
            nats += part
        return Likelihood(nats, len(ids) - 1)


class RemoteCandidate:
    """A model behind an endpoint; replies are kept in `replies`, so that none is paid for twice."""

    manner = "letters"

    def __init__(self, endpoint: "Endpoint", replies: Path) -> None:
        from tasks.evaluation.judging.client import EndpointJudge

        self._judge = EndpointJudge(endpoint, ReplyStore(replies))

    def choose(
        self, prompts: Sequence[str], choices: Sequence[Sequence[str]], progress: Progress
    ) -> list[list[float] | Unscored]:
        """See Candidate: the probability of its letter, for each."""
        if most := max((len(row) for row in choices if len(row) > len(LETTERS)), default=0):
            raise BadInput(f"{most} choices; an endpoint is shown at most {len(LETTERS)}")
        pairs = zip(prompts, choices, strict=True)
        verdicts = self._judge.distributions([_question(*pair) for pair in pairs])
        progress(len(prompts), len(prompts))
        return [
            [math.log(p) if p else IMPOSSIBLE for p in verdict.probabilities.values()]
            if isinstance(verdict, Distribution)
            else verdict
            for verdict in verdicts
        ]

    def write(
        self, prompts: Sequence[str], max_tokens: int, stop: Sequence[str], progress: Progress
    ) -> list[str | Unscored]:
        """See Candidate; white space before the answer, which a chat begins afresh, is dropped."""
        replies = self._judge.texts(prompts, max_tokens=max_tokens)
        progress(len(prompts), len(prompts))
        found: list[str | Unscored] = []
        for reply in replies:
            if isinstance(reply, str):
                text = reply.lstrip()
                reply = text[: first_stop(text, stop)]
            found.append(reply)
        return found

    def read(self, texts: Sequence[str], progress: Progress) -> list[Likelihood]:
        """See Candidate: always refused."""
        raise BadInput("an endpoint does not tell how likely a text is; name the model's folder")


class StoredCandidate:
    """Answers given elsewhere: rows `{"prediction"}` with an exam's row's `id`, or in its order.

    Raises BadInput where they are neither.
    """

    manner = "stored"

    def __init__(self, path: Path, rows: Sequence[dict[str, Any]]) -> None:
        stored = [row for _, row in read_row_file(path)]
        if all("id" in row for row in (*stored, *rows)):
            known = {str(row["id"]): row.get("prediction") for row in stored}
            given = [known.get(str(row["id"])) for row in rows]
        elif len(stored) == len(rows):
            given = [row.get("prediction") for row in stored]
        else:
            raise BadInput(
                f"{path} has {len(stored)} answers to {len(rows)} rows; give both an `id`"
            )
        self._given = [
            text if isinstance(text, str) else Unscored("missing", "no text in `prediction`")
            for text in given
        ]

    def choose(
        self, prompts: Sequence[str], choices: Sequence[Sequence[str]], progress: Progress
    ) -> list[list[float] | Unscored]:
        """See Candidate: all on the choice that was named, in words or by its letter."""
        return [_named(text, row) for text, row in zip(self._given, choices, strict=True)]

    def write(
        self, prompts: Sequence[str], max_tokens: int, stop: Sequence[str], progress: Progress
    ) -> list[str | Unscored]:
        """See Candidate; whole, as they were given."""
        return list(self._given)

    def read(self, texts: Sequence[str], progress: Progress) -> list[Likelihood]:
        """See Candidate: always refused."""
        raise BadInput("answers do not tell how likely a text is; name the model's folder")


def _named(text: str | Unscored, choices: Sequence[str]) -> list[float] | Unscored:
    if isinstance(text, Unscored):
        return text
    said = text.strip().rstrip(".").casefold()
    for spoken in ([c.strip().rstrip(".").casefold() for c in choices], list(LETTERS)):
        if said in spoken[: len(choices)]:
            return [0.0 if one == said else IMPOSSIBLE for one in spoken[: len(choices)]]
    return Unscored("no_choice", f"{text[:60]!r} is none of the choices")


def _question(prompt: str, choices: Sequence[str]) -> Question:
    letters = tuple(LETTERS[: len(choices)])
    options = tuple(zip(letters, (choice.strip() for choice in choices), strict=True))
    return Question(
        "Answer the question with the right one of the lettered choices.",
        "Choose the right answer.",
        (("question", prompt), *options),
        f"Reply with one letter, {', '.join(letters)}, and nothing else:",
        letters,
    )
