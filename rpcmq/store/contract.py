"""The contract of a store of queue items: changes that are durable together, and reading ahead.

An item is named by its lane and its number. A lane has the items of one queue and one priority, numbered 1, 2, 3, ...
as they were accepted. An item is ready, postponed (until a time), done or dead. A store is told changes
in batches, and a batch is durable, whole and synced, before :meth:`Store.apply` returns; it keeps no leases, and knows
nothing of routers and workers.

Times are milliseconds of the wall clock, for they outlast the process.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

__all__ = [
    "CLEAN",
    "KEPT_OVERHEAD",
    "NOTHING",
    "PERIODIC",
    "Bury",
    "Change",
    "Damaged",
    "Done",
    "Expire",
    "Forget",
    "Found",
    "Incoming",
    "Keep",
    "Lane",
    "Maker",
    "Move",
    "Note",
    "Position",
    "Postpone",
    "Put",
    "Recovered",
    "Refuse",
    "Release",
    "Revive",
    "Store",
    "StoreDamaged",
    "StoreError",
    "StoreFailed",
    "Stored",
    "Verdict",
]


class StoreError(Exception):
    """The store cannot be opened, or is none that this version can use. The text says why, and what to do."""


class StoreFailed(Exception):
    """The disk failed, or is full: whether the batch is stored is not known, and the store must be opened again."""


class StoreDamaged(StoreFailed):
    """The disk has something else than was written; for good, where that is so once the store was opened anew, too."""


class Lane(NamedTuple):
    """The items of one queue that have one priority."""

    queue: str
    #: 0 to 9; the higher goes first.
    priority: int


class Maker(NamedTuple):
    """The id of an item that its producer's client has made: the producer (63 bits), and a counter from 1 on."""

    producer: int
    counter: int


class Put(NamedTuple):
    """A new item, unless its id is known."""

    lane: Lane
    body: bytes
    #: The time at which it was put.
    at: int
    #: Not before this time; 0: at once.
    due: int = 0
    #: The id that the user gave; else :attr:`maker` names it.
    id: bytes = b""
    maker: Maker = Maker(0, 0)
    #: Of the body as the user knows it: another item with the same id must have the same.
    digest: bytes = b""
    #: The place of the :class:`Incoming` item that it is: it is taken away, and if it is there no more, nothing is put;
    #: nor if another item has its id, and then it stays. 0: it is none.
    incoming: int = 0
    #: While an item with the same unique key waits in the queue it is not put, and is answered as known. Its own key is
    #: taken until it is released. Empty: no matter.
    unique: bytes = b""


class Release(NamedTuple):
    """The item waits no more: another one may have its unique key, if it has one.

    Attributes:
        unique: its key; empty: it is not known, and is looked for.
    """

    lane: Lane
    number: int
    unique: bytes


class Keep(NamedTuple):
    """The result of an item, to be asked for until a time at the least."""

    lane: Lane
    number: int
    until: int
    value: bytes


class Expire(NamedTuple):
    """Results of a queue are forgotten that were kept until this time, or an earlier one."""

    queue: str
    until: int


class Done(NamedTuple):
    """The item has ended well, or is not wanted any more."""

    lane: Lane
    number: int
    #: Bytes of its body, as it was read: they are not read again to be counted.
    size: int = 0


class Postpone(NamedTuple):
    """The item is to be tried again, not before ``due``."""

    lane: Lane
    number: int
    due: int
    #: For the queue: attempts, and the reasons of their failures.
    state: bytes


class Bury(NamedTuple):
    """The item is dead since ``at``: it is kept for a person to look at."""

    lane: Lane
    number: int
    at: int
    state: bytes


class Revive(NamedTuple):
    """The dead item is put again, with a number of its own, and is postponed until ``due``. A damaged one stays."""

    lane: Lane
    number: int
    due: int
    state: bytes


class Forget(NamedTuple):
    """The dead item is not wanted any more."""

    lane: Lane
    number: int


class Move(NamedTuple):
    """The item, which has not ended or is dead, is put into another lane, with a number of its own.

    Its id is known where it was put, and not looked for in the other queue. A damaged one stays where it is.
    """

    lane: Lane
    number: int
    to: Lane
    #: Not before this time; 0: at once, and then the state is lost.
    due: int
    state: bytes


class Refuse(NamedTuple):
    """The incoming item at ``place`` cannot be put: it is dead since ``at``."""

    lane: Lane
    place: int
    at: int
    body: bytes
    state: bytes


class Note(NamedTuple):
    """A value to remember by its name; an empty one is forgotten."""

    name: str
    value: bytes


Change = Put | Release | Keep | Expire | Done | Postpone | Bury | Revive | Forget | Move | Refuse | Note


class Verdict(NamedTuple):
    """The answer to a change.

    Attributes:
        number: of the item that was put, revived, moved, forgotten or refused; 0: there was none. Of results
            that are forgotten: their bytes.
        is_known: the item had been put before, another owner has put it, or another item has its unique key.
        is_other: an item with this id has another content, and nothing was put.
    """

    number: int = 0
    is_known: bool = False
    is_other: bool = False


NOTHING = Verdict()
#: The name of a note that the last life has left if it has ended in order: no worker has an item.
CLEAN = "clean"
#: The names of the notes of periodic items begin with it: an owner that has one has something to do.
PERIODIC = "periodic "


class Stored(NamedTuple):
    """An item as it was read."""

    position: Position
    lane: Lane
    number: int
    #: The time at which it was put.
    at: int
    id: bytes
    maker: Maker
    body: bytes
    #: As it was postponed or buried with; empty: it never was.
    state: bytes


class Damaged(NamedTuple):
    """An item whose row is not what was written: it must not be used."""

    position: Position
    lane: Lane
    number: int


class Found(NamedTuple):
    """An item that was looked for.

    Attributes:
        state: ``ready``, ``postponed``, ``dead``.
    """

    state: str
    item: Stored | Damaged


class Incoming(NamedTuple):
    """An item that a user has put in a transaction of his own, where the store is, and that no owner has put yet."""

    #: Among the incoming ones; from 1 on.
    place: int
    lane: Lane
    #: The time at which it was put there.
    at: int
    due: int
    #: After this time nobody wants it; 0: for ever.
    expires: int
    id: bytes
    maker: Maker
    digest: bytes
    #: Of its items runs one at a time; empty: no matter.
    series: bytes
    message: bytes
    #: While an item with the same unique key waits it is not put, and is taken away; empty: no matter.
    unique: bytes = b""
    #: The time at which it was read, by the clock of all its times; 0: that is its reader's own.
    now: int = 0


class Position(NamedTuple):
    """A place among items that are read in turn, so that none is read twice."""

    #: The time until which the item is postponed; of a dead one, at which it died.
    due: int = 0
    #: As the store names it.
    place: int = 0
    number: int = 0


@dataclass(frozen=True)
class Recovered:
    """The content of a store when it was opened.

    Attributes:
        epoch: grows with each opening: an earlier one had a lower epoch.
        ready: the number of items that are ready, of each lane that was ever used.
        postponed: the number of those that are postponed.
        dead: the number of dead items of each queue.
        sizes: the bytes of the bodies of each queue, the dead ones included.
        results: the bytes of the results of each queue that has any, with :data:`KEPT_OVERHEAD` for each.
        notes: what was noted.
        has_incoming: there may be incoming items, now or later.
        clock: what the clock of the store's machine showed (milliseconds); 0: it is that of whoever opened it.
    """

    epoch: int
    ready: dict[Lane, int]
    postponed: dict[Lane, int]
    dead: dict[str, int]
    sizes: dict[str, int]
    results: dict[str, int]
    notes: dict[str, bytes]
    has_incoming: bool = False
    clock: int = field(default=0, compare=False)


#: Bytes that a result takes beside its value.
KEPT_OVERHEAD = 64


class Store(Protocol):
    """Keeps items. Used by one thread, which may wait for the disk."""

    @property
    def recovered(self) -> Recovered:
        """The content at the opening."""

    def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        """Make ``changes`` durable, all or none, and return once they are.

        No change may be about an item that is put in the same batch.

        All of them may come again, after a failure for instance: an item that is known is not put twice, and a change
        to one that has ended, or is not there, does nothing. Only an item that was refused for a unique key is put
        then, if something later in the batch has let go of that.

        Returns:
            The answer to each.

        Raises:
            StoreFailed: the batch is stored, or is not. The store must be opened again, and be told the same once more.
        """

    def read(self, lane: Lane, after: int, most: int, most_bytes: int) -> list[Stored | Damaged]:
        """Read the items of ``lane`` that are ready and have a greater number than ``after``, in their order.

        Args:
            most: items.
            most_bytes: of bodies; one item is read in any case.
        """

    def read_due(self, lane: Lane, now: int, after: Position, most: int, most_bytes: int) -> list[Stored | Damaged]:
        """Read the items of ``lane`` that were postponed until ``now`` at the latest, and come after ``after``.

        They stay postponed: whoever runs one says later that it is done or postponed again.
        """

    def next_due(self, lane: Lane, after: Position) -> int:
        """The time of the next postponed item of ``lane`` after ``after``; 0: there is none."""

    def read_dead(self, queue: str, after: Position, most: int, most_bytes: int) -> list[Stored | Damaged]:
        """Read dead items of ``queue`` in the order in which they died; the time of it is that of the position."""

    def read_incoming(self, most: int, most_bytes: int) -> list[Incoming]:
        """Read incoming items, the earlier ones first. They stay there until they are put or refused.

        Args:
            most: items.
            most_bytes: of messages; one item is read in any case.
        """

    def find(self, lane: Lane, number: int) -> Found | None:
        """Look for one item; None: it has ended, or there was never one."""

    def result(self, lane: Lane, number: int) -> bytes:
        """The result that is kept of an item; empty: none is."""

    def known(self, puts: Sequence[Put]) -> list[Verdict]:
        """Say which items were put before, by their ids; nothing is put."""

    def recount(self) -> Recovered:
        """The content now, without the notes."""

    def close(self) -> None:
        """Close it in order."""
