"""Imports point one way: flows -> tasks -> {model, cluster}; model and cluster stay apart."""

import ast
import re
import sys
import tomllib
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "flows": {"flows", "tasks", "model", "cluster"},
    "tasks": {"tasks", "model", "cluster"},
    "cluster": {"cluster"},
    "model": {"model"},
}
MODEL_LIBRARIES = {"torch", "numpy", "safetensors"}
MODULES = sorted(p for package in ALLOWED for p in (ROOT / package).rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def imported(path: Path) -> set[str]:
    """The first names of all imports of a module, those inside functions included."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add((node.module or "").split(".")[0])
    return names


def test_imports_follow_the_arrows() -> None:
    wrong = {}
    for path in MODULES:
        package = path.relative_to(ROOT).parts[0]
        if against := imported(path) & set(ALLOWED) - ALLOWED[package]:
            wrong[str(path.relative_to(ROOT))] = against
    assert not wrong


def test_the_model_needs_torch_numpy_and_safetensors_only() -> None:
    own = set(sys.stdlib_module_names) | {"model"} | MODEL_LIBRARIES
    paths = (ROOT / "model").rglob("*.py")
    foreign = {p.name: imported(p) - own for p in paths}
    assert not {name: found for name, found in foreign.items() if found}


def test_every_module_says_what_it_is() -> None:
    silent = [str(p.relative_to(ROOT)) for p in MODULES if not ast.get_docstring(parsed(p))]
    assert not silent


def test_every_file_can_be_held_in_the_head() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in MODULES}
    assert not {path: length for path, length in lengths.items() if length > 400}


def test_no_module_needs_itself() -> None:
    """Imports inside functions count: what they hide is a circle all the same."""
    paths = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in MODULES}
    named = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    needs = {name: modules_named(path) & named.keys() - {name} for name, path in named.items()}
    try:
        tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        pytest.fail(f"an import circle: {' -> '.join(error.args[1])}")


def test_the_rooms_of_tasks_stand_above_each_other() -> None:
    """No room needs one that needs it, be it by way of others: data flows down."""
    needs: dict[str, set[str]] = {}
    for path in (ROOT / "tasks").rglob("*.py"):
        room = path.relative_to(ROOT / "tasks").parts[0]
        parts = (name.split(".") for name in modules_named(path))
        named = {part[1] for part in parts if part[0] == "tasks" and len(part) > 1}
        needs.setdefault(room, set()).update(named - {room})
    try:
        tuple(TopologicalSorter(needs).static_order())
    except CycleError as error:
        pytest.fail(f"a circle of rooms: {' -> '.join(error.args[1])}")


def modules_named(path: Path) -> set[str]:
    """The modules that a module imports anywhere; packages only where something else is meant."""
    names: set[str] = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_every_library_that_is_imported_is_declared() -> None:
    """As a dependency or an extra; spaCy comes with the pipeline that a recipe names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = chain.from_iterable(project["optional-dependencies"].values())
    declared = {name(line) for line in chain(project["dependencies"], extras)}
    ours = set(ALLOWED) | set(sys.stdlib_module_names) | {"spacy"}
    libraries = set().union(*map(imported, MODULES)) - ours
    providers = packages_distributions()
    missing = {x for x in libraries if not declared & set(map(name, providers.get(x, [])))}
    assert not missing, "in no `dependencies` and no extra of pyproject.toml"


def name(requirement: str) -> str:
    """The distribution that a requirement names, as package indices spell it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", requirement)[0]).lower()


def test_stages_and_settings_open_no_store() -> None:
    """What a stage makes is of its arguments alone; who needs a store is given one."""
    opened = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in MODULES
        if path.relative_to(ROOT).parts[0] in ("tasks", "model")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Store"
    ]
    assert not opened
