"""Compiled kernels are kept by what they call: a comment recompiles none, a change all that use it.

Modules are written, imported, changed and imported again, as from another clone.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numba.core import entrypoints

from cluster.home import cache_folder
from tasks.data.kernels.caching import source_hash
from tasks.data.kernels.characters import kept

INNER = '''
from tasks.data.kernels import kernel

STEP = 2

@kernel
def step(x: int) -> int:
    """So much more."""
    return x + STEP
'''
OUTER = """
from inner_kernel import step
from tasks.data.kernels import kernel

@kernel
def twice(x: int) -> int:
    return later(step(x))

@kernel
def later(x: int) -> int:
    return 2 * x
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def imported(clone: Path, inner: str = INNER, outer: str = OUTER) -> ModuleType:
    clone.mkdir(exist_ok=True)
    for name, text in {"inner_kernel": inner, "outer_kernel": outer}.items():
        (clone / f"{name}.py").write_text(text)
        spec = importlib.util.spec_from_file_location(name, clone / f"{name}.py")
        assert spec and spec.loader
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        exec(compile(text, str(clone / f"{name}.py"), "exec"), module.__dict__)
    return sys.modules["outer_kernel"]


def called(clone: Path, *sources: str) -> tuple[int, bool]:
    """What `twice(1)` gives, and whether it was compiled for that."""
    twice: Any = imported(clone, *sources).twice
    return twice(1), not twice.stats.cache_hits


@pytest.mark.parametrize(
    "inner",
    [
        INNER,
        "# Why it is so.\n\n" + INNER.replace("STEP\n", "STEP  # more\n"),
        INNER.replace("So much more", "Two more"),
        INNER + "\n@kernel\ndef other(x: int) -> int:\n    return x\n",
    ],
    ids=["nothing", "comments", "docstring", "another kernel"],
)
def test_what_is_not_code_of_a_kernel_recompiles_nothing_in_any_clone(tmp_path, inner):
    assert called(tmp_path / "a") == (6, True)
    assert called(tmp_path / "b", inner) == (6, False)


@pytest.mark.parametrize(
    ("inner", "outer", "result"),
    [
        (INNER.replace("STEP = 2", "STEP = 3"), OUTER, 8),
        (INNER.replace("x + STEP", "x - STEP"), OUTER, -2),
        (INNER, OUTER.replace("2 * x", "3 * x"), 9),
    ],
    ids=["constant", "kernel of another file", "kernel defined later"],
)
def test_a_change_in_what_a_kernel_uses_is_noticed(tmp_path, inner, outer, result):
    assert called(tmp_path / "a") == (6, True)
    assert called(tmp_path / "a", inner, outer) == (result, True)
    assert called(tmp_path / "b") == (6, False), "versions lie side by side"


def test_a_kernel_of_another_module_is_imported_by_its_own_name(tmp_path):
    outer = "from tasks.data.kernels import characters, kernel\n\n@kernel\n"
    outer += "def twice(x: int) -> int:\n    return x + characters.WIDE\n"
    with pytest.raises(TypeError, match=r"import what it uses of tasks.data.kernels.characters"):
        imported(tmp_path / "a", INNER, outer).twice(1)


def test_a_table_is_made_once_for_each_version_of_its_maker():
    calls: list[int] = []

    def make() -> Any:
        calls.append(1)
        return np.arange(3)

    assert kept("table.npy", make).tolist() == [0, 1, 2]
    kept.cache_clear()
    assert kept("table.npy", make).tolist() == [0, 1, 2]
    assert len(calls) == 1


def test_a_user_who_can_write_no_cache_has_it_in_the_home(tmp_path, fresh_home, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_folder("kernels") == fresh_home / "cache" / "kernels"


def test_by_default_all_clones_and_homes_of_a_user_share_it(tmp_path, fresh_home, monkeypatch):
    assert cache_folder("kernels") == tmp_path / "cache" / "headrace" / "kernels"


KERNELS = sorted(p for p in Path("tasks").rglob("*.py") if "@kernel\n" in p.read_text())


def test_the_key_of_every_kernel_can_be_told():
    for path in KERNELS:
        module = importlib.import_module(".".join(path.with_suffix("").parts))
        for value in list(vars(module).values()):
            if function := getattr(value, "py_func", None):
                assert source_hash(function)
    assert KERNELS


def test_a_kernel_imports_no_package_that_extends_numba(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked_for(*_: object) -> None:
        raise AssertionError("extensions of Numba are looked for")

    monkeypatch.setattr(entrypoints, "_already_initialized", False)
    monkeypatch.setattr(entrypoints.importlib_metadata, "entry_points", looked_for)
    assert called(tmp_path / "clone") == (6, True)
