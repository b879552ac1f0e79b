"""The shim stands on what rpcmq offers to any adapter, and on nothing else of it."""

from __future__ import annotations

import ast
from pathlib import Path

import rpcmq

SHIM = Path(__file__).parents[2] / "compat" / "nova"
PUBLIC = ("rpcmq.errors", "rpcmq.testing")


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.partition(".")[0] == "rpcmq"}


def is_public(name: str) -> bool:
    if name.startswith("rpcmq.adapters."):
        return True
    return name.removeprefix("rpcmq.") in rpcmq.__all__ or name.startswith(tuple(f"{each}." for each in PUBLIC))


def test_the_shim_imports_only_the_public_names_the_errors_and_the_interface_for_adapters() -> None:
    files = sorted(SHIM.rglob("*.py"))
    names = {path: imported(path) for path in files}
    # Of the legacy modules, too, which import-linter does not see.
    assert any(names[path] for path in files if "modules" in path.parts)
    assert {str(path): used for path in files if (used := {n for n in names[path] if not is_public(n)})} == {}
