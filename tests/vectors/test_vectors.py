"""Word vectors from a recipe to the command that asks them, by every method."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.artifact import Artifact
from cluster.errors import BadInput
from cluster.stage import build
from cluster.store import Store
from flows.recipe import load, validate
from tasks.vectors import counted
from tasks.vectors.scores import read_pairs
from tasks.vectors.settings import VectorSettings
from tasks.vectors.shown import principal
from tasks.vectors.stage import vectors
from tasks.vectors.table import FILE, read_vectors, write_vectors
from tests.flows.test_adapt import carried_out
from tests.flows.test_measures import command

PEOPLE = {
    "king": ("he", "crown"), "queen": ("she", "crown"), "man": ("he", "plough"),
    "woman": ("she", "plough"), "prince": ("he", "horse"), "princess": ("she", "horse"),
}  # fmt: skip
METHODS = {
    "skipgram": ("vectors.method=skipgram",),
    "tree": ("vectors.method=skipgram", "vectors.output=hierarchical_softmax"),
    "cbow": ("vectors.method=cbow",),
    "cbow tree": ("vectors.method=cbow", "vectors.output=hierarchical_softmax"),
    "ppmi_svd": ("vectors.method=ppmi_svd", "vectors.width=6"),
    "one_hot": ("vectors.method=one_hot",),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A text about people, pairs of them that people rated, and an analogy."""
    folder, draw = tmp_path_factory.mktemp("people"), random.Random(0)
    rows = []
    for number in range(100):
        told = []
        for _ in range(12):
            name = draw.choice([*PEOPLE])
            one, thing = PEOPLE[name]
            told.append(f"the {name} says that {one} has a {thing} of {one} own")
        rows.append({"text": ". ".join(told) + f" {number}."})
    text = folder / "text.jsonl"
    text.write_text("".join(json.dumps(row) + "\n" for row in rows))
    pairs = folder / "pairs.csv"
    pairs.write_text(
        "Word 1,Word 2,Human (mean)\nQueen,woman,9\nking,man,8.5\nking,queen,5\n"
        "woman,own,1\nprince,says,.5\nman,zebra,3\n"
    )
    asked = folder / "analogies.txt"
    asked.write_text(": royal\nman king woman queen\nman prince woman princess\nman ox woman cow\n")
    return {"text": text, "pairs": pairs, "analogies": asked}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("HEADRACE_HOME", str(folder))
        yield folder


def made(files: dict[str, Path], name: str, *more: str) -> dict[str, Artifact]:
    overrides = (
        f"sources=[{{path: {files['text']}}}]", "filters.preset=basic", "dedup.fuzzy=false",
        "dedup.lines=false", "vectors.width=16", "vectors.epochs=30", "vectors.subsample=0",
        f"evaluate.words.similarity=[{files['pairs']}]",
        f"evaluate.words.analogies=[{files['analogies']}]",
    )  # fmt: skip
    return carried_out(load("word-vectors", (*overrides, *METHODS[name], *more)), "report")


@pytest.fixture(scope="module")
def trained(files: dict[str, Path], home: Path) -> dict[str, dict[str, Artifact]]:
    return {name: made(files, name) for name in METHODS}


@pytest.mark.parametrize("name", [name for name in METHODS if name != "one_hot"])
def test_words_that_keep_the_same_company_are_near(
    name: str, trained: dict[str, dict[str, Artifact]]
) -> None:
    table = read_vectors(trained[name]["vectors"].file(FILE))
    assert {near.word for near in table.nearest("Queen", 2)} == {"woman", "princess"}
    scores = trained[name]["word_scores"].manifest
    assert scores.metrics["spearman_pairs"] > 0.5
    (rated,) = scores.facts["similarity"]
    assert (rated["n"], rated["unknown"]) == (5, 1)
    assert rated["interval"][0] <= rated["spearman"] <= rated["interval"][1]
    (told,) = scores.facts["analogies"]
    assert (told["n"], told["unknown"]) == (2, 1) and 0 <= told["accuracy"] <= 1
    assert trained[name]["redact"].fingerprint == trained[name]["vectors"].manifest.inputs["text"]


def test_one_hot_vectors_know_nothing(trained: dict[str, dict[str, Artifact]]) -> None:
    made = trained["one_hot"]
    table = read_vectors(made["vectors"].file(FILE))
    assert np.array_equal(table.vectors_WD, np.eye(len(table.words)))
    assert made["word_scores"].manifest.facts["similarity"][0]["spearman"] is None
    with pytest.raises(BadInput, match=r"at most 10,000 words: `--set vectors\.max_words"):
        counted.one_hot(10_001)


def test_the_same_seed_gives_the_same_bits(
    trained: dict[str, dict[str, Artifact]], tmp_path: Path
) -> None:
    first, text = trained["skipgram"]["vectors"], trained["skipgram"]["redact"]
    settings = VectorSettings(**first.manifest.settings["settings"])
    again, other = (
        build(vectors, Store(tmp_path), text=text, settings=settings, seed=seed) for seed in (0, 1)
    )
    assert again.file(FILE).read_bytes() == first.file(FILE).read_bytes()
    assert other.file(FILE).read_bytes() != first.file(FILE).read_bytes()


def test_the_report_shows_neighbours_a_plane_and_scores(
    trained: dict[str, dict[str, Artifact]],
) -> None:
    page = trained["skipgram"]["report"].file("report.html").read_text()
    for shown in ("Word vectors", "pairs.csv", "spearman", "analogies.txt", "Nearest words"):
        assert shown in page
    about = trained["skipgram"]["vectors"].manifest
    assert [word for word, *_ in about.facts["projection"]]
    assert 0 < about.facts["projected"] <= 1
    assert about.metrics["known_tokens"] > 0.9


def test_the_command_asks_an_artifact_and_anybodys_file(
    files: dict[str, Path], trained: dict[str, dict[str, Artifact]], tmp_path: Path
) -> None:
    name = trained["cbow"]["vectors"].name
    for file in ("ours.txt", "ours.bin"):
        command("vectors", name, "--to", tmp_path / file)
        asked = ("--nearest", "queen", "--count", 2, "--analogy", "man", "king", "woman")
        scored = ("--similarity", files["pairs"], "--analogies", files["analogies"])
        found = command("vectors", tmp_path / file, *asked, *scored, "--json")
        assert {near["word"] for near in found["nearest"]["queen"]} == {"woman", "princess"}
        assert len(found["analogy"]) == 2
        assert not {"man", "king", "woman"} & {near["word"] for near in found["analogy"]}
        known = trained["cbow"]["word_scores"].manifest.facts
        assert found["similarity"] == known["similarity"]
        assert found["analogies"] == known["analogies"]


def test_files_of_word2vec_are_read_and_written(tmp_path: Path) -> None:
    text = tmp_path / "theirs.txt"
    text.write_text("2 3\nmill 0.5 -1 2\nmühle 1e-3 0 4.25\n", encoding="utf-8")
    table = read_vectors(text)
    assert table.words == ["mill", "mühle"]
    assert np.array_equal(table.vectors_WD, np.float32([[0.5, -1, 2], [1e-3, 0, 4.25]]))
    binary = tmp_path / "ours.bin"
    write_vectors(table, binary)
    assert binary.read_bytes().startswith(b"2 3\nmill " + table.vectors_WD[0].tobytes())
    assert np.array_equal(read_vectors(binary).vectors_WD, table.vectors_WD)
    text.write_text("mill 0.5 -1 2\n")
    with pytest.raises(BadInput, match="is not read as word2vec's format"):
        read_vectors(text)
    with pytest.raises(BadInput, match=r"files end in .bin \(binary\) or .txt"):
        write_vectors(table, tmp_path / "vectors.parquet")
    with pytest.raises(BadInput, match="'mil' has no vector; did you mean 'mill'"):
        table.known("mil")


def test_what_people_said_of_pairs_is_read_as_it_is_published(tmp_path: Path) -> None:
    for line in ("old\tnew\t1.58", "old new 1.58 3 4", "old, new, 1.58", "old\tnew\tA\t1.58\t2.72"):
        file = tmp_path / "pairs.txt"
        file.write_text(f"# comment\nword1\tword2\tscore\n{line}\n")
        assert read_pairs(file) == [("old", "new", 1.58)]
    file.write_text("old new 1\nold new\n")
    with pytest.raises(BadInput, match="line 2: expected two words and a number, found 'old new'"):
        read_pairs(file)


def test_words_are_counted_within_the_window_and_no_line_reaches_into_the_next() -> None:
    lines = [np.array([0, 1, -1, 2], np.int32), np.array([2, 0], np.int32)]
    counts = counted.cooccurrences(iter(lines), 3, 2).toarray()
    assert counts.tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    # p(word, context) = 1/6, p(word) = p(context) = 1/3.
    found = counted.ppmi(counted.cooccurrences(iter(lines), 3, 2), 0.75).toarray()
    assert found[0] == pytest.approx([0, np.log(1.5), np.log(1.5)])


def test_the_plane_is_that_of_most_variance() -> None:
    points = np.array([[3.0, 0, 0.1], [-3, 0, 0.1], [0, 1, 0.1], [0, -1, 0.1]])
    plane, share = principal(points)
    assert np.abs(plane[:, 0]) == pytest.approx([3, 3, 0, 0])
    assert np.abs(plane[:, 1]) == pytest.approx([0, 0, 1, 1]) and share == pytest.approx(1)


def test_recipes_that_do_not_fit_are_refused(files: dict[str, Path], home: Path) -> None:
    sources = [{"path": str(files["text"])}]
    base: dict[str, Any] = {"name": "words", "pretrain": None, "vectors": {}, "sources": sources}
    assert not validate(base, "").has_model
    for wrong, why in (
        ({"sources": []}, "vectors are of the words of a text: give `sources`"),
        ({"vectors": None}, "pretrain: null is for a model that exists"),
        ({"classify": {}}, "`vectors` alone, without classify"),
    ):
        with pytest.raises(BadInput, match=why):
            validate(base | wrong, "")
    with pytest.raises(BadInput, match=r"lower vectors\.min_count"):
        made(files, "cbow", "vectors.min_count=1_000_000")
    with pytest.raises(BadInput, match="ppmi_svd takes fewer numbers than words"):
        made(files, "ppmi_svd", "vectors.width=5_000")
