"""Who writes: a model behind an endpoint, or one in this process. Both also answer closed
questions, as judges do, and keep every reply before it is read: no attempt asks for it again.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from cluster.errors import BadInput
from tasks.evaluation.judging.questions import Judge, Unscored

if TYPE_CHECKING:
    from model.generation.request import Request

HERE = "in-process"
"""What the key of a reply has in place of an endpoint's address."""


class Asked(NamedTuple):
    """A prompt, and the seed by which its reply is drawn."""

    prompt: str
    seed: int


class Written(NamedTuple):
    """A reply, and whether it was cut off at `max_tokens`."""

    text: str
    cut: bool


class Sampling(NamedTuple):
    """How replies are drawn, and how long they may be."""

    temperature: float
    top_p: float
    max_tokens: int

    def parameters(self, seed: int) -> dict[str, Any]:
        """What is said of one reply, by the names that endpoints have for it."""
        return {**self._asdict(), "seed": seed}


class WriterPlan(NamedTuple):
    """All that it takes to make a writer, on any node: `model` is the endpoint's name of it, or
    `folder` one that is asked in-process, whose identity is `fingerprint`. `usd` is the price of a
    million tokens, `work` names the account of the budgets.
    """

    model: str | None
    url: str | None
    key: str
    folder: Path | None
    fingerprint: str
    sampling: Sampling
    usd: float
    budgets: Mapping[str, float]
    work: str

    @property
    def identity(self) -> str:
        """What a row says of the model."""
        return f"{self.model}@{self.fingerprint}" if self.fingerprint else str(self.model)


class Writer(Protocol):
    """A model that writes, and its `judge`, which chooses among answers."""

    name: str

    @property
    def judge(self) -> Judge:
        """The same model, asked to choose."""

    def write(self, asked: Sequence[Asked]) -> list[Written | Unscored]:
        """What it writes to each prompt, in order."""

    @property
    def used(self) -> dict[str, float]:
        """`requests`, `tokens` in and out, and `usd` where a price is known."""


def writer_at(plan: WriterPlan) -> Writer:
    """The writer. Raises BadInput for an endpoint that must not be used, or a folder that is no
    model that writes.
    """
    return EndpointWriter(plan) if plan.folder is None else LocalWriter(plan)


class EndpointWriter:
    """A model behind an OpenAI-compatible endpoint; `used` is of its work in all attempts."""

    def __init__(self, plan: WriterPlan) -> None:
        from tasks.evaluation.judging.client import EndpointJudge
        from tasks.evaluation.judging.endpoint import Endpoint
        from tasks.evaluation.judging.reply_store import ReplyStore

        if plan.url is None or plan.model is None:
            raise BadInput(
                f"model '{plan.model}' is to be asked and no address is set: "
                "`--set placement.writer_url=http://host:port/v1` (or placement.judge_url), or "
                "give `from`, a model folder, instead of `model`"
            )
        if "budget_usd" in plan.budgets and not plan.usd:
            raise BadInput(
                f"budget_usd {plan.budgets['budget_usd']:g} cannot be kept without a price: "
                "`--set placement.judge_usd=...`, USD per million tokens"
            )
        most = {name: int(n) for name, n in plan.budgets.items() if name != "budget_usd"}
        endpoint = Endpoint(
            plan.url,
            plan.model,
            prices=(plan.usd, plan.usd) if plan.usd else None,
            budget=plan.budgets.get("budget_usd"),
            most_requests=most.get("budget_requests"),
            most_tokens=most.get("budget_tokens"),
            key=plan.key,
        )
        self.name, self._sampling = plan.model, plan.sampling
        self.judge = EndpointJudge(endpoint, ReplyStore.of_home(), plan.work)

    @property
    def used(self) -> dict[str, float]:
        """See `Writer`."""
        judge = self.judge
        totals = {"requests": judge.requests, "tokens": judge.tokens, "usd": judge.spending}
        found = {name: account.total for name, account in totals.items()}
        return {name: round(total, 6) for name, total in found.items() if total is not None}

    def write(self, asked: Sequence[Asked]) -> list[Written | Unscored]:
        """See `Writer`."""
        from tasks.evaluation.judging.free_text import thoughts_end
        from tasks.evaluation.judging.replies import no_answer

        prompts = [one.prompt for one in asked]
        replies = self.judge.replies(prompts, [self._sampling.parameters(a.seed) for a in asked])
        found: list[Written | Unscored] = []
        for reply in replies:
            if isinstance(reply, Unscored):
                found.append(reply)
            elif text := reply.content[thoughts_end(reply.content) :].strip():
                found.append(Written(text, reply.finish_reason == "length"))
            else:
                found.append(no_answer(reply))
        return found


class LocalWriter:
    """A model of this machine on the engine of continuous batches; `used` is of this attempt."""

    name = "in-process model"

    def __init__(self, plan: WriterPlan) -> None:
        from model.generation.engine import Engine
        from tasks.evaluation.judging.local import LocalJudge
        from tasks.evaluation.judging.reply_store import ReplyStore
        from tasks.inference.generation import load_model

        assert plan.folder is not None
        network, self._encoder = load_model(plan.folder)
        try:
            self._engine = Engine(network)
        except ValueError as error:
            raise BadInput(f"{plan.folder}: {error}") from error
        self._context, self._sampling = network.config.context, plan.sampling
        self._identity = plan.fingerprint
        self._store = ReplyStore.of_home()
        self.judge = LocalJudge(network, self._encoder)
        self._requests = 0

    @property
    def used(self) -> dict[str, float]:
        """See `Writer`; tokens are those of written texts, not of questions to the judge."""
        tokens = self._engine.read + self._engine.written
        return {"requests": self._requests + self.judge.calls, "tokens": tokens}

    def write(self, asked: Sequence[Asked]) -> list[Written | Unscored]:
        """See `Writer`. A prompt that leaves no room for a reply in the context is `too_long`."""
        from model.generation.engine import complete
        from tasks.evaluation.judging.reply_store import reply_key

        found: dict[int, Written | Unscored] = {}
        requests: list[Request] = []
        for number, one in enumerate(asked):
            parameters = self._sampling.parameters(one.seed)
            key = reply_key(HERE, self._identity, parameters, one.prompt, 0)
            if kept := self._store.get(key):
                found[number] = Written(kept["content"], kept["finish_reason"] == "length")
            elif (ids := self._fitting(one.prompt)) is None:
                found[number] = Unscored("too_long", f"over the context of {self._context} tokens")
            else:
                requests.append(self._request(ids, one.seed, key, number, found))
        complete(self._engine, requests)
        self._requests += len(requests)
        return [_said(found[number]) for number in range(len(asked))]

    def _fitting(self, prompt: str) -> list[int] | None:
        """The tokens of a prompt, as a user's turn where the model knows turns."""
        from tasks.tokens.chat import prompt_ids

        if self._encoder.roles.template:
            ids = prompt_ids(self._encoder, [{"role": "user", "content": prompt}])
        else:
            ids = [*self._encoder.opening, *self._encoder.encode(f"{prompt}\n\n")]
        return ids if len(ids) + self._sampling.max_tokens <= self._context else None

    def _request(
        self, ids: list[int], seed: int, key: str, number: int, found: dict[int, Any]
    ) -> "Request":
        from model.generation.request import Request
        from model.generation.sampling import Sampling as Drawing

        written: list[int] = []

        def on_token(token: Any) -> bool:
            written.append(token.id)
            return False

        def on_end(reason: str) -> None:
            text = self._encoder.decode(written).strip()
            self._store.ask(key)
            self._store.answer(key, {"content": text, "finish_reason": reason})
            found[number] = Written(text, reason == "length")

        drawing = Drawing(temperature=self._sampling.temperature, top_p=self._sampling.top_p)
        return Request(
            prompt=ids,
            max_tokens=self._sampling.max_tokens,
            stop_ids=self._encoder.ends,
            sampling=drawing,
            seed=seed,
            on_token=on_token,
            on_end=on_end,
        )


def _said(found: Written | Unscored) -> Written | Unscored:
    empty = isinstance(found, Written) and not found.text
    return Unscored("no_answer", "the reply is empty") if empty else found


def account_of(*parts: object) -> str:
    """What names the account of a work: the same for all attempts at it, whatever its budgets."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
