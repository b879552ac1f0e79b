"""Only ``rpcmq.wire`` knows where something stands in a message: elsewhere its fields have names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from rpcmq.wire import HEADER_BYTES

ROOT = Path(__file__).parents[1]
WIRE = ROOT / "rpcmq" / "wire"
#: Names of messages, batches and keys, alone or with a prefix (``self._message``, ``raw_message``).
NAMES = {"batch", "head", "header", "key", "message", "raw"}
LISTS = {"batches", "heads", "inbox", "keys", "messages", "outbox"}


def _last_word(name: str) -> str:
    return name.rstrip("_").rpartition("_")[2]


def _is_constant(node: ast.expr | None) -> bool:
    """Return whether ``node`` is an integer that stands there, or a sum or shift with one."""
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    if isinstance(node, ast.BinOp):
        return _is_constant(node.left) or _is_constant(node.right)
    return isinstance(node, ast.Constant) and type(node.value) is int


def _is_header_length(node: ast.expr) -> bool:
    """Return whether ``node`` is the number that :data:`rpcmq.wire.HEADER_BYTES` names."""
    return isinstance(node, ast.Constant) and node.value == HEADER_BYTES


def _is_list(node: ast.expr) -> bool:
    """Return whether ``node`` is a list of messages by its name."""
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return _last_word(name) in LISTS


def _members(tree: ast.AST) -> set[ast.Name]:
    """Uses of variables that run through a list of messages, whatever their names."""
    found: set[ast.Name] = set()
    for node in ast.walk(tree):
        loops = [node] if isinstance(node, ast.For) else getattr(node, "generators", [])
        names = {loop.target.id for loop in loops if isinstance(loop.target, ast.Name) and _is_list(loop.iter)}
        if names:
            found |= {used for used in ast.walk(node) if isinstance(used, ast.Name) and used.id in names}
    return found


def _is_message(node: ast.expr) -> bool:
    if isinstance(node, ast.Name):
        return _last_word(node.id) in NAMES
    if isinstance(node, ast.Attribute):
        return _last_word(node.attr) in NAMES
    # messages[0][5]
    return isinstance(node, ast.Subscript) and _is_list(node.value)


def raw_offsets(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each constant index or slice of a message in ``source``."""
    tree = ast.parse(source)
    members = _members(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and (node.value in members or _is_message(node.value)):
            index = node.slice
            bounds = [index.lower, index.upper] if isinstance(index, ast.Slice) else [index]
            if any(map(_is_constant, bounds)):
                yield node.lineno, ast.unparse(node)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            yield from ((node.lineno, ast.unparse(node)) for end in (node.left, node.right) if _is_header_length(end))


@pytest.mark.parametrize(
    "text",
    ["message[5]", "message[16:36]", "key[12:]", "messages[0][5]", "call.message[7]", "link.keys[0][:12]", "head[-4:]",
     "batch[5 : 5 + n]", "raw_message[36:40]", "40 + header.address_length", "n - 40"],
)  # fmt: skip
def test_a_raw_offset_is_found(text: str) -> None:
    assert [found for _, found in raw_offsets(f"x = {text}")] == [ast.unparse(ast.parse(text).body[0])]


@pytest.mark.parametrize(
    "text", ["message[KIND_AT]", "message[KEY]", "messages[0]", "messages[1:]", "key[ORIGIN_OF_KEY]"]
)
def test_a_named_field_is_not(text: str) -> None:
    assert list(raw_offsets(f"x = {text}")) == []


def test_a_raw_offset_of_a_member_of_a_list_is_found() -> None:
    assert [found for _, found in raw_offsets("[other for other in self.last_messages if other[5] != kind]")] == [
        "other[5]"
    ]
    assert [found for _, found in raw_offsets("for each in outbox:\n    send(each[16:36])")] == ["each[16:36]"]
    assert list(raw_offsets("[other for other in rows if other[5] != kind]")) == []


def test_no_module_outside_of_wire_has_raw_offsets() -> None:
    modules = [path for top in ("rpcmq", "compat") for path in (ROOT / top).rglob("*.py") if WIRE not in path.parents]
    assert len(modules) > 100
    found = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted(modules)
        for line, text in raw_offsets(path.read_text())
    ]
    assert not found, "name the field, as rpcmq.wire does: " + "\n" + "\n".join(found)
