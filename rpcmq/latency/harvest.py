"""Read one spool file as far as it can be trusted."""

from __future__ import annotations

from dataclasses import dataclass, field

from rpcmq.log_format import (
    MARK,
    RECORD_BYTES,
    SEAL,
    Block,
    BlockKind,
    Head,
    Mark,
    Name,
    Problem,
    Seal,
    SpoolError,
    blocks,
    names_in,
    read_head,
)

__all__ = ["Harvest", "harvest", "readable_rows"]


@dataclass
class Harvest:
    """The valid blocks of a file, up to the first damaged one.

    Attributes:
        names: what the numbers in its records stand for.
        records, in_flight: packed as ``RECORD``, one piece a block.
        marks: one for each write.
        seal: None: the file was cut off.
        torn_bytes: what comes after that.
    """

    head: Head
    names: dict[int, Name] = field(default_factory=dict)
    records: list[memoryview] = field(default_factory=list)
    in_flight: list[memoryview] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    seal: Seal | None = None
    torn_bytes: int = 0

    @property
    def mark(self) -> Mark | None:
        """The last one; None: the file has none."""
        return self.marks[-1] if self.marks else None

    @property
    def rate(self) -> float:
        """Messages a second that the router received when it last wrote; 0: the file tells of less than a second."""
        marks = [(self.head.monotonic, 0), *((each.monotonic, each.last_seq) for each in self.marks)]
        until, last = marks[-1]
        # The numbers assigned before the file began are unknown.
        earlier = [(at, seq) for at, seq in marks[1:] if at <= until - 1]
        if not earlier and self.head.segment == 1:
            earlier = [(at, seq) for at, seq in marks[:1] if at <= until - 1]
        return (last - earlier[-1][1]) / (until - earlier[-1][0]) if earlier else 0.0

    @property
    def rows(self) -> int:
        """Number of records."""
        return sum(map(len, self.records)) // RECORD_BYTES[self.head.version]


def harvest(data: bytes, cut_off: bool) -> Harvest:
    """Read a spool file.

    Args:
        cut_off: its router died while it wrote this file. What is wrong at its end is only what was torn.

    Raises:
        SpoolError: it is not as it should be.
    """
    found = Harvest(read_head(data))
    try:
        for block in blocks(data, found.head):
            _take(found, block)
    except SpoolError as error:
        if not cut_off:
            raise
        found.torn_bytes = len(data) - error.offset
    if found.seal is None and not cut_off:
        raise SpoolError(Problem.TRUNCATED, "ends without a seal", len(data))
    return found


def _take(found: Harvest, block: Block) -> None:
    match block.kind:
        case BlockKind.NAMES:
            found.names |= names_in(block)
        case BlockKind.RECORDS:
            found.records.append(block.body)
        case BlockKind.IN_FLIGHT:
            found.in_flight.append(block.body)
        case BlockKind.MARK:
            found.marks.append(Mark._make(MARK.unpack(block.body)))
        case BlockKind.SEAL:
            found.seal = Seal._make(SEAL.unpack(block.body))
            if found.seal.records != found.rows:
                text = f"seal of {found.seal.records} records, there are {found.rows}"
                raise SpoolError(Problem.CORRUPT, text, block.offset)


def readable_rows(data: bytes) -> int:
    """Records in a file that is damaged, up to where it is."""
    rows = 0
    try:
        for block in blocks(data, read_head(data)):
            rows += block.entries if block.kind is BlockKind.RECORDS else 0
    except SpoolError:
        pass  # the rows before the damage count
    return rows
