"""The engine of stage `extract`: question and text side by side, the answer's first and last token.

A long text is read in windows that overlap. Where a window holds no answer, both ends are its first
token; the answer of a text is the likeliest span of all its windows, or none, where the first token
is likelier in every one of them (Devlin et al. 2019, section 4.3) and training had such questions.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from model.config import ModelConfig
from model.head_config import Head
from tasks.tokens.encoder import Encoder
from tasks.tokens.frames import Frame, Row, read_frame
from tasks.tuning.extract.metrics import exact_match, nearest_sentence, word_f1
from tasks.tuning.extract.rows import Question, read_questions
from tasks.tuning.extract.settings import ExtractSettings
from tasks.tuning.headed import Outcome, Task, arrays_of
from tasks.tuning.rows import sides

NOWHERE = (0, 0)
LIKELIEST = 20


@dataclass(frozen=True)
class Window:
    """A row: a question and a stretch of its text, where that starts, and the characters of the
    text that each of its tokens stands for.
    """

    row: Row
    question: int
    start: int
    spans: list[tuple[int, int]]


def prepare(settings: ExtractSettings, encoder: Encoder, config: ModelConfig) -> Task:
    """The task of a file of questions. Raises BadInput where one side has none."""
    rejects = Counter[str]()
    read, share = partial(read_questions, settings, rejects), settings.heldout_share
    train, heldout, others = sides(settings.data, settings.heldout, share, read)
    frame = read_frame(encoder, 2, config.family)
    cut = partial(_windows, encoder, frame, settings, min(settings.length, config.context))
    taught, asked = list(cut(train)), list(cut(heldout))
    labels = np.array([_target(window, train[window.question]) for window in taught], np.int64)
    return Task(
        head=Head("span", 2, layers=settings.read_layers),
        train=arrays_of([w.row for w in taught], config, encoder.pad) | {"labels": labels},
        heldout=arrays_of([w.row for w in asked], config, encoder.pad),
        measure=partial(_measure, settings.answer_length, train, heldout, asked),
        used=len(train) + len(heldout),
        rejects=rejects + others,
        facts={
            "unanswerable": sum(not question.answers for question in train),
            "windows": len(taught),
        },
    )


def _windows(
    encoder: Encoder,
    frame: Frame,
    settings: ExtractSettings,
    length: int,
    questions: Sequence[Question],
) -> Iterator[Window]:
    """Every text in windows of at most `length` tokens, the question, half at most, in each."""
    texts = {one.context for one in questions}
    encoded = {text: encoder.encode_marked(text, [(0, len(text))]) for text in texts}
    for number, one in enumerate(questions):
        question = encoder.encode(one.question)[: max(1, (length - frame.marks) // 2)]
        tokens, room = encoded[one.context], length - frame.marks - len(question)
        step = max(1, room - settings.stride)
        for first in range(0, max(1, len(tokens) - room + step), step):
            part = tokens[first : first + room]
            row = frame.lay([question, [id_ for id_, _, _ in part]])
            yield Window(row, number, row.starts[1], [(begin, end) for _, begin, end in part])


def _target(window: Window, question: Question) -> tuple[int, int]:
    """First and last token of the first answer that lies in a window."""
    for text, start in question.answers:
        end = start + len(text)
        held = [n for n, (a, b) in enumerate(window.spans) if a < end and b > start and b > a]
        if held and window.spans[held[0]][0] <= start and window.spans[held[-1]][1] >= end:
            return window.start + held[0], window.start + held[-1]
    return NOWHERE


def best_span(window: Window, scores_T2: np.ndarray, longest: int) -> tuple[float, int, int]:
    """The likeliest span in a window: how much likelier it is than none, and the characters of the
    text where it begins and ends.
    """
    here = scores_T2[window.start : window.start + len(window.spans)]
    begins, ends = (np.argsort(-side)[:LIKELIEST] for side in here.T)
    pairs = [(b, e) for b in begins for e in ends if 0 <= e - b < longest]
    if not pairs:
        return -np.inf, 0, 0
    begin, end = max(pairs, key=lambda pair: here[pair[0], 0] + here[pair[1], 1])
    score = float(here[begin, 0] + here[end, 1] - scores_T2[0].sum())
    return score, window.spans[begin][0], window.spans[end][1]


def _measure(
    longest: int,
    train: Sequence[Question],
    rows: Sequence[Question],
    windows: Sequence[Window],
    scores: Sequence[np.ndarray],
) -> Outcome:
    """The answers that the scores `[T, 2]` of all windows come to; "" is a prediction only if
    training had questions without an answer.
    """
    best = [(-np.inf, 0, 0)] * len(rows)
    for window, row in zip(windows, scores, strict=True):
        found = best_span(window, row, longest)
        best[window.question] = max(best[window.question], found)
    unanswerable = sum(not question.answers for question in train)
    predicted = [
        one.context[begin:end].strip() if score > 0 or not unanswerable else ""
        for one, (score, begin, end) in zip(rows, best, strict=True)
    ]
    mostly = 2 * unanswerable > len(train)
    baseline = ["" if mostly else nearest_sentence(one.question, one.context) for one in rows]
    gold = [[text for text, _ in one.answers] for one in rows]
    records = [
        {"id": one.id, "question": one.question, "answers": texts, "prediction": answer}
        for one, texts, answer in zip(rows, gold, predicted, strict=True)
    ]
    figures = {
        f"{name}{end}": sum(map(figure, answers, gold)) / len(rows)
        for end, answers in (("", predicted), ("_baseline", baseline))
        for name, figure in (("exact_match", exact_match), ("f1", word_f1))
    }
    return Outcome({**figures, "rows": float(len(rows))}, records)
