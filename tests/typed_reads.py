"""Which attributes of which classes the product reads, by following annotations through its source.

    reads()    # {("PretrainSettings", "most_skipped"), ...}

A name has the class that its annotation says, or that of what it was assigned. A read in a property
or method counts once that is read itself, so what only a dead one reads is not read. Validators and
`identity` do not count: settings there are checked and compared, not carried out; nor do dumps to
JSON, or into other settings.
"""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PACKAGES = ("flows", "tasks", "model", "cluster")
Read = tuple[str, str]
Function = ast.FunctionDef | ast.AsyncFunctionDef
CHECKS = ("model_validator", "field_validator")
MANY = re.compile(r"^(tuple|list|Sequence|Iterable|Iterator|dict|Mapping)\[")


class About(NamedTuple):
    """A class: its bases, what its attributes are annotated as, and its methods."""

    bases: list[str]
    fields: dict[str, str]
    methods: dict[str, Function]


class Type(NamedTuple):
    """The classes that something may be of, or that its items are of."""

    classes: frozenset[str]
    many: bool = False


@cache
def trees() -> list[ast.Module]:
    """The source of the product."""
    paths = [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]
    return [ast.parse(path.read_text()) for path in paths]


@cache
def classes() -> dict[str, About]:
    """Every class of the product, by name."""
    nodes = [n for tree in trees() for n in ast.walk(tree) if isinstance(n, ast.ClassDef)]
    return {n.name: _about(n) for n in nodes}


def _about(node: ast.ClassDef) -> About:
    fields, methods = {}, {}
    for inner in node.body:
        if isinstance(inner, ast.AnnAssign) and isinstance(inner.target, ast.Name):
            fields[inner.target.id] = ast.unparse(inner.annotation)
        elif isinstance(inner, Function):
            methods[inner.name] = inner
    return About([ast.unparse(base) for base in node.bases], fields, methods)


def lineage(name: str) -> list[str]:
    """A class and what it inherits from, nearest first."""
    found = [name]
    for base in classes()[name].bases:
        found += lineage(base) if base in classes() else []
    return found


@cache
def declared_by(name: str, attribute: str) -> str | None:
    """The class in a lineage that has an attribute."""
    for each in lineage(name):
        if attribute in classes()[each].fields or attribute in classes()[each].methods:
            return each
    return None


@cache
def typed(annotation: str) -> Type:
    """What an annotation says."""
    words = re.findall(r"\w+", annotation)
    return Type(frozenset(w for w in words if w in classes()), bool(MANY.match(annotation)))


@cache
def attribute_type(name: str, attribute: str) -> Type:
    """What a field of a class, or what its method returns, is annotated as."""
    about = classes()[name]
    method, said = about.methods.get(attribute), about.fields.get(attribute)
    if said is None and method is not None and method.returns:
        said = ast.unparse(method.returns)
    return typed((said or "").strip("'\""))


NOTHING = Type(frozenset())


@cache
def returned() -> dict[str, Type]:
    """What functions and methods return, by name."""
    nodes = [n for tree in trees() for n in ast.walk(tree) if isinstance(n, Function) and n.returns]
    return {n.name: typed(ast.unparse(n.returns).strip("'\"")) for n in nodes if n.returns}


class Reader:
    """Reads one function with what it knows of its names."""

    def __init__(self, function: Function, own: str | None, outer: dict[str, Type]) -> None:
        self.names, self.found = dict(outer), set[Read]()
        arguments = function.args
        for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            if arg.annotation:
                self.names[arg.arg] = typed(ast.unparse(arg.annotation).strip("'\""))
        if own and arguments.args and arguments.args[0].arg == "self":
            self.names["self"] = Type(frozenset([own]))
        self.copies = bool(function.returns) and "Settings" in ast.unparse(function.returns)
        self.words = {n.value for n in ast.walk(function) if isinstance(n, ast.Constant)}
        for node in function.body:
            self._bind(node)
        for node in function.body:
            self._visit(node)

    def _bind(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value)
            elif isinstance(node, ast.NamedExpr):
                self._assign(node.target, node.value)
            elif isinstance(node, ast.For | ast.comprehension):
                self._name(node.target, self.type(node.iter)._replace(many=False))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for one, other in zip(target.elts, value.elts, strict=True):
                self._assign(one, other)
        else:
            self._name(target, self.type(value))

    def _name(self, target: ast.expr, kind: Type) -> None:
        names = target.elts if isinstance(target, ast.Tuple) else [target]
        for name in names:
            if isinstance(name, ast.Name) and kind.classes:
                self.names[name.id] = kind

    def _visit(self, tree: ast.AST) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self._note(self.type(node.value), node.attr)
            elif isinstance(node, ast.Call):
                self._call(node)

    def _note(self, kind: Type, attribute: str) -> None:
        for name in kind.classes:
            if declarer := declared_by(name, attribute):
                self.found.add((declarer, attribute))

    def _call(self, node: ast.Call) -> None:
        """`getattr`, and dumps of what is then used: of a field each that is not left out."""
        if isinstance(node.func, ast.Name) and node.func.id == "getattr":
            for word in self.words:
                self._note(self.type(node.args[0]), str(word))
        if isinstance(node.func, ast.Attribute) and node.func.attr == "model_dump":
            given = {k.arg: ast.unparse(k.value) for k in node.keywords}
            if "mode" in given or self.copies:
                return
            kind = self.type(node.func.value)
            for name in {f for c in kind.classes for e in lineage(c) for f in classes()[e].fields}:
                if f"'{name}'" not in given.get("exclude", ""):
                    self._note(kind, name)

    def type(self, node: ast.AST) -> Type:
        """What an expression is, as far as annotations tell."""
        match node:
            case ast.Name():
                return self.names.get(node.id, NOTHING)
            case ast.Attribute():
                return self._of(self.type(node.value), node.attr)
            case ast.Call(func=ast.Attribute(attr="model_copy", value=value)):
                return self.type(value)
            case ast.Call(func=ast.Name(id=name)):
                if name in classes():
                    return Type(frozenset([name]))
                inner = [self.type(a) for a in node.args] if name in ("list", "sorted") else []
                return inner[0] if inner else returned().get(name, NOTHING)
            case ast.Call(func=ast.Attribute(attr=name)):
                return returned().get(name, NOTHING)
            case ast.Subscript(value=value):
                return self.type(value)._replace(many=False)
            case ast.IfExp(body=one, orelse=other) | ast.BoolOp(values=[one, other, *_]):
                return Type(self.type(one).classes | self.type(other).classes, self.type(one).many)
            case ast.NamedExpr(value=value) | ast.Starred(value=value):
                return self.type(value)
        return NOTHING

    def _of(self, kind: Type, attribute: str) -> Type:
        found: set[str] = set()
        many = False
        for name in kind.classes:
            if declarer := declared_by(name, attribute):
                one = attribute_type(declarer, attribute)
                found |= one.classes
                many |= one.many
        return Type(frozenset(found), many)


def _functions(tree: ast.AST, own: str | None = None) -> Iterator[tuple[Function, str | None]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _functions(node, node.name)
        elif isinstance(node, Function):
            yield node, own
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _functions(node, own)


def _checks(function: Function) -> bool:
    marks = " ".join(ast.unparse(mark) for mark in function.decorator_list)
    return function.name == "identity" or any(check in marks for check in CHECKS)


@cache
def reads() -> set[Read]:
    """Every (class, attribute) that the product reads, by the class that declares it."""
    alive, waiting = set[Read](), defaultdict[Read, set[Read]](set)
    for tree in trees():
        for function, own in _functions(tree):
            if _checks(function):
                continue
            found = Reader(function, own, {}).found
            if own and own in classes() and _is_settings(own):
                waiting[(own, function.name)] |= found
            else:
                alive |= found
    while ready := [key for key in waiting if key in alive]:
        for key in ready:
            alive |= waiting.pop(key)
    return alive


def _is_settings(name: str) -> bool:
    return "Settings" in lineage(name)
