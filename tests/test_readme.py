"""The README is true: its tree lists every module in the module's words, its commands parse.

python tests/test_readme.py          # rewrite the tree from the modules' docstrings
"""

import ast
import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PACKAGES = ("flows", "tasks", "model", "cluster")
ROOM = 2
TREE = re.compile(r"(?<=<!-- tree -->\n```\n).*?(?=```\n<!-- /tree -->)", re.DOTALL)


def tree() -> str:
    """Packages, folders and files with the first sentence of each docstring."""
    lines: list[str] = []
    for package in PACKAGES:
        lines += folder(ROOT / package, 0)
    return "\n".join(lines) + "\n"


def folder(path: Path, depth: int) -> list[str]:
    """A folder's line, and below it those of its files; a room inside a folder is one line."""
    lines = [entry(f"{path.name}/", phrase(path / "__init__.py"), depth)]
    if depth == ROOM:
        return lines
    files = [f for f in sorted(path.glob("*.py")) if f.name != "__init__.py"]
    lines += [entry(f.name, phrase(f), depth + 1) for f in files]
    for inner in sorted(path.iterdir()):
        if (inner / "__init__.py").exists():
            lines += folder(inner, depth + 1)
    return lines


def phrase(path: Path) -> str:
    text = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
    return re.split(r"(?<=[a-z0-9)`]{2}[.;])\s", " ".join(text.split()))[0].rstrip(".;:")


def entry(name: str, text: str, depth: int) -> str:
    return f"{'  ' * depth}{name}".ljust(30) + f"  {text}"


def commands() -> list[str]:
    """Every `headrace ...` command in the README's code blocks."""
    blocks = re.findall(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    lines = [line.split("  #")[0] for block in blocks for line in block.splitlines()]
    return [line.split("uv run ")[-1].strip() for line in lines if "uv run headrace" in line]


def test_the_tree_is_the_tree() -> None:
    found = TREE.search(README.read_text())
    assert found, "README.md has no tree between its markers"
    assert found.group() == tree(), f"run python {Path(__file__).relative_to(ROOT)}"


@pytest.mark.parametrize("command", commands())
def test_commands_parse(command: str) -> None:
    from typer.main import get_command

    from flows.cli import app

    _, name, *arguments = shlex.split(command)
    found = get_command(app).commands[name]  # type: ignore[attr-defined]
    found.make_context(name, arguments, resilient_parsing=False)


def test_the_example_recipe_and_exam_are_valid(tmp_path: Path) -> None:
    from flows.recipe import read_yaml, validate
    from tasks.scoring.exams.definition import read_exam

    recipe_text, exam_text = re.findall(r"```yaml\n(.*?)```", README.read_text(), re.DOTALL)
    (tmp_path / "capitals.yaml").write_text(exam_text)
    assert read_exam(tmp_path / "capitals.yaml").shots == 2
    recipe = validate(read_yaml(recipe_text, "README.md"), "README.md")
    assert recipe.sweep is None and recipe.evaluate.judge.model == "my-judge"


def test_ci_runs_the_readmes_test_command() -> None:
    (command,) = re.findall(r"^(pip install uv && uv run pytest)", README.read_text(), re.MULTILINE)
    script = (ROOT / ".ci" / "run").read_text()
    assert script.rstrip().endswith(command.replace("install uv", "install -q uv"))


if __name__ == "__main__":
    README.write_text(TREE.sub(lambda _: tree(), README.read_text()))
