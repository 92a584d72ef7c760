"""`headrace judge` on rows that bring a judge's replies along: every metric, no endpoint."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.errors import BadInput, StageFailed
from flows.cli import app
from tasks.evaluation.judging.files import Assignment, judge_file

ROW = {"id": "a", "input": "?", "prediction": "It rains.", "reference": "It rains.", "other": "No."}


def stored(folder: Path, row: dict[str, Any], **work: Any) -> dict[str, Any]:
    path = folder / "rows.jsonl"
    path.write_text(json.dumps(ROW | row) + "\n")
    return judge_file(path, Assignment(**work), None)


@pytest.mark.parametrize(
    ("work", "replies", "score"),
    [
        ({"metric": "geval"}, ["4", "Score: 5"], 4.5),
        ({"metric": "prometheus"}, ["Fine. [RESULT] 4", "<think>2?</think>[RESULT] 5"], 4.5),
        ({"metric": "prometheus", "variant": "relative"}, ["[RESULT] A", "[RESULT] B"], 1.0),
        ({"metric": "pairwise"}, ["A", "Answer B is better."], 1.0),
        ({"metric": "pairwise"}, ["tie", "B"], 0.75),
        (
            {"metric": "qag"},
            ['["Does it rain?", "Is it wet?"]', "1. Rain?", "yes", "no", "yes"],
            0.5,
        ),
        ({"metric": "summary"}, ["1. Rain?", "1. Rain?", "yes", "no"], 0.0),
        ({"metric": "selfcheck"}, ["yes", "no"], 0.5),
    ],
)
def test_stored_replies_are_read_in_the_order_they_were_asked_for(
    work: dict[str, Any], replies: list[str], score: float, tmp_path: Path, fresh_home: Path
) -> None:
    found = stored(tmp_path, {"replies": replies, "samples": ["Rain.", "Sun."]}, **work)
    assert (found["mean"], found["calls"], found["unscored"]) == (score, 0, {})


def test_too_few_replies_are_said(tmp_path: Path, fresh_home: Path) -> None:
    found = stored(tmp_path, {"replies": ["A"]}, metric="pairwise")
    assert found["unscored"] == {"no_replies": 1}
    assert "fewer replies" in found["words"]["no_replies"]


def test_the_published_reading_is_of_ratings_only() -> None:
    with pytest.raises(BadInput, match="not qag's"):
        Assignment("qag", reading="published")


def test_rows_of_a_table_whose_columns_have_other_names(tmp_path: Path, fresh_home: Path) -> None:
    table = tmp_path / "rows.csv"
    table.write_text("question;output;gpt4\nWhat?;It;4\nWho?;She;Score: 3\n")
    command = ["judge", str(table), "--columns", "input=question,prediction=output,replies=gpt4"]
    found = CliRunner().invoke(app, [*command, "--fail-under", "3.6"])
    assert "geval_correctness  3.50 [" in found.stdout and "2 of 2 rows scored" in found.stdout
    assert isinstance(found.exception, StageFailed)
    assert str(found.exception) == "geval_correctness is 3.5000, under 3.6"
    assert CliRunner().invoke(app, [*command, "--fail-under", "3.4"]).exit_code == 0
