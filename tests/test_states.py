"""``docs/contributing/states.md`` shows the transition tables of the engines as they are.

``python -m tests.test_states`` draws them anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from importlib import import_module
from pathlib import Path

import rpcmq

DOCUMENT = Path(__file__).parent.parent / "docs" / "contributing" / "states.md"
_BLOCK = re.compile(r"(<!-- states: (\S+) (\S+) -->\n).*?(<!-- end of states -->\n)", re.DOTALL)


def diagram(transitions: Mapping[tuple[Enum, str], Enum]) -> Iterator[str]:
    """The lines of a Mermaid state diagram; events that lead the same way share an arrow."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (start, event), end in transitions.items():
        arrows.setdefault((start.value, end.value), []).append(event)
    first = next(iter(transitions))[0].value
    yield "```mermaid"
    yield "stateDiagram-v2"
    yield f"    [*] --> {first}"
    for (source, target), events in arrows.items():
        yield f"    {source} --> {target}: {', '.join(events)}"
    yield "```"


def generated(document: str) -> str:
    """``document`` with its diagrams as they should be."""

    def drawn(found: re.Match[str]) -> str:
        table = getattr(import_module(found[2]), found[3])
        return found[1] + "".join(line + "\n" for line in diagram(table)) + found[4]

    return _BLOCK.sub(drawn, document)


def test_the_diagrams_are_up_to_date() -> None:
    document = DOCUMENT.read_text()
    assert document == generated(document), "run: python -m tests.test_states"


def test_every_table_is_drawn() -> None:
    package = Path(rpcmq.__file__).parent
    tables = {
        (path.relative_to(package.parent).with_suffix("").as_posix().replace("/", "."), name)
        for path in package.rglob("*_states.py")
        for name in re.findall(r"^([A-Z_]*TRANSITIONS)\b", path.read_text(), re.MULTILINE)
    }
    # That one is part of the protocol: tests/test_protocol_examples.py checks its diagram.
    tables.remove(("rpcmq.core.process.uplink_states", "TRANSITIONS"))
    assert tables == {(found[2], found[3]) for found in _BLOCK.finditer(DOCUMENT.read_text())}


if __name__ == "__main__":
    DOCUMENT.write_text(generated(DOCUMENT.read_text()))
