"""Files of rows: JSON lines or CSV, their fields by the names that others gave them."""

import gzip
import json
from pathlib import Path

import pytest

from cluster.errors import BadInput
from tasks.data.row_files import RowLayout, read_columns, read_row_file

FIELDS = ("prediction", "reference", "references", "id")


@pytest.mark.parametrize("mark", [",", ";", "\t"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_csv_is_read_whatever_parts_its_columns(tmp_path: Path, mark: str, end: str) -> None:
    texts = ["the mill; it turns", "one, two, three", 'a "word"', "two\nlines", ""]
    quoted = ['"' + text.replace('"', '""') + '"' for text in texts]
    lines = [f"id{mark}prediction", *(f"{i}{mark}{text}" for i, text in enumerate(quoted)), ""]
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbf" + end.join(lines).encode())
    found = read_row_file(path)
    assert [row["prediction"] for _, row in found] == texts
    assert [number for number, _ in found] == [2, 3, 4, 6, 7]
    for name in ("rows.tsv.gz", "63"):
        content = path.read_bytes()
        (tmp_path / name).write_bytes(gzip.compress(content) if "gz" in name else content)
        assert read_row_file(tmp_path / name) == found
    (tmp_path / "64").write_text('\n {"id": 1}\n')
    assert read_row_file(tmp_path / "64") == [(2, {"id": 1})]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("id,text\n1,a\n2,a,b\n", "line 3 has 3 cells below 2 columns"),
        ("id,text\n1,a\n2\n", "line 3 has 1 cells below 2 columns"),
        ('id,text\n1,"a\n2,b\n', "line 3: unexpected end of data"),
        ('id,text\n1,"a" b\n', "line 2: ',' expected after '\"'"),
        ("id,id\n1,2\n", "named twice: id, id"),
    ],
)
def test_a_bad_line_of_csv_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(BadInput, match=words):
        read_row_file(path)


def test_empty_csv_has_no_rows_and_a_spreadsheets_empty_columns_no_names(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    for text in ("", "\n", "id;text\n"):
        path.write_text(text)
        assert read_row_file(path) == []
    path.write_text("id;text;;\n1;a;;\n;;;\n")
    assert read_row_file(path)[0] == (2, {"id": "1", "text": "a"})


def test_fields_are_found_by_other_names(tmp_path: Path) -> None:
    columns = read_columns('prediction=out,references=a,"references=b, or c"', FIELDS, FIELDS[2:3])
    assert columns == {"prediction": ("out",), "references": ("a", "b, or c")}
    path = tmp_path / "rows.jsonl"
    rows = [
        {"out": "x", "prediction": "old", "a": "1", "b, or c": None},
        {"prediction": "old", "a": "1", "b, or c": "2"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, second = (row for _, row in read_row_file(path, RowLayout(columns)))
    assert (first["prediction"], first["out"], first["references"]) == ("x", "x", ["1"])
    # What was named is absent from this row; another field must not stand in for it.
    assert "prediction" not in second and second["references"] == ["1", "2"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prediction", "--columns prediction: write OURS=THEIRS"),
        ("prediction=", "write OURS=THEIRS"),
        ("predicton=out", "no 'predicton' is read here; did you mean 'prediction'"),
        ("prediction=out,prediction=x", "'prediction' is 'out' already"),
        ("prediction=outputs", "has no 'outputs'; did you mean 'output'"),
    ],
)
def test_a_mapping_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"output": "x"}\n')
    with pytest.raises(BadInput, match=words):
        read_row_file(path, RowLayout(read_columns(text, FIELDS, ("references",))))
