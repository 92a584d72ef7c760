"""What word2vec learns by: the objectives as they are derived, and gensim's steps beside them."""

import itertools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tasks.vectors.corpus import Corpus
from tasks.vectors.objectives import (
    Step,
    Vectors,
    hidden,
    hierarchical_softmax,
    negative_sampling,
)
from tasks.vectors.predicted import learn, model_of
from tasks.vectors.settings import VectorSettings

RATE, WIDTH = 0.5, 6
WORDS = {"the": 9, "mill": 4, "wheel": 3, "turns": 2}
TREE = "hierarchical_softmax"


def numeric(function: Callable[[Vectors], float], at: Vectors) -> Vectors:
    """The gradient by central differences."""
    found = np.zeros_like(at)
    for place in np.ndindex(at.shape):
        nudge = np.zeros_like(at)
        nudge[place] = 1e-6
        found[place] = (function(at + nudge) - function(at - nudge)) / 2e-6
    return found


@pytest.mark.parametrize("output", ["negative_sampling", TREE])
def test_gradients_are_those_of_the_loss(output: str) -> None:
    random = np.random.default_rng(0)
    hidden_D, outputs_ND = random.normal(size=WIDTH), random.normal(size=(3, WIDTH))

    def step(h: Vectors, outputs: Vectors) -> Step:
        if output == TREE:
            return hierarchical_softmax(h, outputs, [1, 0, 1])
        return negative_sampling(h, outputs[0], outputs[1:])

    found = step(hidden_D, outputs_ND)
    assert found.hidden_D == pytest.approx(
        numeric(lambda h: step(h, outputs_ND).loss, hidden_D), abs=1e-8
    )
    assert found.outputs_ND == pytest.approx(
        numeric(lambda u: step(hidden_D, u).loss, outputs_ND), abs=1e-8
    )


def test_the_words_of_a_tree_have_probabilities_that_sum_to_1() -> None:
    model = model_of(VectorSettings(output=TREE, width=WIDTH), WORDS, seed=1, threads=1)
    random = np.random.default_rng(0)
    nodes_ND, hidden_D = random.normal(size=(len(WORDS), WIDTH)), random.normal(size=WIDTH)
    losses = [
        hierarchical_softmax(hidden_D, nodes_ND[path(model, word)], code(model, word)).loss
        for word in range(len(WORDS))
    ]
    assert np.exp(-np.array(losses)).sum() == pytest.approx(1)
    assert len(path(model, 0)) < len(path(model, 3))  # a frequent word has a short path


def path(model, word: int):
    return model.wv.get_vecattr(word, "point")


def code(model, word: int):
    return model.wv.get_vecattr(word, "code")


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
@pytest.mark.parametrize("output", ["negative_sampling", TREE])
def test_gensim_takes_the_steps_that_are_derived(method: str, output: str) -> None:
    settings = VectorSettings(
        method=method, output=output, width=WIDTH, window=1, negatives=1, subsample=0,
        learning_rate=RATE, epochs=1,
    )  # fmt: skip
    model = model_of(settings, WORDS, seed=1, threads=1)
    random = np.random.default_rng(0)
    inputs_WD = random.normal(size=(len(WORDS), WIDTH)).astype(np.float32)
    outputs_WD = random.normal(size=(len(WORDS), WIDTH)).astype(np.float32)
    model.wv.vectors[:] = inputs_WD
    getattr(model, "syn1" if output == TREE else "syn1neg")[:] = outputs_WD
    if output != TREE:  # every word that is drawn is the first
        model.cum_table = np.full(len(WORDS), 2**31 - 1, np.uint32)
    model.train([[*WORDS]], total_examples=1, epochs=1)

    inputs, outputs = inputs_WD.astype(float), outputs_WD.astype(float)
    for word, context in contexts(method):
        hidden_D = hidden(inputs[context])
        if output == TREE:
            rows = [*path(model, word)]
            step = hierarchical_softmax(hidden_D, outputs[rows], code(model, word))
        else:
            rows = [word, 0] if word else [word]
            step = negative_sampling(hidden_D, outputs[word], outputs[rows[1:]])
        inputs[context] -= RATE * step.hidden_D
        outputs[rows] -= RATE * step.outputs_ND
    assert np.abs(inputs - inputs_WD).max() > 0.3
    # gensim looks its sigmoid up in a table of a thousand places.
    assert model.wv.vectors == pytest.approx(inputs, abs=0.02)
    found = model.syn1 if output == TREE else model.syn1neg
    assert found == pytest.approx(outputs, abs=0.02)


def contexts(method: str) -> list[tuple[int, list[int]]]:
    """Words of the line, each with the words it is told from, in the order they are trained."""
    beside = [(word, [n for n in (word - 1, word + 1) if 0 <= n < 4]) for word in range(4)]
    if method == "cbow":
        return beside
    return list(itertools.chain.from_iterable(((w, [n]) for n in near) for w, near in beside))


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
def test_every_word_of_long_lines_is_trained_on(method: str, tmp_path: Path) -> None:
    """Of two lines of 10,000 words gensim's reader of files takes the first one only."""
    path = tmp_path / "words.txt"
    path.write_text("mill wheel " * 5_000 + "\n" + "book page " * 5_000 + "\n")
    counts = Counter(path.read_text().split())
    settings = VectorSettings(method=method, width=8, subsample=0, epochs=1)
    words, vectors_WD = learn(Corpus(path, 2, counts), counts, settings, 1, 1, lambda _: None)
    assert {*words} == {*counts}
    assert np.linalg.norm(vectors_WD, axis=1).min() > 0.3  # they begin at less than 1 / sqrt(8) / 2


@pytest.mark.parametrize("method", ["skipgram", "cbow"])
@pytest.mark.parametrize("output", ["negative_sampling", TREE])
def test_vectors_are_those_of_gensim_given_lists_of_words(
    method: str, output: str, tmp_path: Path
) -> None:
    """To the bit, with the same settings and seed: what is measured of one is so of the other."""
    from gensim.models import Word2Vec

    words = [f"w{i}" for i in range(40) for _ in range(200 // (i + 1) + 60 - i)]
    np.random.default_rng(0).shuffle(words)
    sentences = [words[first : first + 90] for first in range(0, len(words), 90)]
    path = tmp_path / "words.txt"
    path.write_text("".join(" ".join(line) + "\n" for line in sentences))
    settings = VectorSettings(method=method, output=output, width=8)
    counts = dict(Counter(words).most_common())
    assert len({*counts.values()}) == len(counts)  # else the order of words could differ
    corpus = Corpus(path, len(sentences), Counter(words))
    found, vectors_WD = learn(corpus, counts, settings, 3, 1, lambda _: None)
    tree = output == TREE
    theirs = Word2Vec(
        sentences, vector_size=8, window=settings.window, min_count=5, seed=3, workers=1,
        sg=int(method == "skipgram"), hs=int(tree), negative=0 if tree else settings.negatives,
    )  # fmt: skip
    assert found == theirs.wv.index_to_key
    assert np.array_equal(vectors_WD, theirs.wv.vectors)
