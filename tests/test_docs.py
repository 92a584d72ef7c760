"""README and documentation are true: what they show runs or parses, what they name exists."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from pydantic import BaseModel

from cluster.settings import keys
from tests.pages import ROOT, CodeBlock, blocks, dead_links, every_block, pages, quick_blocks

sys.path.insert(0, str(ROOT / "docs"))  # as MkDocs has it for its hooks
import reference
from figures import FIGURES, drawn

README = ROOT / "README.md"
HOME_BYTES = 10 * 1024
FILES = ("model.safetensors", "tokenizer.json")
LENGTHY = ("forecast", "intervals")
TESTS = re.compile(r"^pip install uv && uv run pytest[^#\n]*", re.MULTILINE)
SERVERS = re.compile(r"^headrace serve[^#\n]*[^#\n ]", re.MULTILINE)
PAGES = [pytest.param(path, id=str(path.relative_to(ROOT))) for path in pages()]
RUN = [one for one in PAGES if any(block.runs for block in blocks(one.values[0]))]
QUICK = [one for one in PAGES if any(block.runs for block in quick_blocks(one.values[0]))]


def test_every_command_parses() -> None:
    from typer.main import get_command

    from flows.cli import app

    known = get_command(app).commands  # type: ignore[attr-defined]
    found = [(block.page, words) for block in every_block() for words in block.commands()]
    assert len(found) > 40
    for page, (_, name, *arguments) in found:
        assert name in known, f"{page}: headrace {name}"
        known[name].make_context(name, arguments, resilient_parsing=False)


def test_every_recipe_and_exam_is_valid(tmp_path: Path) -> None:
    from flows.recipe import validate
    from flows.yaml_values import read_yaml
    from tasks.evaluation.exams.definition import read_exam
    from tasks.evaluation.exams.harness.reading import is_task

    written = [block for block in every_block() if block.language == "yaml"]
    assert len(written) > 5
    for block in written:
        values = read_yaml(block.text, block.page)
        if "kind" in values or is_task(values):
            for rows in values.get("dataset_kwargs", {}).get("data_files", {}).values():
                (tmp_path / rows).touch()
            (tmp_path / "exam.yaml").write_text(block.text)
            assert read_exam(tmp_path / "exam.yaml").name == values.get("name", values.get("task"))
        else:
            validate({"name": "part", "sources": ["text.txt"]} | values, block.page)


def test_every_python_and_json_block_is_valid() -> None:
    import json

    for block in every_block():
        if block.language == "python":
            compile(block.text, block.page, "exec")
        if block.language == "json":
            for line in block.text.splitlines():
                json.loads(line)


def test_settings_that_are_named_exist() -> None:
    """Dotted keys of the recipe's sections, as `pretrain.tokens` in the text of a page."""
    from flows.recipe import Recipe

    sections = {n for n, f in Recipe.model_fields.items() if reference.section(f.annotation)}
    listed = {key for key, _ in leaves(Recipe, "")} | set(inner_sections(Recipe, ""))
    found = 0
    for path in pages():
        for key in re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)[=:`]", path.read_text()):
            if key.split(".")[0] in sections and key not in FILES:
                found += 1
                assert key in listed, f"{path.name}: {key}"
    assert found > 30


def leaves(owner: type[BaseModel], prefix: str) -> Iterator[tuple[str, type[BaseModel]]]:
    """Every key of some settings that holds a value, with the class that has it."""
    for name, field in keys(owner).items():
        if inner := reference.section(field.annotation):
            yield from leaves(inner, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", owner


def inner_sections(owner: type[BaseModel], prefix: str) -> Iterator[str]:
    """Every key of some settings that is a section."""
    for name, field in keys(owner).items():
        if inner := reference.section(field.annotation):
            yield f"{prefix}{name}"
            yield from inner_sections(inner, f"{prefix}{name}.")


def test_the_reference_has_every_setting() -> None:
    from flows.recipe import Recipe

    written = reference.settings_page()
    classes: dict[type[BaseModel], str] = {}
    for key, owner in leaves(Recipe, ""):
        first = classes.setdefault(owner, key.rpartition(".")[0])
        if key.rpartition(".")[0] == first:
            assert f"\n`{key}` <small>" in written, key
        else:  # a class that was listed before is referred to
            assert f"`{key.rpartition('.')[0]}`" in written or owner in classes, key


def test_a_setting_without_a_description_is_a_gap() -> None:
    from cluster.settings import Settings

    class Silent(Settings):
        depth: int = 1

    with pytest.raises(ValueError, match=r"Silent\.depth has no description"):
        reference.fields(Silent, Silent.model_fields, "", {})


def test_the_reference_has_every_command_and_option() -> None:
    from typer.main import get_command

    from flows.cli import app

    written = reference.commands_page()
    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        assert f"### `headrace {name}`" in written
        part = written.split(f"### `headrace {name}`")[1].split("\n### ")[0]
        flags = [option for one in command.params for option in one.opts if option[:2] == "--"]
        for flag in set(flags) - {"--home", "--json", "--help"}:
            assert f"`{flag}`" in part, f"headrace {name} {flag}"


def test_the_reference_has_every_module() -> None:
    written = reference.modules_page()
    for package in reference.PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            assert file.name == "__init__.py" or f"`{file.name}`" in written, file


@pytest.mark.parametrize("name", [name for name in FIGURES if name not in LENGTHY])
def test_a_figure_is_drawn(name: str) -> None:
    assert_picture(drawn(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", LENGTHY)
def test_a_figure_of_a_fit_is_drawn(name: str) -> None:
    assert_picture(drawn(name))


def assert_picture(svg: str) -> None:
    """A browser shows a file of SVG only where its XML is well-formed."""
    root = ElementTree.fromstring(svg)
    assert root.tag == "{http://www.w3.org/2000/svg}svg" and root.get("aria-label")


@pytest.mark.parametrize("path", PAGES)
def test_links_lead_somewhere(path: Path) -> None:
    assert dead_links(path) == []


def test_names_of_the_glossary_exist() -> None:
    """What stands in backticks in its last column is written somewhere in the source."""
    files = [file for name in reference.PACKAGES for file in (ROOT / name).rglob("*.py")]
    source = "\n".join(file.read_text() for file in files)
    rows = re.findall(r"^\|.*\|$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    names = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[-2])]
    assert len(names) > 20
    for name in names:
        last = name.rstrip("/").rsplit("/", 1)[-1].rsplit(".", 1)[-1]
        assert (ROOT / name).exists() if "/" in name else re.search(rf"\b{last}\b", source), name


def test_ci_runs_the_readmes_test_command() -> None:
    found = re.findall(r"^(pip install uv && uv run pytest -n 4)", README.read_text(), re.MULTILINE)
    (command,) = found
    script = (ROOT / ".ci" / "run").read_text()
    assert script.rstrip().endswith(command.replace("install uv", "install -q uv"))


@pytest.mark.parametrize("path", QUICK)
def test_quick_blocks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page up to the first that takes longer, in this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    known: dict[str, Any] = {}
    for block in quick_blocks(path):
        write(block)
        if block.runs and block.language == "python":
            exec(block.text, known)
        for command in block.commands() if block.runs else ():
            headrace(command[1:])


def headrace(arguments: list[str]) -> None:
    """A command in this process, without what it prints."""
    from flows.cli import app

    with contextlib.redirect_stdout(tempfile.TemporaryFile("w+")):
        app(arguments, standalone_mode=False)


def write(block: CodeBlock) -> None:
    """A block that is a file, in the working folder."""
    if block.title:
        Path(block.title).write_text(block.text)


@pytest.fixture(scope="module")
def surroundings() -> Iterator[Mapping[str, str]]:
    """One home for all pages, whose services are ended with it, and the command on the path."""
    with tempfile.TemporaryDirectory(prefix="hr-docs-") as home:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        found = os.environ | {"HEADRACE_HOME": home, "PATH": path}
        yield found
        subprocess.run(["headrace", "down", "--force"], env=found, check=False)


def run_as(block: CodeBlock) -> str:
    """What is run of a block: not these tests again, and a server for a minute."""
    text = TESTS.sub("", block.text).replace("uv run ", "")
    return SERVERS.sub(r"(set +e; timeout 60 \g<0>; test $? = 124)", text)


def test_blocks_that_run_take_no_clone_and_end() -> None:
    for block in every_block():
        if block.runs and block.language == "sh":
            text = run_as(block)
            assert not re.search(r"\bpytest|benchmarks/|-m tests", text), block
            assert not re.search(r"^headrace serve", text, re.MULTILINE), block


@pytest.mark.slow
@pytest.mark.timeout(4 * 3600)
@pytest.mark.parametrize("path", RUN)
def test_all_blocks_run(
    path: Path, tmp_path: Path, surroundings: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every block of a page that a bare machine can run, as a reader would: by the shell."""
    monkeypatch.chdir(tmp_path)
    for block in blocks(path):
        write(block)
        if not block.runs:
            continue
        text = run_as(block)
        kind = ["bash", "-euo", "pipefail", "-c"] if block.language == "sh" else ["python", "-c"]
        done = subprocess.run(
            [*kind, text], env=surroundings, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.mark.slow
def test_the_site_is_built(tmp_path: Path) -> None:
    """All links lead somewhere, and no page loads anything from elsewhere."""
    pytest.importorskip("material", reason="uv sync --group docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    for page in tmp_path.rglob("*.html"):
        loaded = re.findall(
            r'<(?:script|link|img)[^>]*(?:src|href)="(https?://[^"]+)"', page.read_text()
        )
        assert not loaded, f"{page.name} loads {loaded}"


def test_the_readme_is_short() -> None:
    assert len(README.read_bytes()) <= HOME_BYTES


def test_the_word_to_contributors_is_short_and_names_what_is_there() -> None:
    text = (ROOT / "AGENTS.md").read_text()
    assert len(text.splitlines()) <= 60
    paths = re.findall(r"`((?:flows|tasks|model|cluster|tests)/[^`]*)`", text)
    paths += re.findall(r"tests/\S+", "".join(b.text for b in blocks(ROOT / "AGENTS.md")))
    assert len(paths) > 10
    assert [path for path in paths if not (ROOT / path).exists()] == []
