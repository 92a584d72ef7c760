"""SelfCheck: what a system states once and never again when asked anew, it probably made up.

Each sentence of a prediction is held against further answers (`samples`) drawn from the same
system. Scores are 0-1, higher is more likely made up (the n-gram's are in nats, without a bound):

    prompt     a judge is asked whether a sample supports the sentence: yes 0, no 1, neither .5
    nli        the probability of a contradiction by a local classifier (`judging.nli`)
    bertscore  1 - the F-measure with the most similar sentence of a sample
    ngram      -log p of the sentence's words under a model of the prediction and its samples

A sentence's score is the mean over samples, a row's the mean over its sentences.
Source: Manakul et al., SelfCheckGPT: zero-resource black-box hallucination detection for generative
large language models, 2023, section 5.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cluster.errors import BadInput
from tasks.evaluation.judging.nli import Contradiction
from tasks.evaluation.judging.questions import (
    NO_REPLY,
    Distribution,
    Judge,
    Question,
    Unscored,
    Verdict,
)
from tasks.evaluation.judging.rows import Row, Score

if TYPE_CHECKING:
    from tasks.evaluation.embedding.embeddings import TextEncoder

VARIANTS = ("prompt", "nli", "bertscore", "ngram")
LOCAL = ("nli", "bertscore", "ngram")
SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]?[A-Z0-9])|\n+")
WORD = re.compile(r"\w+|[^\w\s]")
NEITHER = 0.5
SHORTEST = 3  # words; a sample's shorter sentences are not compared with


@dataclass(frozen=True)
class Tools:
    """What a variant works with: `prompt` a judge, `nli` a classifier, `bertscore` an encoder."""

    judge: Judge | None = None
    classifier: Contradiction | None = None
    encoder: "TextEncoder | None" = None

    @classmethod
    def of(cls, variant: str, folder: Path | None, layer: int | None) -> "Tools":
        """The tools of a local variant, read from a model folder. Raises BadInput without one."""
        if variant == "nli":
            return cls(classifier=Contradiction(folder))
        if variant == "bertscore":
            from tasks.evaluation.embedding.embeddings import TextEncoder

            if folder is None:
                raise BadInput("selfcheck by bertscore needs an encoder: --encoder FOLDER")
            return cls(encoder=TextEncoder(folder, layer))
        return cls()


def selfcheck(tools: Tools, variant: str, rows: Sequence[Row]) -> list[Score]:
    """One score per row, with those of its sentences in `parts`; None there without any reply.

    A row without samples is unscored as `no_samples`.
    """
    if variant == "ngram":
        return [_of_parts(row, variant, ngram_scores(row)) for row in rows]
    if variant == "bertscore":
        assert tools.encoder is not None
        return [_of_parts(row, variant, bertscore_scores(row, tools.encoder)) for row in rows]
    split = [sentences(row.prediction) for row in rows]
    cells = [
        (i, j, sample)
        for i, row in enumerate(rows)
        for j in range(len(split[i]))
        for sample in row.samples
    ]
    values = _unsupported(tools, [(split[i][j], sample) for i, j, sample in cells])
    found: dict[tuple[int, int], list[float | None]] = {}
    failures: dict[int, Unscored] = {}
    for (i, j, _), value in zip(cells, values, strict=True):
        if isinstance(value, Unscored):
            failures.setdefault(i, value)
        found.setdefault((i, j), []).append(None if isinstance(value, Unscored) else value)
    parts = [[mean(found.get((i, j), ())) for j in range(len(split[i]))] for i in range(len(rows))]
    return [_of_parts(row, variant, parts[i], failures.get(i)) for i, row in enumerate(rows)]


def sentences(text: str) -> list[str]:
    """The sentences of a text: split behind a full stop before a capital, and at line ends."""
    return [part.strip() for part in SENTENCE_END.split(text) if part and part.strip()]


def support(verdict: Verdict) -> float | Unscored:
    """0 where a sample supports the sentence, 1 where not, .5 where the judge says neither; why not
    where its reply never came.
    """
    if isinstance(verdict, Distribution):
        return verdict.probabilities["no"]
    return verdict if verdict.reason in NO_REPLY else NEITHER


def ngram_scores(row: Row) -> list[float | None]:
    """Mean -log p of the words of each sentence, in nats, where p is a word's share of those of the
    prediction and its samples, not smoothed.
    """
    texts = [*sentences(row.prediction), *(s for sample in row.samples for s in sentences(sample))]
    counts = Counter(word for text in texts for word in _words(text))
    total = counts.total()
    nats = [
        [-math.log(counts[word] / total) for word in _words(text)]
        for text in sentences(row.prediction)
    ]
    return [sum(s) / len(s) if s else None for s in nats]


def bertscore_scores(row: Row, encoder: "TextEncoder") -> list[float | None]:
    """1 - the mean over samples of the best F-measure with one of the sample's sentences."""
    from tasks.evaluation.embedding.bertscore import match

    stated = sentences(row.prediction)
    told = [[s for s in sentences(x) if len(WORD.findall(s)) > SHORTEST] for x in row.samples]
    pairs = [(one, other) for one in stated for sample in told for other in sample]
    known = dict(zip(pairs, match(encoder, pairs)[:, 2].tolist(), strict=True))
    return [
        mean([1 - max(known[one, other] for other in sample) for sample in told if sample])
        for one in stated
    ]


def mean(values: Sequence[float | None]) -> float | None:
    """The mean of the values that are there; None without any."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _words(text: str) -> list[str]:
    return WORD.findall(text.lower())


def _unsupported(tools: Tools, pairs: Sequence[tuple[str, str]]) -> Sequence[float | Unscored]:
    """Of each (sentence, sample), from 0 where the sample supports the sentence to 1."""
    if tools.classifier:
        return tools.classifier.probabilities(pairs)
    assert tools.judge is not None
    return [support(v) for v in tools.judge.distributions([_support(*pair) for pair in pairs])]


def _support(sentence: str, sample: str) -> Question:
    task = "Is the sentence supported by the context? Answer yes or no."
    material = (("context", " ".join(sample.split())), ("sentence", sentence))
    return Question(task, task, material, "Answer:", ("yes", "no"))


def _of_parts(
    row: Row, variant: str, parts: Sequence[float | None], failure: Unscored | None = None
) -> Score:
    if not row.samples:
        missing = Unscored("no_samples", "SelfCheck needs further answers in 'samples'")
        return Score.missing(row, "selfcheck", variant, missing)
    value = mean(parts)
    if value is None:
        why = failure or Unscored("no_replies" if parts else "no_sentences")
        return replace(Score.missing(row, "selfcheck", variant, why), parts=tuple(parts))
    known = [part for part in parts if part is not None]
    spread = _deviation(known) if len(known) > 1 else None
    mode = "local" if variant in LOCAL else "judge"
    return Score(row.id, "selfcheck", variant, value, spread, mode, parts=tuple(parts))


def _deviation(values: Sequence[float]) -> float:
    middle = sum(values) / len(values)
    return math.sqrt(sum((v - middle) ** 2 for v in values) / len(values))
