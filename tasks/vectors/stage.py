"""Stages `vectors`, words of the text as vectors, and `word_scores`, what people say of them."""

import logging
from pathlib import Path

from cluster.artifact import Artifact
from cluster.stage import stage
from cluster.store import Draft
from tasks.vectors.settings import VectorSettings, WordScoreSettings

log = logging.getLogger("headrace.vectors")


@stage(version=2, tracked=True)
def vectors(text: Artifact, settings: VectorSettings, seed: int, draft: Draft) -> None:
    """Vectors of the text's words; writes `vectors.bin`, which word2vec and gensim read.

    Metrics: `words` that have a vector, `width`, `tokens` of the text, and of these
    `known_tokens`, the share that has one. Facts: `method`, `neighbours` of some words, where they
    lie in the plane on which they are farthest apart, `projection`, and the share of their variance
    that it shows, `projected`. Raises BadInput where too few words occur often enough.
    """
    from tasks.vectors.corpus import write_words
    from tasks.vectors.made import make
    from tasks.vectors.shown import shown
    from tasks.vectors.table import FILE, write_vectors

    draft.tracker.params({**settings.model_dump(mode="json"), "seed": seed})
    draft.tracker.datasets({"text": text})
    corpus = write_words(text, draft.scratch / "words.txt", draft)
    words = corpus.vocabulary(settings)
    table = make(corpus, words, settings, seed, draft)
    write_vectors(table, draft.path / FILE)
    draft.rows, draft.tokens = len(words), corpus.tokens
    draft.metrics = {
        "words": float(len(words)),
        "width": float(table.vectors_WD.shape[1]),
        "tokens": float(corpus.tokens),
        "known_tokens": sum(words.values()) / corpus.tokens,
    }
    draft.facts = {"method": settings.method, **shown(table)}
    log.info("%d words of %d numbers each", *table.vectors_WD.shape)


@stage(version=1)
def word_scores(vectors: Artifact, settings: WordScoreSettings, draft: Draft) -> None:
    """Word vectors held against ratings of people, and put to analogies.

    Metrics: `spearman_FILE` of each file of pairs, `analogies_FILE` of each of analogies. Facts:
    `similarity` and `analogies`, each file's figure with its 95 % interval and counts. Raises
    BadInput for unusable files.
    """
    from tasks.vectors.scores import score_analogies, score_pairs
    from tasks.vectors.table import FILE, read_vectors

    table = read_vectors(vectors.file(FILE))
    rated = [score_pairs(table, Path(file).expanduser()) for file in settings.similarity]
    told = [score_analogies(table, Path(file).expanduser()) for file in settings.analogies]
    draft.metrics = {
        **{f"spearman_{Path(one['file']).stem}": one["spearman"] or 0.0 for one in rated},
        **{f"analogies_{Path(one['file']).stem}": one["accuracy"] for one in told},
    }
    draft.facts = {"similarity": rated, "analogies": told}
