"""Distributions with node types, as an installer leaves them in a folder."""

from __future__ import annotations

from pathlib import Path

__all__ = ["install"]


def install(folder: Path, name: str, source: str, **types: str) -> None:
    """Put the module ``name`` and its metadata into ``folder``.

    Args:
        types: the entry points: name of the node type -> its class.
    """
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    lines = [f"{type_} = {name}:{class_}" for type_, class_ in types.items()]
    (info / "entry_points.txt").write_text("\n".join(["[rpcmq.nodes]", *lines, ""]))
