"""A hash of what code says, by which a rule knows that its code was changed."""

from __future__ import annotations

import ast
from hashlib import sha256
from pathlib import Path

_DESCRIBED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_digest(paths: list[Path]) -> str:
    """A hash of what code says: comments, docstrings and layout don't count."""
    said = [_statements(ast.parse(path.read_text(encoding="utf-8"))) for path in paths]
    return sha256("".join(said).encode()).hexdigest()


def _statements(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        if isinstance(node, _DESCRIBED) and ast.get_docstring(node):
            node.body = node.body[1:]
    return ast.dump(tree)
