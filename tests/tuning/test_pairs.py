"""Snippets and pairs from Python source, on a small tree written for the test."""

from pathlib import Path

import pytest

from cluster.errors import BadInput
from tasks.tuning.pairs import first_sentence, is_test, pairs_of_python, snippets_of_python

MODULE = '''
import {package}

class Box:
    """A box."""

    def open(self, key, *, wide=False):
        """Open the box number {n} of {package}. More text.

        Details.
        """
        {package}.log("opening the box with a rather long message", key, wide)
        return [key for _ in range({n})]

    def _close(self):
        """Close the box for private reasons."""

def outer(value):
    """Return the outer value {n} of {package}."""
    def inner():
        """Return the value of the inner function."""
    assert value, "a line that makes this function long enough to count as a snippet"
    return inner
'''


def tree(root: Path, packages: dict[str, int]) -> list[tuple[str, Path]]:
    files = []
    for package, count in packages.items():
        for n in range(count):
            path = root / package / f"m{n}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(MODULE.format(package=package, n=n))
            files.append((f"{package}/m{n}.py", path))
    return files


def test_pairs_of_a_module(tmp_path: Path) -> None:
    pairs = {p.id: p for p in pairs_of_python(tree(tmp_path, {"boxes": 1}))}
    assert set(pairs) == {"boxes.m0.Box.open", "boxes.m0.outer"}
    box = pairs["boxes.m0.Box.open"]
    assert box.instruction == ("What does the method `boxes.m0.Box.open(key, *, wide=False)` do?")
    assert box.response == "Open the box number 0 of boxes."
    assert box.context == "Open the box number 0 of boxes. More text.\n\nDetails."
    assert box.group == "boxes.m0"
    assert (
        pairs["boxes.m0.outer"].instruction == "What does the function `boxes.m0.outer(value)` do?"
    )


def test_an_answer_is_used_once_whatever_the_order_of_files(tmp_path: Path) -> None:
    files = tree(tmp_path, {"a": 2})
    files[1][1].write_text(files[0][1].read_text())
    pairs = pairs_of_python(files)
    assert len({p.response for p in pairs}) == len(pairs) == 2
    assert pairs == pairs_of_python(files[::-1])


def test_files_that_are_not_python_are_passed_over(tmp_path: Path) -> None:
    files = tree(tmp_path, {"a": 1})
    for name, content in {
        "old.py": b"print 'x'\n",
        "latin.py": b"# \xe9\n",
        "nul.py": b"\0",
    }.items():
        (tmp_path / name).write_bytes(content)
        files.append((f"a/{name}", tmp_path / name))
    assert len(pairs_of_python(files)) == 2


def test_snippets_are_labelled_with_the_largest_packages(tmp_path: Path) -> None:
    files = tree(tmp_path, {"big": 12, "middle": 10, "small": 8, "few": 7})
    rows = snippets_of_python(files, classes=2, rows_per_class=100)
    assert {r.label for r in rows} == {"big", "middle"}
    assert {r.group for r in rows if r.label == "big"} == {f"big/m{n}.py" for n in range(12)}
    assert all("def " in r.text and 120 <= len(r.text) <= 360 for r in rows)
    assert "few" not in {r.label for r in snippets_of_python(files, 9, 100)}  # under 8 files


def test_rows_of_a_class_are_spread_over_its_files(tmp_path: Path) -> None:
    files = tree(tmp_path, {"a": 10, "b": 10})
    rows = snippets_of_python(files, classes=2, rows_per_class=10)
    assert len(rows) == 20
    assert len({r.group for r in rows}) == 20


def test_one_package_is_not_enough(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"the source has 1 package\(s\)"):
        snippets_of_python(tree(tmp_path, {"a": 10, "b": 3}), classes=4, rows_per_class=10)


@pytest.mark.parametrize(
    ("docstring", "sentence"),
    [
        ("Return the name. And more.", "Return the name."),
        ("Return the name\n    of it.\n\nMore.", "Return the name of it."),
        ("Take a mark, e.g. a dot, off. More.", "Take a mark, e.g. a dot, off."),
        ("Use version 3.11 of it", "Use version 3.11 of it"),
        ("f(x) -> the value of x", None),
        (">>> f(x) of the doctest", None),
        ("Too short.", None),
        ("Word " * 80, None),
    ],
)
def test_first_sentence(docstring: str, sentence: str | None) -> None:
    assert first_sentence(docstring) == sentence


def test_a_long_signature_is_cut_at_a_parameter(tmp_path: Path) -> None:
    parameters = ", ".join(f"parameter_{i}" for i in range(9))
    (tmp_path / "m.py").write_text(f'def f({parameters}):\n    """Return what f returns."""\n')
    (pair,) = pairs_of_python([("m.py", tmp_path / "m.py")])
    shown = ", ".join(f"parameter_{i}" for i in range(4))
    assert pair.instruction == f"What does the function `m.f({shown}, ...)` do?"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a/tests/b.py", True),
        ("test_a.py", True),
        ("a/test/b.py", True),
        ("unittest/case.py", False),
    ],
)
def test_test_files(name: str, expected: bool) -> None:
    assert is_test(name) is expected
