"""A changed stage must have a new version, or a recorded word that its output is the same.

The version is part of an artifact's identity, so a change of code without a change of version would
let old artifacts pass for new ones. `stage_sources.json` has a line per stage: its version and a
hash of the code that its function reaches inside `tasks` and `model`.

Code is followed by name: the functions, classes and constants that the stage's function names, what
those name, and so on, through imports; what nothing names does not count. Nor do comments,
docstrings, annotations of functions, imports for types alone, the words of errors, logs and
descriptions of settings, and what marks a function as a stage: they change no output.
"""

import ast
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_name("stage_sources.json")
PACKAGES = ("tasks", "model")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Symbol(NamedTuple):
    """Something at the top of a module; of the name "" are all of them."""

    module: str
    name: str


class Bare(ast.NodeTransformer):
    """Takes out what changes no output."""

    def visit(self, node: ast.AST) -> ast.AST | None:
        body = getattr(node, "body", None)
        if isinstance(body, list):
            kept = [inner for inner in body if not _is_idle(inner)]
            node.body = kept or [ast.Pass()]  # type: ignore[attr-defined]
        return super().visit(node)  # type: ignore[no-any-return]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        node.decorator_list = [d for d in node.decorator_list if not _is_stage(d)]
        for argument in ast.walk(node.args):
            if isinstance(argument, ast.arg):
                argument.annotation = None
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        node.annotation = ast.Constant(None)
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        if isinstance(node.exc, ast.Call):
            node.exc = node.exc.func
        return self.generic_visit(node)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        node.msg = None
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.keywords = [k for k in node.keywords if k.arg != "description"]
        return self.generic_visit(node)


def _is_idle(node: ast.AST) -> bool:
    """Whether a statement is a text on its own, a line of a log, or for types alone."""
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING" and not node.orelse
    if not isinstance(node, ast.Expr):
        return False
    called = node.value.func if isinstance(node.value, ast.Call) else None
    logs = isinstance(called, ast.Attribute) and ast.unparse(called.value) == "log"
    return logs or (isinstance(node.value, ast.Constant) and isinstance(node.value.value, str))


def _is_stage(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "stage"


class Module:
    """The top of one file: what it defines, what it imports, what each definition names."""

    def __init__(self, name: str, path: Path):
        self.name, self.path = name, path
        self.package = name if path.name == "__init__.py" else name.rpartition(".")[0]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def definitions(self) -> dict[str, list[ast.stmt]]:
        """The statements that make each name what it is, imports left out."""
        found: dict[str, list[ast.stmt]] = defaultdict(list)
        for node in (Bare().visit(inner) for inner in self.tree.body if not _is_idle(inner)):
            for name in _bound(node):
                found[name].append(node)
        for node in self.tree.body:  # what is done to a name later
            if isinstance(node, ast.Expr | ast.For | ast.If | ast.Try | ast.With):
                for name in {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & set(found):
                    if node not in found[name] and not _is_idle(node):
                        found[name].append(node)
        return found

    @cached_property
    def imports(self) -> dict[str, Symbol]:
        return self._imported(self.tree.body)

    def _imported(self, body: list[ast.stmt]) -> dict[str, Symbol]:
        found = {}
        for top in body:
            for node in ast.walk(top):
                if isinstance(node, ast.ImportFrom):
                    source = self._absolute(node)
                    for alias in node.names:
                        found[alias.asname or alias.name] = Symbol(source, alias.name)
                elif isinstance(node, ast.Import):
                    for alias in node.names:
                        bound = alias.asname or alias.name.partition(".")[0]
                        found[bound] = Symbol(alias.name if alias.asname else bound, "")
        return found

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        base = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
        return ".".join([*base, *filter(None, [node.module])])


def _bound(node: ast.AST) -> set[str]:
    """The names that a statement at the top of a module defines."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return {node.name}
    if isinstance(node, ast.If | ast.Try | ast.For | ast.With):
        parts = [*node.body, *getattr(node, "orelse", []), *getattr(node, "finalbody", [])]
        parts += [inner for handler in getattr(node, "handlers", []) for inner in handler.body]
        return {name for inner in parts for name in _bound(inner)}
    targets = getattr(node, "targets", None) or [getattr(node, "target", None)]
    return {
        name.id
        for target in targets
        if target is not None
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }


class Sources:
    """The code below a folder."""

    def __init__(self, root: Path):
        self.root = root
        self.module = cache(self._module)
        self.reached_by = cache(self._reached_by)

    def _module(self, name: str) -> Module | None:
        if name.split(".")[0] not in PACKAGES:
            return None
        path = self.root.joinpath(*name.split("."))
        for file in (path.with_suffix(".py"), path / "__init__.py"):
            if file.is_file():
                return Module(name, file)
        return None

    def stages(self) -> dict[str, tuple[int, Symbol]]:
        """The version and the function of every stage."""
        found = {}
        for path in sorted((self.root / "tasks").rglob("*.py")):
            if "@stage(" not in path.read_text(encoding="utf-8"):
                continue
            name = ".".join(path.relative_to(self.root).with_suffix("").parts)
            module = Module(name, path)
            for node in module.tree.body:
                for mark in getattr(node, "decorator_list", []):
                    if _is_stage(mark) and isinstance(node, ast.FunctionDef):
                        given = {k.arg: k.value for k in mark.keywords}
                        version = mark.args[0] if mark.args else given["version"]
                        label = ast.literal_eval(given.get("name", ast.Constant(node.name)))
                        found[label] = (ast.literal_eval(version), Symbol(name, node.name))
        return found

    def source_hash(self, start: Symbol) -> str:
        """A hash of the code that a function reaches."""
        seen, queue = set[Symbol](), [start]
        digest = []
        while queue:
            symbol = queue.pop()
            if symbol not in seen:
                seen.add(symbol)
                text, further = self.reached_by(symbol)
                queue += further
                if text:
                    digest.append(f"{symbol.module}:{symbol.name}:{text}")
        return hashlib.sha256("\n".join(sorted(digest)).encode()).hexdigest()[:16]

    def _reached_by(self, symbol: Symbol) -> tuple[str, frozenset[Symbol]]:
        """The code of a symbol, and what it names; nothing of what is not the project's."""
        module = self.module(symbol.module)
        if module is None:
            return "", frozenset()
        if not symbol.name:
            return "", frozenset(Symbol(symbol.module, name) for name in module.definitions)
        if symbol.name in module.definitions:
            nodes = module.definitions[symbol.name]
            named = {found for node in nodes for found in self._named(module, node)}
            return "\n".join(map(ast.unparse, nodes)), frozenset(named)
        if symbol.name in module.imports and module.imports[symbol.name] != symbol:
            return "", frozenset([self._whole(module.imports[symbol.name])])
        return "", frozenset([Symbol(f"{symbol.module}.{symbol.name}", "")])

    def _whole(self, symbol: Symbol) -> Symbol:
        """A symbol that is a module itself."""
        inner = f"{symbol.module}.{symbol.name}"
        return Symbol(inner, "") if symbol.name and self.module(inner) else symbol

    def _named(self, module: Module, node: ast.stmt) -> Iterator[Symbol]:
        """What a statement names: of an imported module, the attributes that it takes."""
        known = {name: Symbol(module.name, name) for name in module.definitions}
        known |= module.imports | module._imported([node])
        whole = set()
        for inner in ast.walk(node):
            if isinstance(inner, ast.Attribute):
                found = self._attribute(inner, known)
                if found:
                    whole.add(_root(inner))
                    yield found
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in known and inner not in whole:
                yield self._whole(known[inner.id])

    def _attribute(self, node: ast.Attribute, known: dict[str, Symbol]) -> Symbol | None:
        """The symbol behind `module.name`, or behind `package.module.name`."""
        parts: list[str] = []
        value: ast.AST = node
        while isinstance(value, ast.Attribute):
            parts.insert(0, value.attr)
            value = value.value
        if not isinstance(value, ast.Name) or value.id not in known:
            return None
        place = self._whole(known[value.id])
        while place.name == "" and parts and self.module(place.module):
            place = self._whole(Symbol(place.module, parts.pop(0)))
        return place if place.name and self._whole(known[value.id]).name == "" else None


def _root(node: ast.Attribute) -> ast.AST:
    value: ast.AST = node
    while isinstance(value, ast.Attribute):
        value = value.value
    return value


def present(root: Path = ROOT) -> dict[str, str]:
    """Version and hash of every stage, in one word."""
    sources = Sources(root)
    return {
        name: f"{version} {sources.source_hash(function)}"
        for name, (version, function) in sorted(sources.stages().items())
    }


def record(stages: dict[str, str]) -> str:
    """A line per stage, empty lines between: changes of two stages never meet in a merge."""
    lines = (f"{json.dumps(name)}: {json.dumps(word)}" for name, word in stages.items())
    return "{\n" + ",\n\n".join(lines) + "\n}\n"


@pytest.mark.parametrize("name", sorted(Sources(ROOT).stages()))
def test_a_changed_stage_has_a_new_version_or_a_recorded_same_output(name: str) -> None:
    recorded = json.loads(RECORD.read_text()).get(name)
    now = present_here()[name]
    assert recorded is not None, f"new stage {name}: run python {Path(__file__).name}"
    (then_version, then), (version, source) = recorded.split(), now.split()
    if source != then:
        assert version != then_version, (
            f"the code of stage '{name}' changed but its version is still {version}: raise it in "
            "@stage(version=...) if the output changed; then record with "
            f"`python tests/{Path(__file__).name}`"
        )


present_here = cache(present)
CODE = {
    "tasks/mill.py": (
        "from tasks import sieve\nfrom tasks.stone import grind, HARDNESS\n"
        "UNUSED = 1\n"
        "@stage(version=1)\n"
        "def mill(grain, draft):\n"
        '    "Docs."\n'
        "    log.info('milling')\n"
        "    return grind(sieve.sift(grain), HARDNESS)\n"
    ),
    "tasks/sieve.py": "def sift(grain):\n    return grain\ndef other():\n    return 1\n",
    "tasks/stone/__init__.py": "from tasks.stone.hard import grind\nHARDNESS = 3\n",
    "tasks/stone/hard.py": (
        "TABLE = {}\ndef grind(grain, hard):\n"
        "    if not grain:\n        raise ValueError('no grain')\n"
        "    return TABLE[grain] * hard\nTABLE.update(a=1)\n"
    ),
}


@pytest.mark.parametrize(
    ("file", "before", "after", "counts"),
    [
        ("tasks/mill.py", "UNUSED = 1", "UNUSED = 2", False),
        ("tasks/mill.py", "Docs.", "Other docs.", False),
        ("tasks/mill.py", "'milling'", "'at work'", False),
        ("tasks/mill.py", "def mill(grain, draft):", "def mill(grain: str, draft) -> None:", False),
        ("tasks/mill.py", "@stage(version=1)", "@stage(version=1, gate=x)", False),
        ("tasks/sieve.py", "return 1", "return 2", False),
        ("tasks/stone/hard.py", "'no grain'", "'there is no grain'", False),
        ("tasks/mill.py", "return grind", "return 2 * grind", True),
        ("tasks/sieve.py", "return grain", "return grain[1:]", True),
        ("tasks/stone/__init__.py", "HARDNESS = 3", "HARDNESS = 4", True),
        ("tasks/stone/hard.py", "* hard", "+ hard", True),
        ("tasks/stone/hard.py", "a=1", "a=2", True),
        ("tasks/stone/hard.py", "if not grain", "if grain is None", True),
    ],
)
def test_what_a_stage_reaches_counts_and_nothing_else(
    tmp_path: Path, file: str, before: str, after: str, counts: bool
) -> None:
    for name, code in CODE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(code)
    first = present(tmp_path)
    assert before in CODE[file]
    (tmp_path / file).write_text(CODE[file].replace(before, after))
    assert (present(tmp_path) != first) == counts


if __name__ == "__main__":
    RECORD.write_text(record(present()))
