"""A place in a drill: a process, and those that come after its death."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rpcmq.testing.processes import Program

__all__ = ["Place"]


@dataclass
class Place:
    """A process and those that take its place after its death.

    Attributes:
        name: the identity at the router.
        is_starting: it takes the place of one that died, and is not ready.
    """

    name: str
    role: str
    program: Program
    url: str
    options: dict[str, Any] = field(default_factory=dict)
    is_stopped: bool = False
    is_starting: bool = False

    @property
    def life(self) -> str:
        """Name of the present process in the history."""
        return self.program.name
