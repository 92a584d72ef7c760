"""Word vectors beside gensim's own, on the same text with the same settings, over seeds.

    uv run python benchmarks/word_vectors.py TEXT.jsonl.zst --similarity wordsim353.txt men.txt
        --analogies questions-words.txt [--method cbow] [--seeds 5] [--megabytes 100]

Ours is the stage `vectors`: text from Parquet files, its words in a file, a vocabulary of its own,
and gensim's trainer; it is scored by `tasks.vectors.scores`. The peer is what a user of gensim
writes, lists of words given to `Word2Vec`, scored by gensim's own methods. Both have the same
settings and one thread. Figures are means over seeds, with the lowest and the highest; speed is in
words of the text a CPU second, all passes together, whatever reads and counts the words included.
"""

import argparse
import re
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from fairness import made, need_texts
from filtering import read
from tokenizing import write_text

from cluster.artifact import Artifact
from cluster.stage import build
from cluster.store import Store
from tasks.vectors.scores import score_analogies, score_pairs
from tasks.vectors.settings import VectorSettings
from tasks.vectors.stage import vectors
from tasks.vectors.table import FILE, read_vectors

Figures = dict[str, float]
WORD = re.compile(r"\w+")
SPEED = "words a CPU second"


def main() -> None:
    """A line for each figure, and whether ours lies within the seeds of gensim's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--similarity", nargs="+", type=Path, default=[])
    parser.add_argument("--analogies", nargs="+", type=Path, default=[])
    parser.add_argument("--method", choices=["skipgram", "cbow"], default="skipgram")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--megabytes", type=float, default=100, help="text read, at most")
    options = parser.parse_args()
    texts = need_texts(list(read(options.file, int(options.megabytes * 1e6))), options.file)
    words = sum(len(WORD.findall(text)) for text in texts)
    settings = VectorSettings(method=options.method)
    print(f"{len(texts)} documents, {words:,} words, {settings.epochs} passes, {options.method}")
    asked = {"pairs": options.similarity, "analogies": options.analogies}
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        text = build(write_text, store, texts=texts)
        seeds = range(1, options.seeds + 1)
        own = [ours(store, text, settings, seed, words, asked) for seed in seeds]
    show(own, [gensims(texts, settings, seed, words, asked) for seed in seeds])


def show(own: list[Figures], peer: list[Figures]) -> None:
    """Both sides of each figure."""
    print(f"{'':26}{'headrace':>30}{'gensim':>30}  mean of ours")
    for name in own[0]:
        sides = [[figures[name] for figures in side] for side in (own, peer)]
        cells = [f"{statistics.mean(s):.4g} ({min(s):.4g} to {max(s):.4g})" for s in sides]
        inside = min(sides[1]) <= statistics.mean(sides[0]) <= max(sides[1])
        print(f"{name:26}{cells[0]:>30}{cells[1]:>30}  {'within' if inside else 'outside'}")


def ours(
    store: Store, text: Artifact, settings: VectorSettings, seed: int, words: int, asked: Any
) -> Figures:
    """The stage, from text to vectors, and the scores of the room."""
    work = made(store, lambda: build(vectors, store, text=text, settings=settings, seed=seed))
    started = time.process_time()
    artifact = work()
    speed = words * settings.epochs / (time.process_time() - started)
    table = read_vectors(artifact.file(FILE))
    pairs = {path.stem: score_pairs(table, path)["spearman"] for path in asked["pairs"]}
    analogies = {path.stem: score_analogies(table, path)["accuracy"] for path in asked["analogies"]}
    return pairs | analogies | {SPEED: speed}


def gensims(
    texts: list[str], settings: VectorSettings, seed: int, words: int, asked: Any
) -> Figures:
    """gensim as its manual has it, and its own scores."""
    from gensim.models import Word2Vec

    started = time.process_time()
    sentences = [line for text in texts for line in lines(WORD.findall(text.lower()))]
    model = Word2Vec(
        sentences, vector_size=settings.width, window=settings.window, seed=seed, workers=1,
        min_count=settings.min_count, sg=int(settings.method == "skipgram"),
        negative=settings.negatives, ns_exponent=settings.noise_power, epochs=settings.epochs,
        sample=settings.subsample, alpha=settings.learning_rate,
    )  # fmt: skip
    speed = words * settings.epochs / (time.process_time() - started)
    known = model.wv
    pairs = {path.stem: known.evaluate_word_pairs(str(path))[1][0] for path in asked["pairs"]}
    analogies = {p.stem: known.evaluate_word_analogies(str(p))[0] for p in asked["analogies"]}
    return pairs | analogies | {SPEED: speed}


def lines(words: list[str], most: int = 10_000) -> list[list[str]]:
    """Sentences no longer than word2vec reads them."""
    return [words[first : first + most] for first in range(0, len(words), most)]


if __name__ == "__main__":
    main()
