"""The account of a log: records counted, set aside and unknown. Reports begin with it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["Account", "Life", "SetAside", "Verdict"]


class Verdict(StrEnum):
    """Verdicts on an account."""

    #: All expected records are counted.
    COMPLETE = "complete"
    #: Some are missing, for known reasons.
    INCOMPLETE = "incomplete"
    #: Records are missing or duplicated without explanation.
    UNBALANCED = "does not balance"


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


@dataclass(frozen=True, slots=True)
class Life:
    """A life of a router that ended without a seal: it was killed, crashed, or its power failed.

    Attributes:
        router: its name.
        boot: when it began, milliseconds since 1970.
        until: when it last wrote, seconds since 1970; 0: not known.
        holes: numbers that it gave and that have no record.
        lost: records that it may have had since it last wrote, which it does four times a second; nobody knows of them.
    """

    router: str
    boot: int
    until: float
    holes: int
    lost: int


@dataclass(slots=True)
class Account:
    """The disposition of a log's records.

    Attributes:
        files: files that were read.
        shipped: records that the shipper's manifest says are in files of now.
        counted: records that were read. ``shipped`` = ``counted`` + those in ``set_aside``.
        in_range: those of ``counted`` that are in the range asked for.
        set_aside: files that were not read.
        holes: numbers that routers gave and that have no record.
        open: of ``holes``, those of lives that are not over, as far as is known: their messages may still end.
        dropped: of ``holes``, records that a router could not write.
        missing_segments: files that routers wrote and the shipper never got.
        unknown: records of calls of which nobody knows the end.
        unsealed: lives of routers that ended without a seal.
        waiting: complete files in the spool, and nobody ships them.
    """

    files: int = 0
    shipped: int = 0
    counted: int = 0
    in_range: int = 0
    set_aside: list[SetAside] = field(default_factory=list)
    holes: int = 0
    open: int = 0
    dropped: int = 0
    missing_segments: int = 0
    unknown: int = 0
    unsealed: list[Life] = field(default_factory=list)
    waiting: int = 0

    @property
    def rows_aside(self) -> int:
        """Records in files that were not read, as far as their number is known."""
        return sum(each.rows or 0 for each in self.set_aside)

    @property
    def balances(self) -> bool:
        """Whether each record that was shipped was counted or is in a file that was set aside."""
        return self.shipped == self.counted + self.rows_aside

    @property
    def lost(self) -> int:
        """Records that may be missing because routers did not end in order: the ``lost`` of ``unsealed``."""
        return sum(each.lost for each in self.unsealed)

    @property
    def verdict(self) -> Verdict:
        """Whether figures made of this log are about all of it."""
        if not self.balances:
            return Verdict.UNBALANCED
        # A file of which it is not known how many records it has may have some.
        aside = any(each.rows != 0 for each in self.set_aside)
        gone = self.dropped or self.missing_segments or self.waiting or self.holes > self.open or self.unsealed
        return Verdict.INCOMPLETE if aside or gone else Verdict.COMPLETE

    @property
    def shortfall(self) -> float:
        """The share of all records that are known to be missing from what was counted, 0 to 1."""
        missing = self.rows_aside + max(self.dropped, self.holes - self.open)
        return missing / (self.counted + missing) if missing > 0 else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return the account for programs: see docs/latency-json.md."""
        made = asdict(self) | {"balances": self.balances, "verdict": self.verdict}
        for each in made["set_aside"]:
            each["records"] = each.pop("rows")
        return made
