"""Tasks with a head on anybody's files: ours beside trivial baselines and the usual models.

    uv run python benchmarks/tuning.py classify MODEL train.tsv --columns text,label
    uv run python benchmarks/tuning.py classify MODEL train.tsv --columns text,label \\
        --heldout dev.tsv --seeds 3 --set epochs=4 --set optimizer.learning_rate=1e-3
    uv run --with python-crfsuite python benchmarks/tuning.py label MODEL train.conllu \\
        --heldout dev.conllu
    uv run python benchmarks/tuning.py senses MODEL CoarseWSD-20

Without `--heldout` a tenth of the training rows is measured on: settings are chosen so, and the
given set is looked at once, at the end. Rows of a table without a header are named by `--columns`;
`--columns trec` reads `COARSE:fine question` lines. Beside ours: each task's trivial baseline; for
`classify` naive Bayes and a linear SVM of scikit-learn on words and pairs of words, for `regress`
its ridge regression; for `label` a CRF of crfsuite, where it is installed, with the usual features
of words. `senses` takes a folder `word/{train,test}.{data,gold}.txt` and embeds.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cluster.artifact import Artifact
from cluster.manifest import MANIFEST
from cluster.stage import build
from cluster.store import Store
from flows.recipe import apply_override
from tasks.data.row_files import read_row_file, read_text
from tasks.evaluation.embedding.contextual import Fields, embed_file
from tasks.tuning.classify.metrics import accuracy, macro_f1
from tasks.tuning.classify.settings import ClassifySettings
from tasks.tuning.classify.stage import classify
from tasks.tuning.extract.settings import ExtractSettings
from tasks.tuning.extract.stage import extract
from tasks.tuning.label.engine import are_spans
from tasks.tuning.label.metrics import span_figures, word_accuracy
from tasks.tuning.label.rows import read_sentences
from tasks.tuning.label.settings import LabelSettings
from tasks.tuning.label.stage import label
from tasks.tuning.regress.settings import RegressSettings
from tasks.tuning.regress.stage import regress

STAGES: dict[str, Any] = {
    "classify": (classify, ClassifySettings),
    "regress": (regress, RegressSettings),
    "label": (label, LabelSettings),
    "extract": (extract, ExtractSettings),
}
Figures = dict[str, float]
TENTH = 0.1


def named(path: Path, columns: str | None, folder: Path) -> Path:
    """The rows of a file without names, as JSON lines; the file itself where nothing is named."""
    if columns is None:
        return path
    rows = []
    for line in read_text(path).splitlines():
        if columns == "trec":
            kind, _, text = line.partition(" ")
            rows.append({"label": kind.partition(":")[0], "text": text})
        else:
            rows.append(dict(zip(columns.split(","), line.split("\t"), strict=True)))
    found = folder / f"{path.name}.jsonl"  # of train and heldout alike, the whole name
    found.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return found


def ours(task: str, model: Artifact, settings: Any, seeds: int, store: Store) -> list[Artifact]:
    """The tuned models, one a seed."""
    stage, _ = STAGES[task]
    return [build(stage, store, model=model, settings=settings, seed=seed) for seed in range(seeds)]


def spread(tuned: Sequence[Artifact]) -> dict[str, str]:
    """The mean of each figure, and its range over the seeds."""
    found = {}
    for name in tuned[0].manifest.metrics:
        values = [artifact.manifest.metrics[name] for artifact in tuned]
        apart = f"  [{min(values):.4f}, {max(values):.4f}]" if len(values) > 1 else ""
        found[name] = f"{statistics.fmean(values):10.4f}{apart}"
    return found


def texts_beside(task: str, train: list[dict[str, Any]], dev: list[dict[str, Any]]) -> Figures:
    """scikit-learn on the words and pairs of words of texts."""
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import Ridge
    from sklearn.naive_bayes import MultinomialNB
    from sklearn.svm import LinearSVC

    words = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, token_pattern=r"\S+")
    known = words.fit_transform([row["text"] for row in train])
    asked = words.transform([row["text"] for row in dev])
    gold = [row["label"] for row in dev]
    if task == "regress":
        told = Ridge().fit(known, [float(row["label"]) for row in train]).predict(asked)
        right = np.array(gold, float)
        return {"ridge pearson": float(np.corrcoef(right, told)[0, 1]),
                "ridge rmse": float(np.sqrt(np.mean((right - told) ** 2)))}  # fmt: skip
    names = sorted({row["label"] for row in train})
    found = {}
    for title, peer in (("naive Bayes", MultinomialNB(alpha=0.3)), ("linear SVM", LinearSVC())):
        told = peer.fit(known, [row["label"] for row in train]).predict(asked)
        pair = [[names.index(one) for one in side] for side in (gold, told)]
        found |= {f"{title} accuracy": accuracy(*pair), f"{title} macro_f1": macro_f1(*pair)}
    return found


def shape(word: str) -> str:
    """Its letters by kind: `McCain's` is XxXxxx'x."""
    kinds = (
        "X" if c.isupper() else "x" if c.islower() else "0" if c.isdigit() else c for c in word
    )
    return "".join(kinds)


def features(words: Sequence[str]) -> Iterator[list[str]]:
    """What a CRF is told of each word: itself, its ends and shape, and its neighbours."""
    for place, word in enumerate(words):
        found = ["bias", f"w={word.lower()}", f"shape={shape(word)}", f"first={place == 0}"]
        found += [f"end{n}={word[-n:].lower()}" for n in (1, 2, 3, 4)]
        found += [f"start{n}={word[:n].lower()}" for n in (1, 2, 3, 4)]
        for step in (-2, -1, 1, 2):
            near = words[place + step] if 0 <= place + step < len(words) else "<>"
            found += [f"{step}w={near.lower()}", f"{step}shape={shape(near)}"]
        yield found


def crf_beside(train: Sequence[Any], dev: Sequence[dict[str, Any]]) -> Figures:
    """crfsuite on sentences; nothing where it is not installed."""
    if not find_spec("pycrfsuite"):
        print("no CRF beside: uv run --with python-crfsuite ...")
        return {}
    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    for one in train:
        trainer.append(list(features(one.words)), one.tags)
    trainer.set_params({"c1": 0.1, "c2": 0.01, "max_iterations": 100})
    with tempfile.NamedTemporaryFile() as file:
        trainer.train(file.name)
        tagger = pycrfsuite.Tagger()
        tagger.open(file.name)
        told = [tagger.tag(list(features(row["tokens"]))) for row in dev]
    gold = [row["tags"] for row in dev]
    found = {"CRF accuracy": word_accuracy(gold, told)}
    if are_spans([tag for tags in gold for tag in tags]):
        found["CRF f1"] = span_figures(gold, told)["f1"]
    return found


def beside(task: str, settings: Any, tuned: Artifact) -> Figures:
    """The figures of the usual models, on the rows that ours was measured on."""
    lines = tuned.file("predictions.jsonl").read_text().splitlines()
    dev = [json.loads(line) for line in lines]
    if task == "label":
        known = {tuple(row["tokens"]) for row in dev}
        rows = read_sentences(settings, settings.data)
        return crf_beside([one for one in rows if one.words not in known], dev)
    if task == "extract" or settings.second:
        return {}
    field = settings.label if task == "classify" else settings.value
    known = {row["text"] for row in dev}
    read = (row for _, row in read_row_file(Path(settings.data)))
    rows = [{"text": row[settings.text], "label": str(row[field])} for row in read]
    return texts_beside(task, [row for row in rows if row["text"] not in known], dev)


def senses(model: Path, folder: Path, layers: str) -> Iterator[tuple[str, Figures]]:
    """Accuracy of the nearest centroid for each word of a folder such as CoarseWSD-20."""
    with tempfile.TemporaryDirectory() as work:
        for word in sorted(path.parent for path in folder.glob("*/train.data.txt")):
            files = {}
            for side in ("train", "test"):
                texts = (word / f"{side}.data.txt").read_text(encoding="utf-8").splitlines()
                gold = (word / f"{side}.gold.txt").read_text(encoding="utf-8").splitlines()
                rows = [sense_row(text, sense) for text, sense in zip(texts, gold, strict=True)]
                files[side] = Path(work) / f"{side}.jsonl"
                files[side].write_text("".join(json.dumps(row) + "\n" for row in rows))
            fields, to = Fields("text", "target", "sense"), Path(work) / "out.parquet"
            yield word.name, embed_file(model, files["test"], to, fields, layers, files["train"])


def sense_row(line: str, sense: str) -> dict[str, Any]:
    """`INDEX<TAB>words`: the word of that number is the target."""
    at, _, text = line.partition("\t")
    words = text.split(" ")
    begin = sum(len(word) + 1 for word in words[: int(at)])
    return {"text": text, "target": [begin, begin + len(words[int(at)])], "sense": sense.strip()}


def show_senses(model: Path, folder: Path, layers: str) -> None:
    """A line for each word, and the means over words and over rows."""
    found = dict(senses(model, folder, layers))
    rows = sum(one["rows"] for one in found.values())
    for word, one in found.items():
        print(f"{word:16} {one['accuracy']:10.4f} {one['accuracy_majority']:10.4f} {one['rows']:6}")
    for title, weigh in (("mean of words", lambda _: 1 / len(found)),
                         ("of rows", lambda one: one["rows"] / rows)):  # fmt: skip
        both = [sum(weigh(one) * one[name] for one in found.values())
                for name in ("accuracy", "accuracy_majority")]  # fmt: skip
        print(f"{title:16} {both[0]:10.4f} {both[1]:10.4f}")


def main() -> None:
    """Tune, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("task", choices=[*STAGES, "senses"])
    parser.add_argument("model", type=Path, help="a model's artifact: its folder")
    parser.add_argument("data", type=Path)
    parser.add_argument("--heldout", type=Path, help="looked at once; default a tenth of the data")
    parser.add_argument("--columns", help="names of a table's columns, or trec")
    parser.add_argument("--layers", default="last4", help="of senses, as of `headrace embed`")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    asked = parser.parse_args()
    if asked.task == "senses":
        show_senses(asked.model, asked.data, asked.layers)
        return
    if not (asked.model / MANIFEST).is_file():
        raise SystemExit(f"{asked.model} is no artifact: `headrace adapt` makes one of a folder")
    with tempfile.TemporaryDirectory() as work:
        folder = Path(work)
        values: dict[str, Any] = {"data": str(named(asked.data, asked.columns, folder))}
        values["heldout_share"] = TENTH
        if asked.heldout:
            values["heldout"] = str(named(asked.heldout, asked.columns, folder))
        for override in asked.set:
            apply_override(values, override)
        settings = STAGES[asked.task][1].model_validate(values)
        model = Artifact.load(asked.model)
        tuned = ours(asked.task, model, settings, asked.seeds, Store(folder))
        for name, figure in spread(tuned).items():
            print(f"{name:24} {figure}")
        for name, value in beside(asked.task, settings, tuned[0]).items():
            print(f"{name:24} {value:10.4f}")


if __name__ == "__main__":
    main()
