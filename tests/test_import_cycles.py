"""No module imports itself by way of others, for types or in functions either."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]


def modules(top: Path) -> dict[str, Path]:
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in top.rglob("*.py")}
    return {name.removesuffix(".__init__"): path for name, path in names.items()}


def imports(source: str, known: set[str]) -> Iterator[str]:
    """The modules of ``known`` that ``source`` imports, wherever it does."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names} & known
            yield from inner or {node.module} & known


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules each of which reaches all others of its group."""
    reached: dict[str, set[str]] = {}
    for start in graph:
        seen, waiting = set[str](), [start]
        while waiting:
            for other in graph[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        reached[start] = seen
    groups = {tuple(sorted(b for b in reached[a] if a in reached[b])) for a in graph if a in reached[a]}
    return [list(group) for group in sorted(groups)]


def test_a_cycle_is_found() -> None:
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [["b", "c"]]


def test_there_is_none() -> None:
    found = modules(ROOT / "rpcmq") | modules(ROOT / "compat" / "nova")
    # The package itself offers names of its modules, and imports none of these before they are asked for.
    del found["rpcmq"]
    assert len(found) > 400
    graph = {name: set(imports(path.read_text(), set(found))) - {name} for name, path in found.items()}
    assert cycles(graph) == []
