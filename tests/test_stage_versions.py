"""A stage whose source changed must raise its version, or say that its output is the same.

    python tests/test_stage_versions.py          # record the present sources as "same output"

`stage_sources.json` holds, per stage, its version and a hash of the code it reaches inside `tasks`
and `model` (imports followed; comments, docstrings and layout do not count).
"""

import ast
import hashlib
import importlib
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("stage_sources.json")
PACKAGES = ("tasks", "model")


def stages() -> dict[str, Callable[..., None]]:
    """Every function marked `@stage`, by stage name."""
    found = {}
    for path in sorted((ROOT / "tasks").rglob("*.py")):
        if "@stage(" not in path.read_text():
            continue
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for value in vars(module).values():
            if getattr(value, "__module__", "") == module.__name__ and hasattr(value, "__stage__"):
                found[value.__stage__.name] = value
    return found


def source_hash(module: str) -> str:
    """A hash of the code of a module and all it imports inside the project's stages and models."""
    seen: set[str] = set()
    queue = [module]
    while queue:
        name = queue.pop()
        if name not in seen and path_of(name) is not None:
            seen.add(name)
            queue += imports(name)
    digest = hashlib.sha256()
    for name in sorted(seen):
        digest.update(f"{name}:{code(name)}".encode())
    return digest.hexdigest()[:16]


def path_of(module: str) -> Path | None:
    if module.split(".")[0] not in PACKAGES:
        return None
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    return path if path.exists() else None


@cache
def tree(module: str) -> ast.Module:
    path = path_of(module)
    assert path is not None
    return ast.parse(path.read_text())


def imports(module: str) -> list[str]:
    names = []
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return names


@cache
def code(module: str) -> str:
    """The module's syntax tree as text, without docstrings."""
    bare = ast.parse(ast.unparse(tree(module)))
    for node in ast.walk(bare):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            node.body = node.body[1:] or [ast.Pass()]
    return ast.dump(bare)


def present() -> dict[str, dict[str, str | int]]:
    return {
        name: {"version": function.__stage__.version, "source": source_hash(function.__module__)}
        for name, function in stages().items()
    }


@pytest.mark.parametrize("name", sorted(stages()))
def test_a_changed_stage_has_a_new_version_or_a_recorded_same_output(name: str) -> None:
    recorded = json.loads(RECORD.read_text()).get(name)
    now = present()[name]
    assert recorded is not None, f"new stage {name}: run python {Path(__file__).name}"
    if now["source"] != recorded["source"]:
        assert now["version"] != recorded["version"], (
            f"the code of stage '{name}' changed but its version is still {now['version']}: raise "
            f"it in @stage(version=...) if the output changed; then record with "
            f"`python tests/{Path(__file__).name}`"
        )


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    RECORD.write_text(json.dumps(present(), indent=1, sort_keys=True) + "\n")
