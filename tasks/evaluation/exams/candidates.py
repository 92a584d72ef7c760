"""Who sits an exam: the network of a model folder, a model behind an OpenAI-compatible endpoint, or
a file of answers that were given elsewhere.

A network gives every choice and text its likelihood. An endpoint only writes: it is shown the
choices with letters and asked for one, and the likelihood of a text is not to be had from it.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cluster.errors import BadInput
from tasks.data.row_files import read_row_file
from tasks.evaluation.judging.questions import Distribution, Question, Unscored
from tasks.evaluation.judging.reply_store import ReplyStore
from tasks.inference.generation import best_device, load_model, start_ids
from tasks.inference.text_stream import before_stop, first_stop

if TYPE_CHECKING:
    from model.generation import Network, Scored
    from tasks.evaluation.judging.endpoint import Endpoint
    from tasks.tokens.encoder import Encoder

IMPOSSIBLE = -1e3  # nats; JSON has no infinity
LETTERS = "abcdefghijklmnopqrstuvwxyz"  # as replies are read
FOLDER = "name the model's folder"
NO_LIKELIHOOD = f"answers do not tell how likely a text is; {FOLDER}"
Progress = Callable[[int, int], object]


class Likelihood(NamedTuple):
    """How likely a text is: the log-probability of its tokens in nats, their number, and whether
    each was the likeliest in its place.
    """

    nats: float
    tokens: int
    greedy: bool = False


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
        """How likely each text is as a document, the end of the document included."""

    def loglikelihood(
        self, pairs: Sequence[tuple[str, str]], progress: Progress
    ) -> list[Likelihood | Unscored]:
        """How likely each second text is behind the first, as lm-evaluation-harness counts it."""

    def loglikelihood_rolling(
        self, texts: Sequence[str], progress: Progress
    ) -> list[Likelihood | Unscored]:
        """How likely each text is, without an end, as lm-evaluation-harness counts it."""


class NetworkCandidate:
    """A network that writes text; what an encoder-decoder's decoder begins with is `start`."""

    manner = "likelihood"

    def __init__(self, network: "Network", encoder: "Encoder", start: Sequence[int]) -> None:
        self._network, self._encoder, self._start = network, encoder, start

    def choose(
        self, prompts: Sequence[str], choices: Sequence[Sequence[str]], progress: Progress
    ) -> list[list[float] | Unscored]:
        """See Candidate: the sums over the tokens of each choice."""
        asked = [
            (self._read_first(prompt), [self._encoder.encode(choice) for choice in row])
            for prompt, row in zip(prompts, choices, strict=True)
        ]
        return [[one.nats for one in row] for row in self._score(asked, progress)]

    def write(
        self, prompts: Sequence[str], max_tokens: int, stop: Sequence[str], progress: Progress
    ) -> list[str | Unscored]:
        """See Candidate."""
        from model.generation import Ending, generate

        def stopped(tokens: Sequence[int]) -> bool:
            return first_stop(self._encoder.decode(tokens), stop) is not None

        ending = Ending(max_tokens, self._encoder.ends, stopped)
        ids = [self._read_first(prompt) for prompt in prompts]
        rows = generate(self._network, ids, ending, start_ids=self._start, progress=progress)
        texts = [self._encoder.decode(row.ids) for row in rows]
        return [before_stop(text, stop) for text in texts]

    def read(self, texts: Sequence[str], progress: Progress) -> list[Likelihood]:
        """See Candidate: a long text is read in windows, each beginning with the last token of the
        one before, so that every token is predicted once.
        """
        eod, room = self._encoder.eod, self._network.config.context - 1
        rows = []
        for text in texts:
            ids = [eod, *self._encoder.encode(text), eod]
            starts = range(0, len(ids) - 1, room)
            rows.append([(ids[i : i + 1], ids[i + 1 : i + 1 + room]) for i in starts])
        return self._read(rows, progress)

    def loglikelihood(
        self, pairs: Sequence[tuple[str, str]], progress: Progress
    ) -> list[Likelihood | Unscored]:
        """See Candidate. What both are together is encoded, and parted where the first text's own
        tokens end (Biderman et al. 2024, Lessons from the trenches, appendix A.3); a first text
        that is too long loses its beginning. Pairs that begin alike, one after another, are scored
        together.
        """
        room = self._network.config.context + 1
        halves = [self._parted(*pair) for pair in pairs]
        for (_, ids), (_, last) in zip(halves, pairs, strict=True):
            if not 0 < len(ids) < room:
                raise BadInput(
                    f"{last[:60]!r} is to follow and has {len(ids)} tokens; it must be from 1 to "
                    f"{room - 1}, the model's context"
                )
        # What an encoder reads takes no room from what its decoder writes.
        cut = [(a if self._start else a[-(room - len(b)) :], b) for a, b in halves]
        grouped = itertools.groupby(cut, key=lambda pair: pair[0])
        asked = [(first, [last for _, last in group]) for first, group in grouped]
        scored = self._score(asked, lambda done, of: progress(done * len(pairs) // of, len(pairs)))
        lasts = [last for _, group in asked for last in group]
        ones = [one for row in scored for one in row]
        return [
            Likelihood(one.nats, len(last), one.greedy)
            for one, last in zip(ones, lasts, strict=True)
        ]

    def loglikelihood_rolling(
        self, texts: Sequence[str], progress: Progress
    ) -> list[Likelihood | Unscored]:
        """See Candidate: in windows of the context's length, of which the last reads as much of
        what came before as there is room for.
        """
        context = self._network.config.context
        rows = []
        for text in texts:
            ids = [self._prefix, *self._encoder.opening, *self._encoder.encode(text)]
            ends = [min(at + context, len(ids)) for at in range(1, len(ids), context)]
            parts = zip([1, *ends[:-1]], ends, strict=True)
            windows = [(ids[max(0, end - context - 1) : at], ids[at:end]) for at, end in parts]
            rows.append([(first, last) for first, last in windows if last])
        return [*self._read(rows, progress)]

    @property
    def _prefix(self) -> int:
        """What stands before a text that nothing comes before."""
        begin = self._encoder.special_tokens.get(self._encoder.roles.begin or "")
        return self._encoder.eod if begin is None else begin

    def _parted(self, first: str, last: str) -> tuple[list[int], list[int]]:
        """The tokens of two texts, the second of which goes on from the first."""
        encode, opening = self._encoder.encode, self._encoder.opening
        kept = first.rstrip()
        begun = encode(kept)
        if self._start:
            return [*opening, *begun], encode(first[len(kept) :] + last)
        if not kept:
            return [self._prefix], encode(first + last)
        return [*opening, *begun], encode(first + last)[len(begun) :]

    def _read_first(self, prompt: str) -> list[int]:
        """The tokens of a prompt; the end of a document is what documents follow in pretraining."""
        return [*self._encoder.opening, *self._encoder.encode(prompt)] or [self._encoder.eod]

    def _score(
        self, asked: Sequence[tuple[list[int], list[list[int]]]], progress: Progress
    ) -> list[list["Scored"]]:
        from model.generation import score

        return score(self._network, asked, self._start, progress)

    def _read(
        self, rows: Sequence[Sequence[tuple[list[int], list[int]]]], progress: Progress
    ) -> list[Likelihood]:
        """The likelihood of each text, given in parts: (tokens before, tokens of the part)."""
        if self._start:
            raise BadInput("an encoder-decoder predicts parts of a text only; ask it to write")
        asked = [(first, [last]) for row in rows for first, last in row]
        scored = (row[0] for row in self._score(asked, progress))
        found = []
        for row in rows:
            ones = [next(scored) for _ in row]
            tokens = sum(len(last) for _, last in row)
            nats = sum(one.nats for one in ones)
            found.append(Likelihood(nats, tokens, all(one.greedy for one in ones)))
        return found


class LocalCandidate(NetworkCandidate):
    """The network of a model folder. Raises BadInput for one that does not write text."""

    def __init__(self, folder: Path) -> None:
        network, encoder = load_model(folder)
        if network.config.family == "encoder":
            raise BadInput(f"{folder} is an encoder: it can neither write nor choose an answer")
        network.to(best_device())
        super().__init__(network, encoder, start_ids(folder, network, encoder))


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
                reply = before_stop(reply.lstrip(), stop)
            found.append(reply)
        return found

    def read(self, texts: Sequence[str], progress: Progress) -> list[Likelihood]:
        """See Candidate: always refused."""
        raise BadInput("an endpoint does not tell how likely a text is; name the model's folder")

    def loglikelihood(
        self, pairs: Sequence[tuple[str, str]], progress: Progress
    ) -> list[Likelihood | Unscored]:
        """See Candidate: by the log-probabilities that come with the echo of both texts."""
        if any(not first.rstrip() for first, _ in pairs):
            raise BadInput(f"an endpoint tells nothing of a text's first token; {FOLDER}")
        found = self._judge.echoes([first + last for first, last in pairs])
        progress(len(pairs), len(pairs))
        return [
            told if isinstance(told, Unscored) else _of_echo(told, *pair)
            for told, pair in zip(found, pairs, strict=True)
        ]

    def loglikelihood_rolling(
        self, texts: Sequence[str], progress: Progress
    ) -> list[Likelihood | Unscored]:
        """See Candidate: always refused."""
        raise BadInput(f"an endpoint tells nothing of a text's first token; {FOLDER}")


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
        raise BadInput(NO_LIKELIHOOD)

    def loglikelihood(
        self, pairs: Sequence[tuple[str, str]], progress: Progress
    ) -> list[Likelihood | Unscored]:
        """See Candidate: always refused."""
        raise BadInput(NO_LIKELIHOOD)

    def loglikelihood_rolling(
        self, texts: Sequence[str], progress: Progress
    ) -> list[Likelihood | Unscored]:
        """See Candidate: always refused."""
        raise BadInput(NO_LIKELIHOOD)


def _of_echo(told: dict[str, Any], first: str, last: str) -> Likelihood:
    """What the log-probabilities of an echo say of its end. Raises BadInput where they are missing:
    an endpoint that has none gives no answer, and none is made up.
    """
    begin, end = len(first.rstrip()), len(first + last)
    offsets, nats = told.get("text_offset") or [], told.get("token_logprobs") or []
    ends = [*offsets[1:], math.inf]
    mine = [n for n, at in enumerate(offsets) if ends[n] > begin and at < end]
    if not mine or len(nats) != len(offsets) or any(nats[n] is None for n in mine):
        raise BadInput(
            "the endpoint sends no log-probabilities with an echo (`echo` and `logprobs` of "
            f"completions); serve the model by `headrace serve` or vLLM, or {FOLDER}"
        )
    tops = told.get("top_logprobs") or [None] * len(offsets)
    greedy = all(tops[n] and nats[n] >= max(tops[n].values()) for n in mine)
    return Likelihood(sum(nats[n] for n in mine), len(mine), greedy)


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
