"""How the code documents itself: public functions document what they return."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import uniot

PACKAGE = Path(uniot.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
LEAST_RETURNS = 0.90

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.Module) -> Iterator[tuple[Function, bool]]:
    """Yield every function and method, and whether it is public."""
    waiting: list[tuple[ast.AST, bool]] = [(tree, True)]
    while waiting:
        node, public = waiting.pop()
        for child in getattr(node, "body", []):
            if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                is_public = public and not child.name.startswith("_")
                if isinstance(child, ast.ClassDef):
                    waiting.append((child, is_public))
                else:
                    yield child, is_public


def all_functions() -> Iterator[tuple[Path, Function, bool]]:
    for file in FILES:
        for function, public in functions(ast.parse(file.read_text(encoding="utf-8"))):
            yield file, function, public


def documents_return(docstring: str) -> bool:
    return bool(
        re.match(r"(Return|Yield)s? ", docstring) or re.search(r"^\s*(Returns|Yields):", docstring, re.MULTILINE)
    )


def test_public_functions_document_what_they_return():
    returning = [
        (file, function)
        for file, function, public in all_functions()
        if public and function.returns is not None and ast.unparse(function.returns) not in ("None", "NoReturn")
    ]
    silent = [
        f"{file.relative_to(PACKAGE)} {function.name}"
        for file, function in returning
        if not documents_return(ast.get_docstring(function) or "")
    ]
    assert len(silent) <= (1 - LEAST_RETURNS) * len(returning), "\n".join(silent)


def test_documented_returns_are_recognised():
    assert documents_return("Return the mean.")
    assert documents_return("Fit it.\n\nReturns:\n    The model.")
    assert not documents_return("Fit it.")
