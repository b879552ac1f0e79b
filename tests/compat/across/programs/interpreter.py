"""A legacy program that does what its test tells it: runs each piece of code in a green thread of its own.

interpreter.py [ERA]

A line of input is ``{"number": n, "code": ..., "names": ...}``, the names a literal. The line ``= n ...`` of the
output is the literal ``("value", v)``, v what a last expression gave (its ``repr()`` if that is no literal), or
``("error", facts)`` about what it raised.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import traceback
from typing import Any

import compat.nova

compat.nova.install(tree=False, era=sys.argv[1] if sys.argv[1:] else None)

import gevent  # noqa: E402
from gevent.fileobject import FileObject  # noqa: E402

from tests.compat.across.programs.manager import Manager  # noqa: E402

names: dict[str, Any] = {"compat": compat, "manager": Manager()}


def evaluate(code: str, given: dict[str, Any]) -> Any:
    """Run ``code``; the value of its last statement if that is an expression."""
    before = dict(names)
    scope = {**names, **given} if given else names
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "<test>", "exec"), scope)
    value = eval(compile(ast.Expression(last.value), "<test>", "eval"), scope) if isinstance(last, ast.Expr) else None
    names.update({k: v for k, v in scope.items() if k not in given and (k not in before or before[k] is not v)})
    return value


def answer(number: int, code: str, given: str) -> None:
    """Evaluate, and say what came of it."""
    try:
        value = evaluate(code, ast.literal_eval(given))
        said = "value", value if is_literal(value) else repr(value)
    except BaseException as error:
        traceback.print_exc()
        attributes = {key: value for key, value in vars(error).items() if is_literal(value)}
        kinds = [f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__]
        said = "error", {"kinds": kinds, "text": str(error), "attributes": attributes}
    sys.stdout.write(f"= {number} {said!r}\n")
    sys.stdout.flush()


def is_literal(value: object) -> bool:
    """Return whether ``value`` can be written."""
    try:
        ast.literal_eval(repr(value))
    except (SyntaxError, ValueError):
        return False
    return True


print("ready", flush=True)
for line in FileObject(sys.stdin.fileno(), "r", close=False):
    told = json.loads(line)
    gevent.spawn(answer, told["number"], told["code"], told["names"])
os._exit(0)
