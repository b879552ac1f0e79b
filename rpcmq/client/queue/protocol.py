"""The messages between those who put items, queue servers and workers: ordinary calls, in exchanges of their own.

The queue server is a service. It serves each queue's topic in the exchange :data:`QUEUES` as the server of the name of
its router, the queue's *owner*; and it calls the workers of a queue, who serve its topic in the exchange
:data:`WORKERS`. So the rights of calls are those of items, and a queue cannot be confused with any topic of a program.

**Versions.** A client names the version of these messages that it speaks in ``open`` and ``put``, and a queue server
refuses one that it does not. Within a version members are only added at the end, with a default: who does not know them
leaves them out. Whatever else changes is another version.

Operators call the topics :data:`LOOK` and :data:`CHANGE` in the exchange :data:`OPERATORS`, each queue server under the
name of its router: so the right to look, and the right to change something, are none of those to put and to work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

from rpcmq.errors import UsageError
from rpcmq.payload.bounded_text import short_repr
from rpcmq.wire import Address

__all__ = [
    "CHANGE",
    "CLAIMS",
    "DONE",
    "FAILED",
    "FIRST_MARK",
    "LOOK",
    "MOST_ITEMS",
    "MOST_RESULT_BYTES",
    "NO_RESULT",
    "OPERATORS",
    "PERIODIC",
    "PRIORITIES",
    "QUEUES",
    "REFUSED",
    "REJECTED",
    "SETTINGS",
    "VERSION",
    "WORKERS",
    "Crowded",
    "PutAnswer",
    "Record",
    "WorkAnswer",
    "WorkOrder",
    "all_queues",
    "at_operators",
    "at_owner",
    "check_queue",
    "to_workers",
    "version_refusal",
]

#: The version of these messages; that of a client that names none is 1.
VERSION = 1

#: The exchanges of puts and of work.
QUEUES, WORKERS = "rpcmq.queue", "rpcmq.work"
#: The topic of every queue server, whatever queues it has.
_ALL = "rpcmq.queues"
#: The exchange of operators, and its two topics; in others queue servers agree on the settings of queues, on who puts
#: which periodic item, and on whose an owner's name is.
CLAIMS = "claims"
OPERATORS, LOOK, CHANGE, SETTINGS, PERIODIC = "rpcmq.queue.admin", "look", "change", "settings", "periodic"
#: The ends of an attempt, as a worker says it.
DONE, FAILED, REJECTED = "done", "failed", "rejected"
#: Items of one put, at the most.
MOST_ITEMS = 10_000
#: The mark at which an operator's change of all dead items begins, which is made part by part.
FIRST_MARK = (0, 0, 0, 0)
#: Bytes of a result, at the most. Routers pass on no answer of a worker that is much larger.
MOST_RESULT_BYTES = 1 << 20
#: In place of the format of a result: the reason, as text, for which there is none.
NO_RESULT = 255
#: The state of an item about which too many ask.
REFUSED = "refused"
#: Priorities of items: the higher goes first.
PRIORITIES = range(10)
_LONGEST_NAME = 200


class Crowded(Exception):
    """Too much is asked of a queue server, by this caller above all: nothing was begun, and it is to be asked again."""


class Record(NamedTuple):
    """An item that is to be put.

    Attributes:
        id: that the user gave; empty: the item is known by its producer and ``counter``.
        counter: of the producer, from 1 on.
        digest: of the item as its user knows it, where it has an id.
        priority: 0 to 9.
        delay, expires: seconds from now; 0: none.
        key: of its items runs one at a time; empty: no matter.
        method: that the worker runs.
        format, body: context and arguments, encoded.
        keep_result: seconds for which the result is kept; 0: it is not.
        unique: while an item with the same one waits, this one is not put; empty: no matter.
    """

    id: bytes
    counter: int
    digest: bytes
    priority: int
    delay: float
    expires: float
    key: bytes
    method: str
    format: int
    body: bytes
    keep_result: float = 0.0
    unique: bytes = b""


class PutAnswer(NamedTuple):
    """The answer to ``put``. It travels as a list: a pickle of a long tuple is looked through step by step.

    Attributes:
        refusal: the reason for which nothing was put; empty: everything was.
        numbers: of the items, each in the lane of its queue and priority; 0: it was put before.
        others: places of records whose id another item has, which were not put.
        again: nothing was begun, because too much waits: put again later.
        is_blind: the refusal is given without a look whether they were put before.
    """

    refusal: str
    numbers: list[int]
    others: list[int]
    again: bool = False
    is_blind: bool = False

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """Read it, without what a later version has added."""
        return cls(*values[: len(cls._fields)])


class WorkOrder(NamedTuple):
    """An item as a worker is given it. It travels as a list, too.

    Attributes:
        queue, owner: of the item.
        id: as text: the user's, or ``producer-counter``.
        attempt: from 1 on.
        fence: (epoch, counter), which only grows.
        age: seconds since it was put.
        lease: seconds for which the worker may go on without hearing from its router.
        method, format, body: as they were put.
        tell: report that it was begun.
        wants_result: the result is to be sent.
        is_last: if it fails, it is dead, as the settings were when it was given.
        unwanted_left: nobody wants it any more where the call has no more than so many seconds left, which count also
            while it waits on its way; 0: it is wanted for as long as that takes.
        sent: of an item that expires, when it was sent, by the queue server's own clock (monotonic seconds); 0: it is
            not told.
    """

    queue: str
    owner: str
    id: str
    attempt: int
    fence: tuple[int, int]
    age: float
    lease: float
    method: str
    format: int
    body: bytes
    tell: bool
    wants_result: bool
    is_last: bool = False
    unwanted_left: float = 0.0
    sent: float = 0.0

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """Read it, without what a later version has added, and with the defaults of what an earlier one lacks."""
        epoch, counter = values[4]
        known = [*values[:4], (epoch, counter), *values[5 : len(cls._fields)]]
        return cls(*known)


class WorkAnswer(NamedTuple):
    """The end of an attempt. It travels as a list, too.

    Attributes:
        outcome: :data:`DONE`, :data:`FAILED` or :data:`REJECTED`.
        text: the reason, with a traceback where there is one.
        again: seconds until it is to be tried again, or offered again; None: as the queue's back-off says, or a second.
        format, result: of one that is done and whose result is wanted.
        seconds: that the worker has worked at it.
        worker: the identity of its process.
        is_begun: False: the worker has not begun it, because its lease was over, or nobody wants it any more; of what
            is above only ``text`` and ``again`` count.
    """

    outcome: str
    text: str = ""
    again: float | None = None
    format: int = 0
    result: bytes = b""
    seconds: float = 0.0
    worker: str = ""
    is_begun: bool = True

    @classmethod
    def of(cls, values: Sequence[Any]) -> Self:
        """Read it, without what a later version has added."""
        return cls(*values[: len(cls._fields)])


def all_queues(owner: str = "") -> Address:
    """The address of any queue server, or of that of ``owner``."""
    return Address(_ALL, owner, QUEUES)


def at_owner(queue: str, owner: str) -> Address:
    """The address of ``queue`` at its ``owner``."""
    return Address(queue, owner, QUEUES)


def at_operators(topic: str, owner: str) -> Address:
    """The address for operators, :data:`LOOK` or :data:`CHANGE`, of the queue server of ``owner``."""
    return Address(topic, owner, OPERATORS)


def to_workers(queue: str) -> Address:
    """The address of the workers of ``queue``."""
    return Address(queue, "", WORKERS)


def version_refusal(owner: str, version: object) -> str:
    """The reason for which a client that speaks ``version`` cannot put at ``owner``, which runs this; empty: it can."""
    if version == VERSION:
        return ""
    older = "this client" if type(version) is int and version < VERSION else f"the queue server of {owner}"
    return (
        f"the queue server of {owner} speaks version {VERSION} of the messages of queues, and this client "
        f"{short_repr(version)}: update rpcmq for {older}"
    )


def check_queue(queue: object) -> str:
    """``queue`` as the name of one.

    Raises:
        UsageError: it is none.
    """
    if isinstance(queue, str) and queue and not queue.isprintable():
        raise UsageError(f"the name {short_repr(queue)} of a queue has a control character")
    if queue == _ALL:
        raise UsageError(f"a queue cannot be named {_ALL!r}: by that name all queues are found")
    if not isinstance(queue, str) or not queue or len(queue.encode()) > _LONGEST_NAME:
        raise UsageError(f"a queue's name is a text of 1 to {_LONGEST_NAME} bytes, not {short_repr(queue)}")
    return queue
