"""Translation pairs from Python source: a statement as it is written, and its syntax in words.

    total += len(row[1:])     AugAssign Name Add Call Name Subscript Name Slice Constant

The words are the kinds of the nodes of its tree, as `ast` has them, in the order of their fields.
What stands between or around its parts in the one is said before them in the other.
"""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tasks.tuning.pairs import is_test, parsed_file

CODE_CHARACTERS = (12, 72)
SIMPLE = ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Return | ast.Raise | ast.Assert | ast.Expr
"""Statements that hold no others."""


def statements_of_python(files: Iterable[tuple[str, Path]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place and row, `code` and `tree`, of each simple statement on one line of some files (name
    and path); docstrings, and files of tests, are passed over.
    """
    low, high = CODE_CHARACTERS
    for name, path in files:
        if is_test(name) or not (parsed := parsed_file(path)):
            continue
        tree, lines = parsed
        for node in ast.walk(tree):
            if not isinstance(node, SIMPLE) or node.lineno != node.end_lineno:
                continue
            code = lines[node.lineno - 1].encode()[node.col_offset : node.end_col_offset].decode()
            if low <= len(code) <= high and not _is_text(node):
                yield f"{name}:{node.lineno}", {"code": code, "tree": " ".join(words(node))}


def words(node: ast.AST) -> Iterator[str]:
    """A node's kind, then those of what its fields hold."""
    yield type(node).__name__
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr_context):
            yield from words(child)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
