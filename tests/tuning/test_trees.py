"""Statements of Python and their syntax in words: pairs to translate on any machine."""

import ast
from pathlib import Path

import pytest

from tasks.tuning.text_to_text import rows
from tasks.tuning.text_to_text.settings import TextToTextSettings
from tasks.tuning.trees import statements_of_python, words

SOURCE = '''
"""A text that is no statement to translate, for all it is one."""
total = 0
total += len(row[1:])
if row: raise ValueError(f"{row} is long enough to be one")
print("on two",
      "lines")
'''


def test_a_tree_is_said_from_its_root_on() -> None:
    said = " ".join(words(ast.parse("total += len(row[1:])").body[0]))
    assert said == "AugAssign Name Add Call Name Subscript Name Slice Constant"


def test_statements_on_a_line_of_their_own_length_are_pairs(tmp_path: Path) -> None:
    (tmp_path / "one.py").write_text(SOURCE)
    (tmp_path / "broken.py").write_text("total += len(\n")
    files = [(name, tmp_path / name) for name in ("one.py", "broken.py")]
    found = dict(statements_of_python([*files, ("test/one.py", files[0][1])]))
    assert found == {
        "one.py:4": {
            "code": "total += len(row[1:])",
            "tree": "AugAssign Name Add Call Name Subscript Name Slice Constant",
        },
        "one.py:5": {
            "code": 'raise ValueError(f"{row} is long enough to be one")',
            "tree": "Raise Call Name JoinedStr FormattedValue Name Constant",
        },
    }


def test_the_embedded_corpus_has_such_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "one.py"
    file.write_text("".join(f"value_{i} = function({i})\n" for i in range(40)))
    monkeypatch.setattr(rows, "python_rows", lambda data: [("one.py", file)])
    settings = TextToTextSettings(
        data="python://stdlib", source="code", target="tree", heldout_share=0.2
    )
    sides = rows.rows_of(settings)
    assert len(sides.train) + len(sides.heldout) == 40 and len(sides.heldout) > 2
    assert {row.targets for row in sides.train} == {("Assign Name Call Name Constant",)}
    assert all(row.id.startswith("one.py:") for row in sides.train)
