"""Every parameter with a default is passed by some call of the product itself.

One that only tests pass is a feature that no user can reach. Calls are matched by the last part of
the name that is called, so a parameter may hide behind a namesake; none that is found is a mistake.
Left out are `forward`, which PyTorch calls, and fields of data classes that are not frozen: state.
"""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "tasks", "model", "cluster")
HASTE = "tests of failing judges cannot wait as long, or send as much, as real ones need"
ALLOWED = {
    f"tasks/evaluation/judging/endpoint.py: Endpoint({name})": HASTE
    for name in ("attempts", "backoff", "max_bytes", "patience")
} | {"tasks/evaluation/statistics/agreement.py: agree(resamples)": "tests draw fewer"}
"""Parameters that no call passes, and why they are there all the same."""
Function = ast.FunctionDef | ast.AsyncFunctionDef


class Parameter(NamedTuple):
    """A parameter with a default, of what is called by `callee`; at a position or by name only."""

    callee: str
    name: str
    position: int | None
    place: str


@cache
def modules() -> dict[str, ast.Module]:
    """The source of the product, by path."""
    paths = [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]
    return {str(p.relative_to(ROOT)): ast.parse(p.read_text()) for p in paths}


def parameters(path: str, tree: ast.Module) -> Iterator[Parameter]:
    """Of public functions, methods and constructors, and the fields of data classes."""
    for node in tree.body:
        if isinstance(node, Function):
            yield from _of_function(path, node, node.name)
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, Function) and inner.name != "forward":
                    name = node.name if inner.name == "__init__" else inner.name
                    static = any(_last(d) == "staticmethod" for d in inner.decorator_list)
                    yield from _of_function(path, inner, name, skipped=0 if static else 1)
            if _is_data(node):
                yield from _fields(path, node)


def _of_function(path: str, node: Function, callee: str, skipped: int = 0) -> Iterator[Parameter]:
    if callee.startswith("_") or any(_is_command(a) for a in node.args.args):
        return
    plain = [*node.args.posonlyargs, *node.args.args]
    first = len(plain) - len(node.args.defaults)
    for index, arg in enumerate(plain[first:], first):
        yield Parameter(callee, arg.arg, index - skipped, f"{path}: {callee}({arg.arg})")
    for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if default is not None:
            yield Parameter(callee, arg.arg, None, f"{path}: {callee}({arg.arg})")


def _is_command(arg: ast.arg) -> bool:
    """Whether the command line passes it."""
    words = ast.unparse(arg.annotation) if arg.annotation else ""
    return "typer." in words or words in ("AsJson", "Home")


def _is_data(node: ast.ClassDef) -> bool:
    marks = [ast.unparse(mark) for mark in (*node.decorator_list, *node.bases)]
    return any("frozen=True" in mark or mark == "NamedTuple" for mark in marks)


def _fields(path: str, node: ast.ClassDef) -> Iterator[Parameter]:
    fields = [n for n in node.body if isinstance(n, ast.AnnAssign)]
    for index, field in enumerate(fields):
        assert isinstance(field.target, ast.Name)
        name = field.target.id
        if field.value is not None and not name.startswith("_"):
            yield Parameter(node.name, name, index, f"{path}: {node.name}({name})")


class Passed:
    """What the calls of the product pass: names and the number of positions, by callee."""

    def __init__(self) -> None:
        self.names: dict[str, set[str]] = defaultdict(set)
        self.positions: dict[str, int] = defaultdict(int)
        nodes = [node for tree in modules().values() for node in ast.walk(tree)]
        self.words = {n.value for n in nodes if isinstance(n, ast.Constant)}
        self.words |= {n.arg for n in nodes if isinstance(n, ast.keyword)}
        self.words |= {
            n.target.id
            for n in nodes
            if isinstance(n, ast.AnnAssign)  # of settings
            and isinstance(n.target, ast.Name)
        }
        for tree in modules().values():
            self._read(tree)

    def has(self, parameter: Parameter) -> bool:
        """Whether some call passes it."""
        callee, name, position, _ = parameter
        placed = position is not None and position < self.positions[callee]
        return placed or name in self.names[callee] or name in self.names["replace"]

    def _read(self, tree: ast.Module) -> None:
        called = {a.asname: a.name for n in ast.walk(tree) for a in _names(n) if a.asname}
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):  # `cls(...)` and `super().__init__(...)`
                called |= {"cls": node.name, "__init__": _last(node.bases[0]) if node.bases else ""}
                for call in (n for n in ast.walk(node) if isinstance(n, ast.Call)):
                    if _last(call.func) in ("cls", "__init__"):
                        self._note(called[_last(call.func)], call.args, call.keywords)
            elif isinstance(node, ast.Call):
                callee = _last(node.func)
                self._note(called.get(callee, callee), node.args, node.keywords)
                if node.args and (inner := _last(node.args[0])):  # partial, submit, `dag.add`
                    self._note(called.get(inner, inner), node.args[1:], _unfolded(node.keywords))

    def _note(self, callee: str, args: list[ast.expr], keywords: list[ast.keyword]) -> None:
        for keyword in keywords:
            if keyword.arg:
                self.names[callee].add(keyword.arg)
            if keyword.arg is None and callee != "replace":
                self.names[callee] |= {word for word in self.words if isinstance(word, str)}
        count = 99 if any(isinstance(a, ast.Starred) for a in args) else len(args)
        self.positions[callee] = max(self.positions[callee], count)


def _unfolded(keywords: list[ast.keyword]) -> list[ast.keyword]:
    """A deployment's `parameters` are its flow's."""
    return [ast.keyword(None, k.value) if k.arg == "parameters" else k for k in keywords]


def _names(node: ast.AST) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import | ast.ImportFrom) else []


def _last(node: ast.AST) -> str:
    """The last part of a dotted name."""
    if isinstance(node, ast.Call):
        return _last(node.func)
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    return getattr(node, "attr", None) or getattr(node, "id", "")


def unreached() -> list[str]:
    """Parameters that no call of the product passes."""
    passed = Passed()
    found = (p for path, tree in modules().items() for p in parameters(path, tree))
    return sorted({p.place for p in found if not passed.has(p)})


def test_every_parameter_is_passed_by_some_call_of_the_product() -> None:
    assert unreached() == sorted(ALLOWED)


if __name__ == "__main__":
    print("\n".join(unreached()))


def unread(tree: ast.Module) -> list[str]:
    """Options of commands that their function does not read; `--home` acts by itself."""
    commands = [n for n in tree.body if isinstance(n, Function)]
    return [
        f"{command.name} --{arg.arg}"
        for command in commands
        if any(_is_command(arg) for arg in command.args.args)
        for arg in command.args.args
        if arg.arg != "home" and arg.arg not in _loaded(command.body)
    ]


def _loaded(body: list[ast.stmt]) -> set[str]:
    nodes = (node for statement in body for node in ast.walk(statement))
    return {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def test_every_option_of_a_command_is_read() -> None:
    found = {path: tree for path, tree in modules().items() if path.startswith("flows/commands/")}
    assert not [fault for tree in found.values() for fault in unread(tree)]
    assert any(
        _is_command(a)
        for t in found.values()
        for n in t.body
        if isinstance(n, Function)
        for a in n.args.args
    )


LIBRARYS = {"ParallelGroups", "Replica"}
"""Classes whose methods a library calls: DeepSpeed asks for the first's, Ray Serve for the other's.
"""


def unused() -> list[str]:
    """Functions and classes at the top of a module, and methods of classes that extend nothing,
    that no other code of the product names.
    """
    everywhere = [
        _words(t) for t in (*modules().values(), ast.parse((ROOT / "headrace.py").read_text()))
    ]
    named = sum(everywhere, Counter[str]())
    return [
        f"{path}: {node.name}"
        for path, tree in modules().items()
        for node in _to_be_used(tree)
        if named[node.name] <= _words(node)[node.name]
    ]


def _to_be_used(tree: ast.Module) -> Iterator[Function | ast.ClassDef]:
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef):
            yield node
        if isinstance(node, ast.ClassDef) and not node.bases and node.name not in LIBRARYS:
            methods = (n for n in node.body if isinstance(n, Function))
            yield from (method for method in methods if not method.name.startswith("__"))


def _words(tree: ast.AST) -> Counter[str]:
    """Names that code reads, and the last parts of dotted ones in its texts; imports are none."""
    words = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute):
            words.append(_last(node))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.append(re.split("[.:]", node.value)[-1])
    return Counter(words)


def test_every_function_is_used_by_the_product() -> None:
    assert not unused()
