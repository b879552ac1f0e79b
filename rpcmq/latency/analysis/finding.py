"""A finding: something a report says to look at first."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Finding"]


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding.

    Attributes:
        what: a line: the thing and its figure.
        why: what the figure means and what to look at next.
        weight: how much it matters, 0 to 1; findings are sorted by it.
        key: the series that it is about, dimension -> value.
    """

    what: str
    why: str
    weight: float
    key: dict[str, str | None] = field(default_factory=dict)
