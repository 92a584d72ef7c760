"""Word vectors by the method of the settings."""

from cluster.store import Draft
from tasks.vectors import counted, predicted
from tasks.vectors.corpus import Corpus
from tasks.vectors.settings import VectorSettings
from tasks.vectors.table import WordVectors


def make(
    corpus: Corpus, words: dict[str, int], settings: VectorSettings, seed: int, draft: Draft
) -> WordVectors:
    """The vectors of these words of a corpus."""
    if settings.method == "one_hot":
        return WordVectors([*words], counted.one_hot(len(words)))
    if settings.method == "ppmi_svd":
        lines = corpus.numbered(words)
        counts_WW = counted.cooccurrences(lines, len(words), settings.window)
        matrix_WW = counted.ppmi(counts_WW, settings.noise_power)
        return WordVectors([*words], counted.reduced(matrix_WW, settings, seed))

    def told(epoch: int) -> None:
        draft.progress(epoch, settings.epochs, "epochs")

    threads = draft.placement.cpu_threads
    return WordVectors(*predicted.learn(corpus, words, settings, seed, threads, told))
