"""A store that several owners share, each with items of its own."""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

__all__ = ["Others", "Shared"]


class Others(NamedTuple):
    """The other owners in a store that several share.

    Attributes:
        is_wanted: the true owner waits for what its heir has.
        gone: owners that nobody is at present, and that have left something to do.
    """

    is_wanted: bool = False
    gone: tuple[str, ...] = ()


@runtime_checkable
class Shared(Protocol):
    """A store with several owners, who must be heard of now and then."""

    def beat(self) -> None:
        """Say that it is used."""

    def others(self) -> Others:
        """The other owners in it."""
