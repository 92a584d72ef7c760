"""`headrace embed`: means of the last layers, of texts and of words; senses by nearest centroid."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from cluster.artifact import Artifact
from cluster.errors import BadInput
from model import hub
from tasks.evaluation.embedding.contextual import Fields, embed_file
from tasks.inference.generation import load_model
from tests.flows.test_measures import command
from tests.published import published_folder

TEXT = Fields("text", None, "sense")
WORD = Fields("text", "target", "sense")


def lively(base: Artifact, folder: Path) -> Path:
    """The toy, no matrix of which is zero: its tokens see each other."""
    network = hub.load(base.path)
    torch.manual_seed(0)
    for parameter in network.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    hub.save(folder, network)
    shutil.copyfile(base.file("tokenizer.json"), folder / "tokenizer.json")
    return folder


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def vectors(path: Path) -> np.ndarray:
    return np.stack(pq.read_table(path)["vector"].to_pylist())


def test_it_is_the_mean_that_transformers_gives(base: Artifact, tmp_path: Path) -> None:
    """Of the last two layers, both behind the last norm, over the tokens of the text."""
    model = lively(base, tmp_path / "model")
    import transformers

    rows = [{"text": "a boat"}, {"text": "the wind and the wave of the sea", "id": "x"}]
    to = tmp_path / "out.parquet"
    found = embed_file(model, write(tmp_path / "r.jsonl", rows), to, TEXT, "last2", None)
    assert (found["rows"], found["width"], found["failed"]) == (2, 32, {})
    assert pq.read_table(to)["id"].to_pylist() == ["1", "x"]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(model).eval().model
    _, encoder = load_model(model)
    for row, vector in zip(rows, vectors(to), strict=True):
        with torch.no_grad():
            out = theirs(torch.tensor([encoder.encode(row["text"])]), output_hidden_states=True)
            states = torch.stack([theirs.norm(out.hidden_states[1]), out.last_hidden_state])
        np.testing.assert_allclose(vector, states.mean((0, 1, 2)).numpy(), atol=1e-5)


def test_a_word_is_embedded_where_it_stands(base: Artifact, tmp_path: Path) -> None:
    """Given as a word or by its characters, whole words only; a long text is cut around it."""
    model = lively(base, tmp_path / "model")
    text = "banks of the bank " + "and so on " * 60 + "the bank"
    last = [len(text) - 4, len(text)]
    rows = [
        {"text": text, "target": "Bank"},
        {"text": text, "target": [13, 17]},
        {"text": text, "target": last},
        {"text": text, "target": "river"},
        {"text": text, "target": [5, 9999]},
    ]
    to = tmp_path / "out.parquet"
    found = embed_file(model, write(tmp_path / "r.jsonl", rows), to, WORD, "last", None)
    assert (found["rows"], found["failed"]) == (3, {"target_not_found": 2})
    first, same, other = vectors(to)
    np.testing.assert_array_equal(first, same)
    assert not np.allclose(first, other)
    with pytest.raises(BadInput, match="line 1: 'target' is 3, it must be a word"):
        bad = write(tmp_path / "bad.jsonl", [{"text": "a", "target": 3}])
        embed_file(model, bad, to, WORD, "last", None)


def test_the_nearest_centroid_tells_the_sense(encoder_base: Artifact, tmp_path: Path) -> None:
    """Of the word's own senses; words of which none is known have none."""
    model = lively(encoder_base, tmp_path / "model")
    boat = {"target": "boat"}
    sea = [boat | {"text": f"sail of a boat and wave {n}", "sense": "sea"} for n in range(6)]
    sky = [boat | {"text": f"9 8 7 boat 6 5 {n}", "sense": "sky"} for n in range(3)]
    train = write(tmp_path / "train.jsonl", sea[:4] + sky[:2])
    test = write(tmp_path / "test.jsonl", [*sea[4:], *sky[2:], {"text": "a cow", "target": "cow"}])
    to = tmp_path / "out.parquet"
    found = embed_file(model, test, to, WORD, "last2", train)
    assert pq.read_table(to)["sense"].to_pylist() == ["sea", "sea", "sky", None]
    assert found["accuracy"] == found["accuracy_of_words"] == 1
    assert found["accuracy_majority"] == pytest.approx(2 / 3)


def test_the_command_takes_a_published_folder(tmp_path: Path) -> None:
    folder = published_folder(tmp_path / "model")
    rows = write(tmp_path / "r.jsonl", [{"text": "say one"}, {"text": "say two"}])
    asked = ("embed", folder, rows, "--to", tmp_path / "v.parquet", "--json")
    assert command(*asked, "--layers", "last2")["width"] == 16
    with pytest.raises(BadInput, match="--layers last4: the model has 2"):
        command(*asked)
    with pytest.raises(BadInput, match="--layers first: write last"):
        command(*asked, "--layers", "first")
