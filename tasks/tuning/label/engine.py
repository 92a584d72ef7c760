"""The engine of stage `label`: words to tokens, a tag on one token of each word, and back.

In an encoder that is the word's first token (Devlin et al. 2019, section 5.3); in a decoder its
last one, as the first has not seen the rest of the word.

A sentence longer than a row is cut between words into several. A word that has no token of its own
(its characters are part of another's) is given the most frequent tag.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cluster.errors import BadInput
from model.config import ModelConfig
from model.head_config import Head
from model.heads import NO_LABEL
from tasks.tokens.encoder import Encoder
from tasks.tokens.frames import Frame, Row, read_frame
from tasks.tuning.class_weights import weights_of
from tasks.tuning.headed import Arrays, Outcome, Task, arrays_of
from tasks.tuning.label import metrics
from tasks.tuning.label.rows import Sentence, are_spans, read_sentences
from tasks.tuning.label.settings import LabelSettings
from tasks.tuning.rows import sides


@dataclass(frozen=True)
class Piece:
    """A row: words of one sentence, and where in the row the token is that stands for each."""

    row: Row
    sentence: int
    places: dict[int, int]


def prepare(settings: LabelSettings, encoder: Encoder, config: ModelConfig) -> Task:
    """The task of a file of tagged sentences. Raises BadInput where one side has no sentence, or
    training has fewer than two tags.
    """
    read, share = partial(read_sentences, settings), settings.heldout_share
    train, heldout, rejects = sides(settings.data, settings.heldout, share, read)
    names = sorted({tag for one in train for tag in one.tags})
    if len(names) < 2:
        raise BadInput(
            f"'{settings.data}' leaves {len(train)} training sentences with {len(names)} tag(s); "
            "it takes two tags"
        )
    frame, length = read_frame(encoder, 1, config.family), min(settings.length, config.context)
    last = config.family == "decoder"
    taught, asked = (list(_pieces(encoder, frame, side, length, last)) for side in (train, heldout))
    counts = Counter(tag for one in train for tag in one.tags)
    arrays = arrays_of([piece.row for piece in taught], config, encoder.pad)
    return Task(
        head=Head("token", len(names), layers=settings.read_layers),
        train=arrays
        | {"tags": _targets(taught, train, names, arrays)}
        | weights_of(settings.class_weights, names, counts),
        heldout=arrays_of([piece.row for piece in asked], config, encoder.pad),
        measure=partial(_measure, train, heldout, asked, names),
        used=len(train) + len(heldout),
        rejects=rejects,
        names=names,
        facts={
            "labels": names,
            "words_per_tag": dict(sorted(counts.items())),
        },
    )


def _pieces(
    encoder: Encoder, frame: Frame, sentences: Sequence[Sentence], length: int, last: bool
) -> Iterator[Piece]:
    """Sentences cut between words into rows of at most `length` tokens; `last`: the tag of a word
    is on its last token, not on its first.
    """
    room = length - frame.marks
    for number, sentence in enumerate(sentences):
        words = list(enumerate(tokens_of_words(encoder, sentence.words)))
        while words:
            ids: list[int] = []
            places: dict[int, int] = {}
            while words and (not ids or len(ids) + len(words[0][1][0]) <= room):
                word, (tokens, first) = words.pop(0)
                if first is not None:
                    at = len(tokens) - 1 if last else first
                    places[word] = len(ids) + min(at, room - 1)
                ids += tokens[:room]
            row = frame.lay([ids])
            start = row.starts[0]
            yield Piece(row, number, {word: start + place for word, place in places.items()})


def tokens_of_words(encoder: Encoder, words: Sequence[str]) -> list[tuple[list[int], int | None]]:
    """The token ids of each word of a sentence, parted by spaces, and which of them is the first
    that stands for more than the space; None where another word's token stands for it.
    """
    text, starts, ends = " ".join(words), list[int](), list[int]()
    for word in words:
        starts.append(ends[-1] + 1 if ends else 0)
        ends.append(starts[-1] + len(word))
    found: list[tuple[list[int], int | None]] = [([], None) for _ in words]
    for id_, begin, end in encoder.encode_marked(text, [(0, len(text))]):
        word = min(bisect_right(ends, begin), len(words) - 1)
        ids, first = found[word]
        ids.append(id_)
        if first is None and end > starts[word]:
            found[word] = (ids, len(ids) - 1)
    return found


def _targets(
    pieces: Sequence[Piece], sentences: Sequence[Sentence], names: Sequence[str], arrays: Arrays
) -> np.ndarray:
    """The number of the tag at the token of each word, -100 elsewhere, [rows, longest]."""
    number = {name: n for n, name in enumerate(names)}
    found = np.full(arrays["inputs"].shape, NO_LABEL, np.int32)
    for row, piece in enumerate(pieces):
        for word, place in piece.places.items():
            found[row, place] = number[sentences[piece.sentence].tags[word]]
    return found


def _measure(
    train: Sequence[Sentence],
    rows: Sequence[Sentence],
    pieces: Sequence[Piece],
    names: Sequence[str],
    scores: Sequence[np.ndarray],
) -> Outcome:
    """The tag with the highest score of each word, beside the one it has most often in training."""
    usual, most = metrics.most_frequent([s.words for s in train], [s.tags for s in train])
    predicted = [[most] * len(one.words) for one in rows]
    for piece, row in zip(pieces, scores, strict=True):
        for word, place in piece.places.items():
            predicted[piece.sentence][word] = names[int(row[place].argmax())]
    gold = [one.tags for one in rows]
    guessed = [[usual.get(word, most) for word in one.words] for one in rows]
    found = {
        "accuracy": metrics.word_accuracy(gold, predicted),
        "accuracy_majority": metrics.word_accuracy(gold, guessed),
        "rows": float(len(rows)),
        "words": float(sum(len(one.words) for one in rows)),
    }
    if are_spans(names):
        found |= metrics.span_figures(gold, predicted)
        found["f1_majority"] = metrics.span_figures(gold, guessed)["f1"]
    for name, (low, high) in metrics.intervals(gold, predicted).items():
        found |= {f"{name}_low": low, f"{name}_high": high} if name in found else {}
    records = [
        {"id": one.id, "tokens": one.words, "tags": one.tags, "prediction": tags}
        for one, tags in zip(rows, predicted, strict=True)
    ]
    return Outcome(found, records)
