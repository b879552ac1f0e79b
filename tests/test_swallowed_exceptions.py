"""An exception that is dropped without a trace needs a comment with the reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def swallowed_in(source: str) -> list[int]:
    """Lines of handlers that only pass, continue or break, and of ``suppress``, that have no comment with a reason.

    The comment is within the handler, or in the line before a ``suppress``, beside it or below it.
    """
    lines = source.splitlines()
    return [
        first for first, last in _places(ast.parse(source)) if not any("#" in each for each in lines[first - 1 : last])
    ]


def _places(tree: ast.AST) -> Iterator[tuple[int, int]]:
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(body=[ast.Pass() | ast.Continue() | ast.Break()]):
                yield node.lineno, node.end_lineno or node.lineno
            case ast.With():
                if any(_is_suppress(item.context_expr) for item in node.items):
                    yield node.lineno - 1, node.body[0].lineno


def _is_suppress(expression: ast.expr) -> bool:
    match expression:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name == "suppress"
    return False


@pytest.mark.parametrize("package", ["rpcmq", "compat", "drivers"])
def test_dropped_exceptions_say_why(package: str) -> None:
    paths = list((ROOT / package).rglob("*.py"))
    found = {str(path.relative_to(ROOT)): swallowed_in(path.read_text(encoding="utf-8")) for path in paths}
    assert len(paths) > 20 and {name: lines for name, lines in found.items() if lines} == {}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("try:\n    f()\nexcept OSError:\n    pass", [3]),
        ("try:\n    f()\nexcept OSError:\n    pass  # it is closed already", []),
        ("for x in y:\n    try:\n        f()\n    except OSError:\n        # gone\n        continue", []),
        ("for x in y:\n    try:\n        f()\n    except OSError:\n        break", [4]),
        ("x = 1\nwith suppress(OSError):\n    f()", [1]),
        ("x = 1\nwith contextlib.suppress(OSError):\n    f()", [1]),
        ("# it may be gone\nwith suppress(OSError):\n    f()", []),
        ("try:\n    f()\nexcept OSError as error:\n    log(error)", []),
    ],
)
def test_they_are_found(source: str, lines: list[int]) -> None:
    assert swallowed_in(source) == lines
