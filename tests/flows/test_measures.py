"""The commands that measure anybody's files: what they read, what they print, how they end."""

import csv
import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cluster.errors import BadInput, StageFailed
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


def test_a_table_without_a_header_line_is_read_by_the_names_given(
    tmp_path: Path, fresh_home: Path
) -> None:
    rows = [row | {"input": f'a "{n}', "replies": "4"} for n, row in enumerate(PREDICTIONS)]
    lines = as_lines(tmp_path / "p.jsonl", rows)
    table = tmp_path / "p.csv"
    table.write_text("".join("\t".join(row.values()) + "\n" for row in rows))
    named = ("--header", "id,prediction,gold,input,replies", "--columns", "reference=gold")
    assert command("score", table, *named, "--no-quotes", "--json") == command(
        "score", lines, "--json"
    )
    judged = ("--metric", "geval", "--json")
    wanted = command("judge", lines, *judged)
    to = tmp_path / "judged.jsonl"
    assert command("judge", table, *named, "--no-quotes", "--to", to, *judged) == wanted
    assert (wanted["scored"], wanted["mean"]) == (3, 4.0)
    assert json.loads(to.read_text().splitlines()[0])["gold"] == "the mill turns"
    agreed = ("--columns", "score=id,rating=id", "--human", "rating", "--json")
    assert command("agree", table, *named[:2], "--no-quotes", *agreed)["n"] == 3
    with pytest.raises(BadInput, match=r"it has 1, the mill turns.*first line is a row already"):
        command("score", table, "--no-quotes")
    with pytest.raises(BadInput, match="--header id,id: a column is named twice: id, id"):
        command("score", table, "--header", "id,id")
    (tmp_path / "q.csv").write_text('"a" b,c\n')
    with pytest.raises(BadInput, match=r"line 1: .*`--no-quotes`"):
        command("score", tmp_path / "q.csv", "--header", "a,b")


def test_a_judges_words_stand_in_quotes_once(tmp_path: Path, fresh_home: Path) -> None:
    said = "I'm sorry, but I can't help with that."
    rows = [row | {"input": "q", "replies": said} for row in PREDICTIONS]
    with pytest.raises(StageFailed, match=r'refusal \(3\): "I.m sorry, but .* that\."$'):
        command("judge", as_lines(tmp_path / "p.jsonl", rows))


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


TEXTS = ["the old mill turns at dawn", "water runs down the hill", "the channel is dry", "it is"]


def system(path: Path, damage: int) -> Path:
    """Predictions of 32 rows, so many of them wrong."""
    rows = [{"prediction": "x" if i < damage else TEXTS[i % 4] + f" {i}",
             "reference": TEXTS[i % 4] + f" {i}"} for i in range(32)]  # fmt: skip
    return as_lines(path, rows)


def test_several_systems_stand_in_one_table_and_only_a_test_names_the_best(tmp_path: Path) -> None:
    files = [system(tmp_path / f"{name}.jsonl", n) for name, n in (("a", 20), ("b", 1), ("c", 0))]
    found = command("score", *files, "--metrics", "rouge1,ter", "--json")
    assert [one["file"] for one in found["systems"]] == [str(path) for path in files]
    assert found["systems"][0] == {
        "file": str(files[0]), **command("score", files[0], "--metrics", "rouge1,ter", "--json")
    }  # fmt: skip
    assert {test["best"] for test in found["best"].values()} == {None}
    assert {test["first"] for test in found["best"].values()} == {str(files[2])}
    shown = command("score", *files[:2], "--metrics", "rouge1,ter")
    assert shown.count(" *") == 2 and "ter: lower is better" in shown
    assert "rouge1|words:unicode" in shown and "BCa bootstrap, 1000 resamples of rows" in shown
    with pytest.raises(BadInput, match="does not have the references of"):
        command("score", files[0], as_lines(tmp_path / "d.jsonl", PREDICTIONS))
    with pytest.raises(BadInput, match="takes the rows of one file; 2 are named"):
        command("score", *files[:2], "--to", tmp_path / "to.jsonl")


def test_a_score_beyond_its_limit_ends_with_1_and_says_by_how_much(tmp_path: Path) -> None:
    path, metrics = system(tmp_path / "a.jsonl", 8), ("--metrics", "rouge1,ter,bleu")
    found = command("score", path, *metrics, "--json")["corpus"]
    rouge, ter = found["rouge1"]["fmeasure"], found["ter"]
    assert command("score", path, *metrics, "--fail-under", f"rouge1={rouge},ter={ter}")
    result = CliRunner().invoke(
        app, ["score", str(path), *metrics, "--json", "--fail-under", "rouge1=.8,ter=20,bleu=10"]
    )
    assert isinstance(result.exception, StageFailed)
    words = str(result.exception)
    assert words.startswith(f"rouge1 of {path} is 0.75, 0.05 below 0.8; ter of {path} is 2")
    assert words.endswith("above 20 (lower is better)")
    missed = json.loads(result.stdout)["missed"]
    assert [one["name"] for one in missed] == ["rouge1", "ter"]
    assert missed[0]["by"] == pytest.approx(0.05)
    for limits, why in (
        ("chrf=30", "'chrf' is not measured; choose from bleu, rouge1, ter"),
        ("bleu=high", "write each NAME=NUMBER once"),
        ("bleu", "write each NAME=NUMBER once"),
        ("bleu=1,bleu=2", "write each NAME=NUMBER once"),
        ("bleu=nan", "write each NAME=NUMBER once"),
    ):
        with pytest.raises(BadInput, match=why):
            command("score", path, *metrics, "--fail-under", limits)


def test_an_exam_below_its_limit_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_HOME", str(tmp_path / "home"))
    rows = [{"question": str(i), "answers": [str(i)]} for i in range(4)]
    as_lines(tmp_path / "rows.jsonl", rows)
    (tmp_path / "exam.yaml").write_text("name: sums\nkind: exact\nrows: rows.jsonl\n")
    given = as_csv(tmp_path / "answers.csv", [{"prediction": str(min(i, 2))} for i in range(4)])
    asked = ("exam", "mine", tmp_path / "exam.yaml", "--answers", given)
    assert "accuracy" in command(*asked, "--fail-under", "accuracy=.75")
    with pytest.raises(StageFailed, match=r"accuracy of sums, mine is 0.75, 0.05 below 0.8"):
        command(*asked, "--fail-under", "accuracy=.8")
    with pytest.raises(BadInput, match="'acuracy' is not measured; did you mean 'accuracy'"):
        command(*asked, "--fail-under", "acuracy=.8")


def test_agreement_begins_with_the_headline_and_dumps_nothing(tmp_path: Path) -> None:
    rows = [row | {"document": "ab"[i % 2]} for i, row in enumerate(RATED * 2)]
    options = ("--human", "rating", "--text", "text", "--own", "own", "--group", "document",
               "--raters", "score,rating", "--calibration", "linear")  # fmt: skip
    shown = command("agree", as_lines(tmp_path / "r.jsonl", [*rows, rows[0] | {"score": None}]),
                    *options)  # fmt: skip
    first = shown.splitlines()[0]
    assert first.startswith("r .89 [.89, .99], rho .89 [") and first.endswith(
        "with people on 12 rows, 1 more unscored"
    )
    assert not set("{}'") & set(shown.replace("people's", "").replace("Krippendorff's", ""))
    assert "within groups, the mean of 2" in shown and "Krippendorff's alpha (ordinal)" in shown


def test_a_learned_metric_begins_with_what_it_is_worth(tmp_path: Path) -> None:
    rows = [{"ref": f"{t} {i}", "better": f"{t} {i}", "worse": "x"}
            for i, t in enumerate(TEXTS * 2)]  # fmt: skip
    shown = command("learn", as_lines(tmp_path / "pairs.jsonl", rows))
    assert shown.startswith("tau 1.00 [1.00, 1.00], not told from chrF's 1.00: ")


def test_how_far_a_judges_repeats_agree_is_said(tmp_path: Path) -> None:
    rows = [{"input": "a", "prediction": "b", "replies": [str(n), str(n + 1)]} for n in (1, 2, 4)]
    shown = command("judge", as_lines(tmp_path / "j.jsonl", rows))
    assert (
        shown.startswith("geval_correctness  2.83 [") and "(Krippendorff's alpha, 3 rows)" in shown
    )
