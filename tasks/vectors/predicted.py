"""Vectors that are learnt by prediction, word2vec's skip-gram and CBOW, as gensim trains them.

Sources: Mikolov et al., Efficient estimation of word representations in vector space, 2013, and
Distributed representations of words and phrases and their compositionality, 2013. What one step
does stands in `tasks.vectors.objectives`.

With one thread the same seed gives the same bits; several (`placement.threads`) update the same
vectors without waiting for each other, and what comes out differs a little every time.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tasks.vectors.corpus import Corpus
from tasks.vectors.settings import VectorSettings

if TYPE_CHECKING:
    from gensim.models import Word2Vec
    from numpy.typing import NDArray

Told = Callable[[int], None]


def model_of(
    settings: VectorSettings, words: dict[str, int], seed: int, threads: int
) -> "Word2Vec":
    """gensim's model, untrained, with these words and their counts."""
    from gensim.models import Word2Vec

    tree = settings.output == "hierarchical_softmax"
    model = Word2Vec(
        vector_size=settings.width, window=settings.window, min_count=1,
        sg=int(settings.method == "skipgram"), hs=int(tree),
        negative=0 if tree else settings.negatives, ns_exponent=settings.noise_power,
        sample=settings.subsample, alpha=settings.learning_rate, seed=seed, workers=threads,
    )  # fmt: skip
    model.build_vocab_from_freq(words)
    return model


def learn(
    corpus: Corpus,
    words: dict[str, int],
    settings: VectorSettings,
    seed: int,
    threads: int,
    told: Told,
) -> "tuple[list[str], NDArray[np.float32]]":
    """Words, the most frequent first, and their vectors [W, D]; `told` is told of passes done."""
    from gensim.models.callbacks import CallbackAny2Vec
    from gensim.models.word2vec import LineSentence

    class Passes(CallbackAny2Vec):
        done = 0

        def on_epoch_end(self, model: "Word2Vec") -> None:
            self.done += 1
            told(self.done)

    model = model_of(settings, words, seed, threads)
    # Not `corpus_file`: of a batch that two long lines fill, it drops what is too much.
    model.train(
        LineSentence(str(corpus.path)), total_examples=corpus.lines, epochs=settings.epochs,
        callbacks=[Passes()],
    )  # fmt: skip
    return list(model.wv.index_to_key), model.wv.vectors
