"""Lifetimes: processes that were killed, left or are done, and the lives of the router."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Lives"]


@dataclass
class Lives:
    """The lifetimes as far as the history has been read.

    Attributes:
        dead: process -> when it was killed.
        done: process -> when it had done all it was asked to do.
        left: processes that were told to end.
        router_starts, router_kills: when the router was back, and when it was killed.
        router_ends: end times of its lives, orderly or not.
    """

    dead: dict[str, float] = field(default_factory=dict)
    done: dict[str, float] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    router_starts: list[float] = field(default_factory=list)
    router_kills: list[float] = field(default_factory=list)
    router_ends: list[float] = field(default_factory=list)
