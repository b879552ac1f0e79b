"""Logs with calls that several servers had, as a router writes them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from rpcmq.errors import Outcome
from rpcmq.log_format import (
    MARK,
    NOT_REPORTED,
    RECORD,
    SEAL,
    SEALED,
    BlockKind,
    NameKind,
    file_name,
    framed,
    name_entry,
)
from rpcmq.wire import HEADER, Flag, Kind
from tests.latency.logs import ship
from tests.latency.spools import BOOT, head

#: Numbers of the names of servers and of what they raise.
_CALLER, _SERVERS, _ERRORS = 50, 100, 200
_METHODS = ("show", "list")
_TEXTS = ("", "differs", "differs: KeyError", "ValueError")


class Delivery(NamedTuple):
    """A record; times are seconds: since the router's start, and since the call came."""

    call: int
    kind: str
    took: float
    outcome: int = Outcome.OK
    handler_us: int = 1000
    error: str = ""
    method: str = "show"
    server: int = 0
    given_after: float = 0.001
    at: float = 1.0


def hedged_log(directory: Path, deliveries: Iterable[Delivery]) -> Path:
    """A log of one life of a router with these records, shipped."""
    records = [_packed(number, each) for number, each in enumerate(deliveries, 1)]
    names = [name_entry(1 + n, NameKind.TARGET, "", "catalogue", "", "", each) for n, each in enumerate(_METHODS)]
    names.append(name_entry(_CALLER, NameKind.CALLER, "api"))
    names += [name_entry(_SERVERS + n, NameKind.SERVER, f"node-{n}", f"node-{n}:a:1:b") for n in range(3)]
    names += [name_entry(_ERRORS + n, NameKind.ERROR, text) for n, text in enumerate(_TEXTS) if text]
    blocks = [
        (BlockKind.MARK, 1, MARK.pack(1002.0, len(records), 0)),
        (BlockKind.NAMES, len(names), b"".join(names)),
        (BlockKind.RECORDS, len(records), b"".join(records)),
    ]
    data = head() + b"".join(b"".join(framed(*each)) for each in blocks)
    data += b"".join(framed(BlockKind.SEAL, 1, SEAL.pack(len(records), 0, len(names), 0, True)))
    path = directory / "spool" / (file_name(7, BOOT, 1) + SEALED)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    ship(directory)
    return directory


def _packed(number: int, each: Delivery) -> bytes:
    kind = Kind.REQUEST if each.kind == "call" else Kind.HEDGE
    flags = Flag.HEDGED if each.kind == "hedge" else 0
    header = HEADER.pack(36, 1, kind, flags, 0, 0, 1, 0, NOT_REPORTED, 7, 99, each.call, 0, 0, 0)
    received = 1000.0 + each.at
    return RECORD.pack(
        header, number, received, received + each.given_after, received + each.took,
        1 + _METHODS.index(each.method), _CALLER, _SERVERS + each.server, 300, 200, each.handler_us, each.outcome, 0,
        _ERRORS + _TEXTS.index(each.error) if each.error else 0, bytes(16), 0, 0,
    )  # fmt: skip


def won_late(call: int, took: float = 0.06, first: float = 1.0, **more: object) -> list[Delivery]:
    """A call that the second server has answered, while the first one took longer."""
    loser = {"outcome": Outcome.CANCELLED, "server": 1} | more
    return [Delivery(call, "call", took, given_after=0.05), Delivery(call, "overtaken", first, **loser)]  # type: ignore[arg-type]


def lost(call: int, took: float = 0.06, **more: object) -> list[Delivery]:
    """A call that the first server has answered though a second one had it, too."""
    loser = {"outcome": Outcome.CANCELLED, "handler_us": NOT_REPORTED, "server": 2, "given_after": 0.05} | more
    return [Delivery(call, "call", took), Delivery(call, "hedge", took + 0.001, **loser)]  # type: ignore[arg-type]
