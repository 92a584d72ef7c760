"""A scripted endpoint, a scripted judge, tiny artifacts, and where the reference data is."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cluster.artifact import Artifact
from cluster.stage import build, stage
from cluster.store import Draft, Store
from tasks.evaluation.judging.questions import Distribution, Question, Unscored, Verdict
from tests.endpoint import Scripted, Server, completion, serving

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def eval_data() -> Path:
    """The folder of published figures; tests that need it skip without it."""
    default = ROOT.parent / "shared" / "data"
    path = Path(os.environ.get("HEADRACE_SHARED_DATA", default)) / "eval"
    if not path.is_dir():
        pytest.skip("the shared evaluation data is not on this machine")
    return path


@pytest.fixture
def endpoint() -> Iterator[Server]:
    with serving() as server:
        yield server


class ScriptedJudge:
    """Answers each question as `answer` says."""

    name, calls, shortened, cost, repeats = "scripted", 0, 0, 0.0, 3

    def __init__(
        self,
        answer: Callable[[Question], str | dict[str, float] | Unscored],
        write: Callable[[str], str] | None = None,
    ) -> None:
        self._answer, self._write = answer, write
        self.writes = write is not None
        self.questions: list[Question] = []

    def distributions(self, questions: Sequence[Question]) -> list[Verdict]:
        self.questions.extend(questions)
        return [self._verdict(question) for question in questions]

    def texts(self, prompts: Sequence[str], sample: int = 0) -> list[str | Unscored]:
        assert self._write
        return [self._write(prompt) for prompt in prompts]

    def _verdict(self, question: Question) -> Verdict:
        answer = self._answer(question)
        if isinstance(answer, Unscored):
            return answer
        if isinstance(answer, str):
            answer = {choice: float(choice == answer) for choice in question.choices}
        return Distribution(answer, "choice")


@pytest.fixture(name="completion")
def completion_fixture() -> Callable[..., Scripted]:
    return completion


@pytest.fixture
def scripted() -> type[Scripted]:
    return Scripted


@pytest.fixture
def scripted_judge() -> type[ScriptedJudge]:
    return ScriptedJudge


@dataclass
class Tiny:
    """A text of two kinds of line, its tokenizer and shards, and an untrained model of it."""

    store: Store
    tokenizer: Artifact
    shards: Artifact
    model: Artifact
    instruct: Artifact


@stage(version=1, name="redact")
def lines_of_text(draft: Draft) -> None:
    """Forty documents that all look alike."""
    import pyarrow as pa

    from tasks.data.text import TextWriter

    rows = [
        {
            "id": f"doc-{i}",
            "text": f"def add_{i}(left, right):\n    return left + right  # größer {i * i}\n",
            "source": "tiny",
            "origin": f"tiny.py:{i}",
            "license": None,
        }
        for i in range(120)
    ]
    with TextWriter(draft.path) as writer:
        writer.write(pa.Table.from_pylist(rows))
    draft.rows = len(rows)


def _model(tokenizer: Artifact, draft: Draft) -> None:
    import shutil

    import torch

    from model import hub
    from model.shapes import from_depth
    from model.transformer import Transformer

    torch.manual_seed(0)
    vocab_size = tokenizer.manifest.facts["vocab_size"]
    hub.save(draft.path, Transformer(from_depth(1, vocab_size=vocab_size, context=128)))
    shutil.copy(tokenizer.file("tokenizer.json"), draft.path)


@stage(version=1, name="pretrain")
def untrained(tokenizer: Artifact, shards: Artifact, seed: int, draft: Draft) -> None:
    """A model that has seen twenty samples of text and learnt nothing."""
    from tasks.training.facts import Trained
    from tasks.training.settings import ObjectiveSettings

    _model(tokenizer, draft)
    objective = ObjectiveSettings(context=32).identity()
    draft.facts = Trained(
        objective=objective,
        context=32,
        seed=seed,
        samples_seen=20,
        steps=20,
        batch_samples=1,
        batch_ramp=(),
        mixture=None,
    ).noted()


@stage(version=1, name="instruct")
def untuned(tokenizer: Artifact, draft: Draft) -> None:
    """The same with held-out instructions."""
    _model(tokenizer, draft)
    rows = [
        {
            "id": f"row-{i}",
            "instruction": f"What does add_{i} do?" + " Really?" * 60 * (i == 1),
            "response": f"It adds left_{i} to right_{i}. It returns the sum.",
            "context": f"add_{i} adds two numbers.",
        }
        for i in range(6)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (draft.path / "heldout.jsonl").write_text(text)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    from tasks.tokens.shards.settings import ShardSettings
    from tasks.tokens.shards.stage import shards
    from tasks.tokens.vocabulary.settings import TokenizerSettings
    from tasks.tokens.vocabulary.stage import train_tokenizer

    store = Store(tmp_path_factory.mktemp("store"))
    text = build(lines_of_text, store)
    vocabulary = TokenizerSettings(vocab_size=300)
    tokenizer = build(train_tokenizer, store, text=text, settings=vocabulary)
    split = ShardSettings(heldout_share=0.2)
    packed = build(shards, store, text=text, tokenizer=tokenizer, settings=split)
    model = build(untrained, store, tokenizer=tokenizer, shards=packed, seed=3)
    return Tiny(store, tokenizer, packed, model, build(untuned, store, tokenizer=tokenizer))


@stage(version=1, name="dedup")
def grain(draft: Draft) -> None:
    """One document that asks how much grain there is, among others."""
    import pyarrow as pa

    from tasks.data.text import TextWriter

    question = "How many grains of wheat lie on the last square of the board of them all?"
    texts = [f"Puzzle 7. {question} Count.", "A quiet river runs past the mill."]
    same = ["made"] * len(texts)
    rows = {"id": ["1", "2"], "text": texts, "source": same, "origin": same, "license": same}
    with TextWriter(draft.path) as writer:
        writer.write(pa.table(rows))
    draft.rows = len(texts)


@stage(version=1, name="pretrain")
def trained_on(text: Artifact, tokenizer: Artifact, draft: Draft) -> None:
    """A model whose lineage leads to a text."""
    _model(tokenizer, draft)


@pytest.fixture
def decontaminated(tiny: Tiny) -> Callable[[Any], Artifact]:
    """What was found of evaluation sets in the text of a model of the home's store."""
    from tasks.data.decontamination.settings import DecontaminateSettings
    from tasks.data.decontamination.stage import decontaminate

    def make(sets: Any) -> Artifact:
        store, settings = Store(), DecontaminateSettings(benchmarks=sets, ngram=8)
        found = build(decontaminate, store, text=build(grain, store), settings=settings)
        build(trained_on, store, text=found, tokenizer=tiny.tokenizer)
        return found

    return make
