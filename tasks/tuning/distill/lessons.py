"""What a student is shown: texts as rows of classes, or as tokens to predict; and how it does.

Letters: B rows, T positions.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from cluster.errors import BadInput
from model.heads import NO_LABEL, Headed
from model.objectives.distillation import Distilled, Learner
from model.objectives.transforms import Setup
from tasks.evaluation.statistics.wilson import wilson_interval
from tasks.tokens.encoder import Encoder
from tasks.training.samples import vocabulary_of
from tasks.training.settings import ObjectiveSettings
from tasks.tuning.classify.engine import encode
from tasks.tuning.classify.metrics import accuracy, majority_accuracy
from tasks.tuning.headed import arrays_of, batch_of, scores
from tasks.tuning.rows import Snippet
from tasks.tuning.supervised import Example, pack, sample_numbers

SCORED_ROWS = 8
Arrays = dict[str, np.ndarray]


class ClassLessons:
    """Texts for a classifier; their labels are classes of the teacher, or none."""

    def __init__(self, names: Sequence[str], encoder: Encoder, student: Headed, length: int):
        self.names, self.encoder, self.config = list(names), encoder, student.network.config
        self.length = min(length, self.config.context)

    def arrays(self, rows: Sequence[Snippet]) -> Arrays:
        """The rows, with `labels`. Raises BadInput for a class that the teacher does not know."""
        if unknown := sorted({row.label for row in rows} - {"", *self.names}):
            raise BadInput(
                f"class {unknown[0]!r} is none of the teacher's: {', '.join(self.names[:10])}"
            )
        encoded, _ = encode(self.encoder, self.config, rows, self.length)
        number = {name: n for n, name in enumerate(self.names)} | {"": NO_LABEL}
        labels = np.array([number[row.label] for row in rows], np.int64)
        return arrays_of(encoded, self.config, self.encoder.pad) | {"labels": labels}

    def batch(self, arrays: Arrays, train: np.ndarray, seed: int, first: int, count: int) -> Arrays:
        """Samples `first` to `first + count` of the rows that are trained on."""
        return batch_of(arrays, train[sample_numbers(first, count, len(train), seed)])

    def in_order(self, arrays: Arrays, numbers: np.ndarray) -> Iterator[Arrays]:
        """These rows, a few at a time."""
        yield from (batch_of(arrays, part) for part in _parts(numbers))

    def measure(self, module: Distilled, arrays: Arrays) -> dict[str, float]:
        """How often the student says what the teacher does, and what is right."""
        predicted = [
            np.array([row.argmax() for row in scores(learner, arrays, "cpu")])
            for learner in learners(module)
            if isinstance(learner, Headed)
        ]
        mine, theirs = predicted
        found = {"agreement": float((mine == theirs).mean())}
        known = arrays["labels"] != NO_LABEL
        if known.any():
            gold = arrays["labels"][known].tolist()
            right = int((mine[known] == arrays["labels"][known]).sum())
            low, high = wilson_interval(right, len(gold))
            found |= {
                "accuracy": right / len(gold),
                "accuracy_low": low,
                "accuracy_high": high,
                "accuracy_teacher": accuracy(gold, theirs[known].tolist()),
                "accuracy_majority": majority_accuracy(gold),
            }
        return found


class TokenLessons:
    """Texts for a language model: of a decoder the next tokens, of an encoder those hidden."""

    def __init__(self, encoder: Encoder, student: Learner, length: int):
        self.encoder, config = encoder, student.network.config
        self.length, self.setup = min(length, config.context), None
        if config.family == "encoder":
            asked = ObjectiveSettings(objective="masked", context=self.length)
            known = vocabulary_of(encoder, asked, "encoder")
            self.setup = Setup("masked", "encoder", self.length, known, asked.rates)

    def arrays(self, rows: Sequence[Snippet]) -> Arrays:
        """The texts' tokens: examples packed into rows, or what they are drawn from."""
        opening, end = self.encoder.opening, self.encoder.eod
        texts = self.encoder.encode_batch([row.text for row in rows])
        documents = [[*opening, *ids, end] for ids in texts]
        if self.setup is None:
            return pack([*_pieces(documents, self.length)], self.length, self.encoder.pad)
        stream = np.concatenate([np.array(ids, np.int64) for ids in documents])
        if len(stream) < self.setup.window:
            raise BadInput(f"{len(stream)} tokens do not fill a row of {self.setup.window}")
        whole = len(stream) // self.setup.window
        return {"windows": stream[: whole * self.setup.window].reshape(whole, -1)}

    def batch(self, arrays: Arrays, train: np.ndarray, seed: int, first: int, count: int) -> Arrays:
        """Samples `first` to `first + count` of the rows that are trained on; of an encoder each
        hides others of its tokens.
        """
        numbers = train[sample_numbers(first, count, len(train), seed)]
        return self._rows(arrays, numbers, seed, np.arange(first, first + count))

    def in_order(self, arrays: Arrays, numbers: np.ndarray) -> Iterator[Arrays]:
        """These rows, a few at a time; of an encoder each always hides the same."""
        yield from (self._rows(arrays, part, 0, part) for part in _parts(numbers))

    def measure(self, module: Distilled, arrays: Arrays) -> dict[str, float]:
        """Mean losses of both in nats a token."""
        names = ("loss", "loss_teacher")
        pairs = zip(names, learners(module), strict=True)
        return {name: self.loss(learner, arrays) for name, learner in pairs}

    @torch.no_grad()
    def loss(self, learner: Learner, arrays: Arrays) -> float:
        """Mean negative log-likelihood of all targets."""
        assert not isinstance(learner, Headed)
        learner.eval()
        losses = [
            learner.scored(**{k: torch.from_numpy(v) for k, v in batch.items()})["tokens"].losses
            for batch in self.in_order(arrays, np.arange(count_rows(arrays)))
        ]
        return float(torch.cat(losses).double().mean())

    def _rows(self, arrays: Arrays, numbers: np.ndarray, seed: int, keys: np.ndarray) -> Arrays:
        if self.setup is None:
            return {name: array[numbers] for name, array in arrays.items()}
        randoms = (np.random.Generator(np.random.Philox(key=[seed, int(k)])) for k in keys)
        windows, none = arrays["windows"][numbers], np.empty(0, np.int64)
        made = zip(windows, randoms, strict=True)
        return self.setup.batch([self.setup.row(ids, random, none) for ids, random in made])


Lessons = ClassLessons | TokenLessons


def learners(module: Distilled) -> tuple[Learner, Learner]:
    """Student and teacher."""
    return module.student, module.teacher


def count_rows(arrays: Arrays) -> int:
    """How many rows there are to draw from."""
    (rows,) = {len(array) for array in arrays.values()}
    return rows


def _parts(numbers: np.ndarray) -> Iterator[np.ndarray]:
    yield from (
        numbers[first : first + SCORED_ROWS] for first in range(0, len(numbers), SCORED_ROWS)
    )


def _pieces(documents: Sequence[list[int]], length: int) -> Iterator[Example]:
    """Every document in rows of at most `length` tokens, the last of one before the next."""
    for ids in documents:
        for first in range(0, len(ids) - 1, length):
            piece = ids[first : first + length + 1]
            yield piece[:-1], piece[1:]
