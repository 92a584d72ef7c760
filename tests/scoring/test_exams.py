"""Questions with known answers, put to a model folder."""

import json
from pathlib import Path
from typing import Any

import pytest

from cluster.errors import BadInput
from tasks.scoring.exams import read_exam, run_code, sit_file


def exam(folder: Path, kind: str, *rows: dict[str, Any]) -> Path:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "exam.yaml"
    path.write_text(f"name: mine\nkind: {kind}\nrows: rows.jsonl\nprompt: '{{question}}'\n")
    return path


def test_the_likeliest_choice_is_taken_and_guessing_is_beside_it(tiny: Any, tmp_path: Path) -> None:
    rows = [{"question": "def", "choices": ["a", "b"], "answer": n} for n in (0, 1)]
    found = sit_file(tiny.model.path, exam(tmp_path, "choice", *rows))
    assert (found["accuracy"], found["random"]) == (0.5, 0.5)
    assert len({row["answer"] for row in found["rows"]}) == 1


def test_written_answers_are_compared_word_for_word(tiny: Any, tmp_path: Path) -> None:
    path = exam(tmp_path, "exact", {"question": "def add", "answers": ["zebra"]})
    assert sit_file(tiny.model.path, path)["accuracy"] == 0.0


@pytest.mark.parametrize(
    ("code", "tests", "words"),
    [
        ("def f(): return 2", "assert f() == 2", None),
        ("def f(): return 3", "assert f() == 2", "AssertionError"),
        ("def f(: return", "f()", "does not parse"),
        ("x = bytearray(1 << 31)", "", "MemoryError"),
    ],
)
def test_code_parses_and_passes_its_tests(code: str, tests: str, words: str | None) -> None:
    found = run_code(code, tests)
    assert found is None if words is None else words in str(found)


def test_a_row_that_lacks_a_field_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="row 1 has no choices, answer"):
        read_exam(exam(tmp_path, "choice", {"question": "?"}))
