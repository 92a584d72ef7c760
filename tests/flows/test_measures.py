"""The commands that measure anybody's files: what they read, what they print, how they end."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.errors import BadInput
from flows.cli import app

PREDICTIONS = [
    {"id": "1", "prediction": "the mill turns; at dawn, slowly", "reference": "the mill turns"},
    {"id": "2", "prediction": "water runs downhill", "reference": "water flows downhill"},
    {"id": "3", "prediction": "the channel is full", "reference": "the channel is dry"},
]
RATED = [
    {"score": str(s), "rating": str(r), "text": "a" * (9 - s), "own": str(s % 2 == 0)}
    for s, r in ((1, 2), (2, 1), (3, 4), (4, 3), (5, 5), (6, 6))
]


def command(*arguments: object) -> Any:
    """What a command printed: with `--json` the object."""
    result = CliRunner().invoke(app, [str(a) for a in arguments], standalone_mode=False)
    if result.exception:
        raise result.exception
    return json.loads(result.stdout) if "--json" in arguments else result.stdout


def as_csv(path: Path, rows: list[dict[str, Any]], mark: str = ";", **names: str) -> Path:
    """The rows as a table, some fields by other names."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=mark)
        writer.writerow([names.get(name, name) for name in rows[0]])
        writer.writerows(row.values() for row in rows)
    return path


def as_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_scores_are_those_of_json_lines_whatever_the_file_is(tmp_path: Path, mark: str) -> None:
    lines = as_lines(tmp_path / "p.jsonl", PREDICTIONS)
    table = as_csv(tmp_path / "p.csv", PREDICTIONS, mark, prediction="output", reference="gold")
    wanted = command("score", lines, "--json")
    names = "prediction=output,reference=gold"
    assert command("score", table, "--columns", names, "--json") == wanted
    with pytest.raises(BadInput, match="line 2 has no text in 'prediction'"):
        command("score", table)
    with pytest.raises(BadInput, match="has no 'outputs'; did you mean 'output'"):
        command("score", table, "--columns", "prediction=outputs")
    with pytest.raises(BadInput, match="no 'hypothesis' is read here"):
        command("score", table, "--columns", "hypothesis=output")


def test_several_columns_are_several_references(tmp_path: Path) -> None:
    rows = [row | {"other": "the mill turns; at dawn, slowly"} for row in PREDICTIONS]
    table = as_csv(tmp_path / "p.csv", rows)
    names = "references=reference,references=other"
    found = command("score", table, "--columns", names, "--metrics", "exact", "--json")
    assert [row["exact"] for row in found["rows"]] == [1.0, 0.0, 0.0]


def test_agreement_of_a_table_is_that_of_json_lines(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"score": int(r["score"]), "rating": int(r["rating"]), "text": r["text"],
         "own": r["own"] == "True"}
        for r in RATED
    ]  # fmt: skip
    lines = as_lines(tmp_path / "r.jsonl", [*rows, rows[0] | {"score": None}])
    table = as_csv(tmp_path / "r.csv", [*RATED, RATED[0] | {"score": ""}], score="judged")
    options = ("--human", "rating", "--text", "text", "--own", "own", "--json")
    wanted = command("agree", lines, *options)
    assert wanted["unscored"] == 1 and wanted["family"]["own"] == 3
    assert command("agree", table, "--columns", "score=judged", *options) == wanted
    assert command("agree", table, "--score", "judged", *options) == wanted


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--human", "ratings"), "line 1 has no field 'ratings'; did you mean 'rating'"),
        (("--human", "rating", "--text", "txt"), "line 1 has no field 'txt'; did you mean 'text'"),
        (("--human", "rating", "--own", "owned"), "has no field 'owned'; did you mean 'own'"),
        (("--human", "rating", "--own", "text"), "'text' is 'aaaaaaaa', expected true or false"),
        (("--human", "rating", "--group", "page"), "has no field 'page'"),
    ],
)
def test_a_field_that_is_not_there_is_no_finding(
    tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        command("agree", as_lines(tmp_path / "r.jsonl", RATED), *options)


def test_a_metric_is_learnt_from_a_table(tmp_path: Path) -> None:
    mill, draw = ["the", "river", "carries", "water", "to", "an", "old", "mill"], random.Random(0)
    texts = [draw.sample(mill, 7) for _ in range(6)]
    rows = [
        {"ref": " ".join(t), "better": " ".join(t[1:]), "worse": " ".join(t[:3])} for t in texts
    ]
    table = as_csv(tmp_path / "pairs.csv", rows, ref="gold")
    wanted = command("learn", as_lines(tmp_path / "pairs.jsonl", rows), "--json")
    assert command("learn", table, "--columns", "ref=gold", "--json") == wanted
