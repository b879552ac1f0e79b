"""No code path loads a payload before its checks: who may load at all, and who may ask for it.

Only three modules can load a pickle; the codec alone calls them; and in the client library nothing but the door
(``rpcmq.client.payloads``) asks a codec to decode. What the door checks first is tested in
``tests/integration/test_payload_trust.py``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted((*ROOT.glob("rpcmq/**/*.py"), *ROOT.glob("compat/**/*.py")))
#: Modules whose names run code from data.
LOADERS = {"_pickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"}
MAY_LOAD = {
    "rpcmq/payload/codec.py",  # writes only
    "rpcmq/payload/default_allow_list.py",
    "rpcmq/payload/dill_pickle.py",
    "rpcmq/payload/paths.py",
    "rpcmq/payload/pickle_scan.py",
    "rpcmq/payload/pickle_tuples.py",
    "rpcmq/payload/safe_pickle.py",
}
LOADING_NAMES = {"load", "loads", "Unpickler", "_Unpickler", "_loads", "_load"}
#: Calls of a loader's loading names: module -> the one that may.
MAY_CALL = {"rpcmq/payload/dill_pickle.py", "rpcmq/payload/safe_pickle.py"}
DECODERS = {"decode_exception", "rebuild_exception"}
#: The modules that may ask a codec to decode.
DOORS = {"rpcmq/client/payloads.py", "rpcmq/payload/codec.py", "compat/nova/transport.py"}
#: Modules whose codecs accept JSON alone, by which nothing runs: the messages of browsers are no payloads.
JSON_ONLY = {"rpcmq/gateway/messages.py"}
#: Other things called ``decode``: text from bytes, an address or a consumer's name from its block, a key from its
#: characters.
OTHER_DECODE = {"Address", "ConsumerName", "z85"}
KINDS = ast.Import | ast.ImportFrom | ast.Call | ast.Attribute | ast.Name


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def nodes() -> list[tuple[str, list[ast.AST]]]:
    """Name and nodes of each module, of the kinds that these tests ask for."""
    return [(name_of(path), nodes_of(path.read_text())) for path in SOURCES]


def nodes_of(source: str) -> list[ast.AST]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, KINDS)]


def imported(within: list[ast.AST]) -> Iterator[str]:
    for node in within:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
            if name in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value)


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 100


def test_only_payload_modules_can_load() -> None:
    found = {
        name for name, within in nodes() if any(module.partition(".")[0] in LOADERS for module in imported(within))
    }  # fmt: skip
    # The shim's own tree of nova has its serialisation, which writes.
    assert {name for name in found if name.startswith("rpcmq/")} <= MAY_LOAD


def loading(within: list[ast.AST]) -> Iterator[str]:
    """Loading names of a loader that a module uses, as ``pickle.loads``."""
    for node in within:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in LOADERS and node.attr in LOADING_NAMES:
                yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.ImportFrom) and (node.module or "") in LOADERS:
            yield from (alias.name for alias in node.names if alias.name in LOADING_NAMES)


def test_only_two_modules_load() -> None:
    found = {name: set(loading(within)) for name, within in nodes()}
    assert {name for name, names in found.items() if names} == MAY_CALL
    # The latter for what has no global at all (tests/payload/test_plain_pickles.py).
    assert found["rpcmq/payload/safe_pickle.py"] == {"pickle.Unpickler", "pickle.loads"}
    assert found["rpcmq/payload/dill_pickle.py"] == {"dill.loads"}


def test_only_the_codec_calls_those_two() -> None:
    users = {
        name
        for name, within in nodes()
        for node in within
        if isinstance(node, ast.Name | ast.Attribute)
        and (node.id if isinstance(node, ast.Name) else node.attr) in ("RestrictedLoader", "dill_pickle")
    }
    assert users <= {"rpcmq/payload/codec.py"}


def decodings(within: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Calls that may ask a codec: ``x.decode(a, b)`` and the decoding of exceptions."""
    for node in within:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        on = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
        if node.func.attr in DECODERS or (
            node.func.attr == "decode"
            and on not in OTHER_DECODE
            and any(not isinstance(argument, ast.Constant | ast.BoolOp) for argument in node.args)
        ):
            yield node.lineno, ast.unparse(node)


def test_only_the_door_asks_for_decoding() -> None:
    found = {name: list(decodings(within)) for name, within in nodes()}
    outside = {name: calls for name, calls in found.items() if calls and name not in DOORS | JSON_ONLY}
    assert {name for name in outside if not name.startswith("rpcmq/payload/")} <= {
        "compat/nova/modules/support/nova/openstack/common/strutils.py"  # text from bytes
    }, outside
    # A value, an exception, and what this process has sent itself.
    assert len(found["rpcmq/client/payloads.py"]) == 3


@pytest.mark.parametrize("text", ["codec.decode(form, data)", "self.codec.decode_exception(form, data)"])
def test_another_door_would_be_found(text: str) -> None:
    assert list(decodings(nodes_of(text)))
