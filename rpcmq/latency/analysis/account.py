"""The account of a log that was read: what counts, what does not, what nobody knows. Reports begin with it."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Account", "SetAside"]


@dataclass(frozen=True, slots=True)
class SetAside:
    """A file that was not read.

    Attributes:
        path: below the log's directory.
        reason: ``corrupt``, ``truncated``, ``foreign``, ``version``, ``unreadable``, ...: one word.
        text: what is wrong with it.
        rows: records that it had when it was shipped; None: the manifest does not know it.
    """

    path: str
    reason: str
    text: str
    rows: int | None


@dataclass(slots=True)
class Account:
    """What became of the records of a log.

    Attributes:
        files: files that were read.
        shipped: records that the shipper's manifest says are in files of now.
        counted: records that were read. ``shipped`` = ``counted`` + those in ``set_aside``.
        in_range: those of ``counted`` that are in the range asked for.
        set_aside: files that were not read.
        holes: numbers that routers gave and that have no record.
        dropped: of ``holes``, records that a router could not write.
        missing_segments: files that routers wrote and the shipper never got.
        unknown: records of calls of which nobody knows the end.
    """

    files: int = 0
    shipped: int = 0
    counted: int = 0
    in_range: int = 0
    set_aside: list[SetAside] = field(default_factory=list)
    holes: int = 0
    dropped: int = 0
    missing_segments: int = 0
    unknown: int = 0

    @property
    def balances(self) -> bool:
        """Whether each record that was shipped was counted or is in a file that was set aside."""
        return self.shipped == self.counted + sum(each.rows or 0 for each in self.set_aside)
