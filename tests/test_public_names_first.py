"""In each file of ``rpcmq/core``, ``rpcmq/wire`` and ``drivers`` the public classes and functions come first.

A private one that a public one needs while the file is imported (as a base, a decorator, a default) stands before it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def late_public_names(source: str) -> list[str]:
    """Return the public definitions of ``source`` that come after a private one which could follow them."""
    statements = ast.parse(source).body
    late: list[str] = []
    is_private_seen = False
    for number, statement in enumerate(statements):
        if not isinstance(statement, Definition):
            continue
        if not statement.name.startswith("_"):
            late += [statement.name] if is_private_seen else []
        elif not any(statement.name in needed_at_import(each) for each in statements[number + 1 :]):
            is_private_seen = True
    return late


def needed_at_import(node: ast.AST) -> set[str]:
    """Return the names that are looked up when ``node`` is executed, and not when what it defines is called."""
    return {each.id for each in executed(node) if isinstance(each, ast.Name)}


def executed(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            children: list[ast.AST | None] = [*node.decorator_list, *node.args.defaults, *node.args.kw_defaults]
        case ast.Lambda():
            children = [*node.args.defaults, *node.args.kw_defaults]
        case ast.AnnAssign():
            children = [node.value]
        case _:
            children = list(ast.iter_child_nodes(node))
    for child in children:
        if child is not None:
            yield from executed(child)


@pytest.mark.parametrize("room", ["rpcmq/core", "rpcmq/wire", "drivers"])
def test_public_names_come_first(room: str) -> None:
    paths = list((ROOT / room).rglob("*.py"))
    found = {path.relative_to(ROOT).as_posix(): late_public_names(path.read_text()) for path in paths}
    assert len(paths) > 5 and {name: late for name, late in found.items() if late} == {}


@pytest.mark.parametrize(
    ("source", "late"),
    [
        ("def _f(): pass\ndef g(): return _f()", ["g"]),
        ("def g(): return _f()\ndef _f(): pass", []),
        ("class _B: pass\nclass C(_B): pass", []),
        ("def _d(f): return f\n@_d\ndef g(): pass", []),
        ("def _f(): pass\nTABLE = {1: _f}\ndef g(): pass", []),
        ("class _N: pass\nx: _N\ndef g(n: _N): pass", ["g"]),
    ],
)
def test_late_public_names_are_found(source: str, late: list[str]) -> None:
    assert late_public_names(source) == late
