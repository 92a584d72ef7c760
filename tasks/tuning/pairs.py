"""Labelled snippets and instruction pairs from Python source: `python://stdlib`, or any folder.

Files are parsed with `ast`, never imported.

- snippets: the first lines of functions, labelled with the top-level package they come from. Lines
  that name their own package (imports, calls) stay in: recognising them is part of the task.
- pairs: "What does the function `json.dumps(obj, ...)` do?" answered by the docstring's first
  sentence, with the whole docstring as context for whoever judges the answer.
"""

import ast
import re
import textwrap
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from cluster.errors import BadInput
from tasks.tuning.rows import Pair, Snippet, distinct

SNIPPET_CHARACTERS = (120, 360)
ANSWER_CHARACTERS = (15, 200)
SIGNATURE_CHARACTERS = 60
FILES_PER_CLASS = 8
TEST_FOLDERS = {"test", "tests", "idle_test", "testing"}

Files = Iterable[tuple[str, Path]]
Function = ast.FunctionDef | ast.AsyncFunctionDef


def snippets_of_python(files: Files, classes: int, rows_per_class: int) -> list[Snippet]:
    """Labelled snippets of the `classes` packages that have the most of them.

    `files` are (name relative to the source's root, path). A package counts when at least
    `FILES_PER_CLASS` of its files hold a snippet. Of each package `rows_per_class` are kept, evenly
    over its files. Raises BadInput when fewer than two packages qualify.
    """
    found = _snippets(files)
    files_of: dict[str, set[str]] = defaultdict(set)
    for row in found:
        files_of[row.label].add(row.group)
    sizes = Counter(row.label for row in found if len(files_of[row.label]) >= FILES_PER_CLASS)
    if len(sizes) < 2:
        raise BadInput(
            f"the source has {len(sizes)} package(s) with snippets in {FILES_PER_CLASS} files; "
            "classification needs two: name a jsonl file with `text` and `label` as data"
        )
    chosen = sorted(sizes, key=lambda label: (-sizes[label], label))[:classes]
    return [row for label in chosen for row in _evenly(found, label, rows_per_class)]


def pairs_of_python(files: Files) -> list[Pair]:
    """Instruction pairs of all public functions whose docstring starts with a usable sentence.

    One pair per answer and per function; `group` is the module.
    """
    rows = [pair for name, path in files for pair in _pairs(name, path)]
    rows.sort(key=lambda row: row.order)
    return distinct(distinct(rows, lambda row: row.response), lambda row: row.id)


def is_test(name: str) -> bool:
    """Whether a source file, by its relative name, belongs to a test suite."""
    path = PurePosixPath(name)
    return bool(TEST_FOLDERS & set(path.parts[:-1])) or path.name.startswith("test_")


def parsed_file(path: Path) -> tuple[ast.Module, list[str]] | None:
    """A file's tree and lines; None for a file that is not valid UTF-8 Python of this version."""
    source = path.read_bytes()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in other people's files
        try:
            return ast.parse(source), source.decode("utf-8").splitlines()
        except (SyntaxError, ValueError):
            return None


def first_sentence(docstring: str) -> str | None:
    """The first sentence of a docstring on one line; None when it does not read like one."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    match = re.match(r"(.+?(?<!e\.g)(?<!i\.e)(?<!etc)[.!?])(?=\s|$)", paragraph)
    sentence = match.group(1) if match else paragraph
    low, high = ANSWER_CHARACTERS
    prose = sentence[:1].isalpha() and "->" not in sentence and len(sentence.split()) >= 3
    return sentence if prose and low <= len(sentence) <= high else None


def _snippets(files: Files) -> list[Snippet]:
    """All snippets in hash order, each text once."""
    rows = []
    for name, path in files:
        parts = PurePosixPath(name).parts
        if len(parts) < 2 or is_test(name) or not (parsed := parsed_file(path)):
            continue
        tree, lines = parsed
        texts = (_head(lines[f.lineno - 1 : f.end_lineno]) for _, f in _functions(tree))
        rows += [Snippet(text, parts[0], name) for text in texts if text]
    return distinct(sorted(rows, key=lambda row: row.order), lambda row: row.text)


def _head(lines: list[str]) -> str | None:
    """The first lines of a function, dedented; None when it is too short to tell anything."""
    low, high = SNIPPET_CHARACTERS
    text = textwrap.dedent("\n".join(lines))
    if len(text) > high:
        cut = text.rfind("\n", low, high)
        text = text[: cut if cut > 0 else high]
    return text.rstrip() if len(text) >= low else None


def _evenly(rows: list[Snippet], label: str, count: int) -> list[Snippet]:
    """At most `count` rows of a class, one per file in turn, so that no large file dominates."""
    seen: Counter[str] = Counter()
    ranked: list[tuple[int, int, Snippet]] = []
    for row in (r for r in rows if r.label == label):
        ranked.append((seen[row.group], len(ranked), row))
        seen[row.group] += 1
    return [row for _, _, row in sorted(ranked, key=lambda entry: entry[:2])[:count]]


def _pairs(name: str, path: Path) -> Iterator[Pair]:
    if is_test(name) or not (parsed := parsed_file(path)):
        return
    module = ".".join(PurePosixPath(name).with_suffix("").parts).removesuffix(".__init__")
    for number, (around, function) in enumerate(_functions(parsed[0]), start=1):
        names = (*module.split("."), *around, function.name)
        docstring = ast.get_docstring(function)
        if docstring is None or any(part.startswith("_") for part in names):
            continue
        if response := first_sentence(docstring):
            qualified = ".".join(names)
            kind = "method" if around else "function"
            question = f"What does the {kind} `{qualified}({_arguments(function)})` do?"
            yield Pair(qualified, question, response, docstring, module, number)


def _arguments(function: Function) -> str:
    """The parameters as written, without `self` and `cls`; a long list is cut short."""
    text = ast.unparse(function.args)
    text = re.sub(r"^(self|cls)(, /)?(, |$)", "", text)
    if len(text) <= SIGNATURE_CHARACTERS:
        return text
    cut = text.rfind(", ", 0, SIGNATURE_CHARACTERS)
    return f"{text[:cut]}, ..." if cut > 0 else "..."


def _functions(tree: ast.Module) -> Iterator[tuple[tuple[str, ...], Function]]:
    """Functions and methods with the names of the classes around them; nested ones are left out."""
    waiting: list[tuple[tuple[str, ...], list[ast.stmt]]] = [((), tree.body)]
    while waiting:
        around, body = waiting.pop(0)
        for node in body:
            if isinstance(node, Function):
                yield around, node
            elif isinstance(node, ast.ClassDef):
                waiting.append(((*around, node.name), node.body))
