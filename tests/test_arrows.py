"""Imports point one way: flows -> tasks -> {model, cluster}; model and cluster stay apart."""

import ast
import re
import sys
import tomllib
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


def imported(path: Path) -> set[str]:
    """The first names of all imports of a module, those inside functions included."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_follow_the_arrows(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    assert imported(path) & set(ALLOWED) <= ALLOWED[package]


@pytest.mark.parametrize("path", sorted((ROOT / "model").rglob("*.py")), ids=lambda p: p.name)
def test_the_model_needs_torch_numpy_and_safetensors_only(path: Path) -> None:
    foreign = imported(path) - set(sys.stdlib_module_names) - {"model"}
    assert foreign <= MODEL_LIBRARIES


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{path} has no docstring"


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
