"""Spool files as a router writes them, with any content."""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from rpcmq.errors import Outcome
from rpcmq.log_format import (
    MARK,
    NOT_REPORTED,
    PART,
    RECORD,
    SEAL,
    SEALED,
    VERSION,
    BlockKind,
    Head,
    NameKind,
    file_name,
    framed,
    name_entry,
    pack_head,
)
from rpcmq.wire import HEADER, TRIED_SHIFT, Flag, Kind

BOOT = 1_700_000_000_000
#: Records of a block.
BLOCK = 100
TOPICS, METHODS, SERVERS, ERRORS = 5, 7, 4, 3
#: The server that is linked to another router.
ELSEWHERE = 3


class Sent(NamedTuple):
    """The parts of a record; seconds after the router's start."""

    seq: int
    at: float = 1.0
    queued: float = 0.001
    served: float = 0.010
    outcome: int = Outcome.OK
    #: Microseconds on the clock of the service; None: as it is with clocks that are set apart, one for each server.
    clock: int | None = None


def many(first: int, count: int, at: float = 1.0) -> list[Sent]:
    """Records that are all different, the same ones each time."""
    chance = random.Random(first)
    return [
        Sent(seq, at + seq * 1e-3, chance.expovariate(1e3), chance.expovariate(50), chance.choice([0, 0, 0, 1, 2, 77]))
        for seq in range(first, first + count)
    ]


def packed(sent: Sent) -> bytes:
    seq, at, queued, served, outcome, clock = sent
    item = Flag.NOT_AGAIN | seq % 16 << TRIED_SHIFT if seq % 2 else 0
    kind, flags = [(Kind.REQUEST, item), (Kind.CAST, 0), (Kind.CAST, Flag.FANOUT)][seq % 3]
    ttl_ms = 5000 if seq % 5 else NOT_REPORTED
    header = HEADER.pack(36, 1, kind, flags, seq % 2, 0, 1 + seq % 3, 0, ttl_ms, 7, 99, seq, 0, 0, 0)
    received = 1000.0 + at
    nobody = seq % 11 == 0
    if clock is None:
        # Some do not say it, and the way back is a fifth of what the handler leaves.
        shown = received + queued + served * 0.98 + 3600 * (seq % SERVERS)
        clock = max(0, int(shown * 1e6)) if seq % 7 else 0
    home_us = 0
    if seq % SERVERS == ELSEWHERE:
        # A service is not heard by another router than its own, which says how long it had the request, or does not.
        clock, home_us = 0, int(served * 9.5e5) + 1 if seq % 3 else 0
    return RECORD.pack(
        header, seq, received, received + queued, received + queued + served,
        1 + seq % (TOPICS * METHODS), 100 if seq % 13 else 0, 0 if nobody else 200 + seq % SERVERS,
        300 + seq, 0 if nobody else 200, int(served * 9e5) if seq % 4 else NOT_REPORTED, outcome, seq % 3,
        300 + seq % ERRORS if outcome == Outcome.REMOTE_ERROR else 0,
        seq.to_bytes(16, "little") if seq % 2 else bytes(16), clock, home_us,
    )  # fmt: skip


def names() -> list[bytes]:
    made = [
        name_entry(
            1 + number, NameKind.TARGET, "cloud", f"topic-{number % TOPICS}", "", "", f"method_{number // TOPICS}"
        )
        for number in range(TOPICS * METHODS)
    ]
    made.append(name_entry(100, NameKind.CALLER, "api-1"))
    made += [name_entry(300 + n, NameKind.ERROR, f"Error{n}") for n in range(ERRORS)]
    for n in range(SERVERS):
        texts = f"node-{n}", f"node-{n}:nova:4711:abcd"
        is_here = n != ELSEWHERE
        made.append(
            name_entry(200 + n, NameKind.SERVER, *texts)
            if is_here
            else name_entry(200 + n, NameKind.SERVER_ELSEWHERE, *texts, "r2")
        )
    return made


def head(segment: int = 1, boot: int = BOOT, router: str = "r1", router_id: int = 7, version: int = VERSION) -> bytes:
    return pack_head(Head(version, 0, router_id, segment, boot, 0, 1000.0, boot * 1000, router))


def blocks(records: Sequence[Sent] = (), in_flight: Sequence[Sent] = (), given: int | None = None) -> Iterator[bytes]:
    entries = names()
    yield b"".join(framed(BlockKind.NAMES, len(entries), b"".join(entries)))
    last = max((each.seq for each in [*records, *in_flight]), default=0) if given is None else given
    for start in range(0, max(len(records), 1), BLOCK):
        yield b"".join(framed(BlockKind.MARK, 1, MARK.pack(1002.0, last, len(in_flight))))
        some = records[start : start + BLOCK]
        if some:
            yield b"".join(framed(BlockKind.RECORDS, len(some), b"".join(map(packed, some))))
    if in_flight:
        yield b"".join(framed(BlockKind.IN_FLIGHT, len(in_flight), b"".join(map(packed, in_flight))))


def seal(records: int, in_flight: int = 0, dropped: int = 0, final: bool = False) -> bytes:
    return b"".join(framed(BlockKind.SEAL, 1, SEAL.pack(records, in_flight, len(names()), dropped, final)))


def spooled(
    directory: Path,
    records: Sequence[Sent] = (),
    in_flight: Sequence[Sent] = (),
    *,
    segment: int = 1,
    boot: int = BOOT,
    router: str = "r1",
    router_id: int = 7,
    given: int | None = None,
    dropped: int = 0,
    final: bool = False,
    cut: int | None = None,
) -> Path:
    """A file in the spool of ``directory``: sealed; or, with ``cut``, left after so many of its bytes."""
    data = head(segment, boot, router, router_id) + b"".join(blocks(records, in_flight, given))
    ending = SEALED
    if cut is None:
        data += seal(len(records), len(in_flight), dropped, final)
    else:
        ending = PART
        data = data[:cut]
    path = directory / "spool" / (file_name(router_id, boot, segment) + ending)
    path.parent.mkdir(parents=True, exist_ok=True)
    # Whole at once, as a router's file is: a shipper may be running.
    whole = directory / f"{path.name}.whole"
    whole.write_bytes(data)
    os.replace(whole, path)
    return path


@contextmanager
def held(path: Path) -> Iterator[None]:
    """The router that writes ``path`` is alive."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def seqs(records: Iterable[Sent]) -> list[int]:
    return [each.seq for each in records]
