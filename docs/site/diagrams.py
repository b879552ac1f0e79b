"""The diagrams of the pages as pictures (SVG), drawn when the site is built: a code host draws the same Mermaid itself.

A state, a participant or a box is a column; each arrow has a row of its own, with its label. So nothing has to be laid
out, and a picture reads from top to bottom.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import escape

__all__ = ["svg_of"]

#: Pixels: a character on average, a row, the least distance of columns, from an arrow's end to a dot.
_CHARACTER, _ROW, _COLUMN, _DOT = 6.2, 30, 120, 34
_MARGIN, _LINE = 12, 16
_STARTS_OR_ENDS = "[*]"

_STATE = re.compile(r"(?P<source>\S+) --> (?P<target>[^\s:]+)(?:: (?P<label>.+))?")
_MESSAGE = re.compile(r"(?P<source>\w+)(?P<line>--?)>>(?P<target>\w+): (?P<label>.+)")
_EDGE = re.compile(
    r"(?P<source>\w+)(?:\[\"(?P<is>.+?)\"\])? (?:-->|---|-- \"(?P<label>.+?)\" -->) "
    r"(?P<target>\w+)(?:\[\"(?P<to>.+?)\"\])?"
)


@dataclass
class _Diagram:
    #: Title of each column, by the name that arrows have for it; ``<br>`` begins a new line.
    columns: dict[str, str] = field(default_factory=dict)
    #: Title, and names of the first and last column.
    groups: list[tuple[str, str, str]] = field(default_factory=list)
    #: Source, target, label, and whether the line is dashed.
    arrows: list[tuple[str, str, str, bool]] = field(default_factory=list)


def svg_of(mermaid: str) -> str:
    """An ``<svg>`` of a ``stateDiagram-v2``, ``sequenceDiagram`` or ``flowchart``.

    Raises:
        ValueError: it has a line that is not understood.
    """
    diagram = _read(mermaid)
    return "\n".join(_draw(diagram))


def _read(mermaid: str) -> _Diagram:
    kind, *lines = filter(None, map(str.strip, mermaid.splitlines()))
    pattern = {"stateDiagram-v2": _STATE, "sequenceDiagram": _MESSAGE}.get(kind, _EDGE)
    diagram, group, begins = _Diagram(), "", 0
    for line in lines:
        if line == "autonumber":
            continue
        if line.startswith("box "):
            group, begins = line.removeprefix("box "), len(diagram.columns)
        elif line == "end":
            inside = list(diagram.columns)[begins:]
            diagram.groups.append((group, inside[0], inside[-1]))
        elif found := re.fullmatch(r"participant (\w+) as (.+)", line):
            diagram.columns[found[1]] = found[2]
        elif found := pattern.fullmatch(line):
            _add_arrow(diagram, found.groupdict())
        else:
            raise ValueError(f"this line of a {kind} cannot be drawn: {line}")
    return diagram


def _add_arrow(diagram: _Diagram, found: dict[str, str | None]) -> None:
    source, target = found["source"] or "", found["target"] or ""
    for name, title in ((source, found.get("is")), (target, found.get("to"))):
        if name != _STARTS_OR_ENDS and (title or name not in diagram.columns):
            diagram.columns[name] = title or name
    diagram.arrows.append((source, target, found["label"] or "", found.get("line") == "--"))


def _width(text: str) -> float:
    return len(text) * _CHARACTER


def _draw(diagram: _Diagram) -> Iterator[str]:
    titles = {name: title.split("<br>") for name, title in diagram.columns.items()}
    distance = max(_COLUMN, *(_width(line) + 24 for lines in titles.values() for line in lines))
    at = {name: _MARGIN + distance * (number + 0.5) for number, name in enumerate(titles)}
    top = _MARGIN + (_LINE + 8 if diagram.groups else 0)
    head = top + _LINE * max(map(len, titles.values())) + 12
    height = head + _ROW * (len(diagram.arrows) + 0.5) + _MARGIN
    # A label that is wider than the columns are has the room that it needs.
    width = max(2 * _MARGIN + distance * len(at), *(_width(label) + 2 * _MARGIN for _, _, label, _ in diagram.arrows))
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" font-family="sans-serif" font-size="12" fill="currentColor">'
    )
    yield f"<title>{escape(', '.join(' '.join(lines) for lines in titles.values()))}</title>"
    for title, first, last in diagram.groups:
        left, right = at[first] - distance / 2 + 4, at[last] + distance / 2 - 4
        yield _box(left, _MARGIN - 6, right - left, height - _MARGIN)
        yield _text((left + right) / 2, _MARGIN + 10, title, "bold")
    for name, lines in titles.items():
        yield _path(f"M{at[name]:.0f} {head}V{height - _MARGIN:.0f}", 'stroke-opacity="0.3"')
        yield _box(at[name] - distance / 2 + 8, top, distance - 16, head - top)
        for number, line in enumerate(lines, 1):
            yield _text(at[name], top + _LINE * number, line, "bold")
    for number, arrow in enumerate(diagram.arrows, 1):
        yield from _arrow(at, width, head + _ROW * number, *arrow)
    yield "</svg>"


def _arrow(
    at: dict[str, float], width: float, y: float, source: str, target: str, label: str, dashed: bool
) -> Iterator[str]:
    begin = at[source] if source in at else at[target] - _DOT
    end = at[target] if target in at else at[source] + _DOT
    style = 'stroke-dasharray="4 3"' if dashed else ""
    if source == target:
        yield _path(f"M{begin:.0f} {y - 8:.0f}h22v8H{end + 7:.0f}", style)
    else:
        yield _path(f"M{begin:.0f} {y:.0f}H{end:.0f}", style)
    points_left = source == target or end < begin
    tip = 7 if points_left else -7
    yield f'<path d="M{end:.0f} {y:.0f}l{tip} -4v8z"/>'
    for name, x in ((source, begin), (target, end)):
        if name == _STARTS_OR_ENDS:
            yield f'<circle cx="{x:.0f}" cy="{y:.0f}" r="5"/>'
    if label:
        half = _width(label) / 2
        # Beside the loop of an arrow to itself; above any other.
        x, above = (begin + 28 + half, 1) if source == target else ((begin + end) / 2, 7)
        yield _text(min(max(x, half + 2), width - half - 2), y - above, label)


def _text(x: float, y: float, text: str, weight: str = "normal") -> str:
    # Its outline, in the colour of the page, keeps the lines behind it away.
    outline = 'stroke="var(--color-background-primary, white)" stroke-width="3" paint-order="stroke"'
    shown = escape(text)
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="middle" font-weight="{weight}" {outline}>{shown}</text>'


def _box(x: float, y: float, width: float, height: float) -> str:
    size = f'x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}"'
    return f'<rect {size} rx="5" fill="none" stroke="currentColor" stroke-opacity="0.5"/>'


def _path(steps: str, style: str) -> str:
    return f'<path d="{steps}" fill="none" stroke="currentColor" {style}/>'
