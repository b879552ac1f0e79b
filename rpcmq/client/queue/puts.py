"""Items on their way into a queue: encoded, put at one owner, and put there again until that owner has answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from secrets import randbits
from time import monotonic
from typing import Any

from rpcmq.client.arguments import check_seconds, request_body
from rpcmq.client.queue.absence import absent
from rpcmq.client.queue.content_digest import content_digest
from rpcmq.client.queue.places import ItemPlace
from rpcmq.client.queue.protocol import PRIORITIES, VERSION, PutAnswer, Record, all_queues, at_owner, check_queue
from rpcmq.client.queue.records import pack_records
from rpcmq.client.queue.shared_offers import SharedOffers
from rpcmq.client.queue.steps import Ask, Pause, Steps, growing_pauses
from rpcmq.errors import (
    AccessDenied,
    CallError,
    NoConsumer,
    Overloaded,
    PutRefused,
    PutUnknown,
    RemoteError,
    RouterUnreachable,
    UsageError,
)
from rpcmq.payload import Codec
from rpcmq.payload.bounded_text import short_repr
from rpcmq.transport.shell import ClientShell

__all__ = ["Producer", "PutOptions", "record_of"]

_LONGEST_ID = 255
#: The longest that it is waited for the reason of a put that is given up (seconds).
_LAST = 0.5
#: A put that takes longer has its time taken off the delay and the expiry of its items, of which at least this is left
#: (seconds).
_NOTABLE, _LEAST = 0.1, 0.001


@dataclass(slots=True)
class PutOptions:
    """The options of an item, which nobody changes; see :meth:`rpcmq.Client.put`."""

    id: str | None = None
    delay: float = 0.0
    priority: int = 0
    expires: float = 0.0
    key: str | None = None
    keep_result: float = 0.0
    unique: str | None = None

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            UsageError: one of them cannot be.
        """
        if type(self.priority) is not int or self.priority not in PRIORITIES:
            raise UsageError(f"priority must be an integer from 0 to 9, not {short_repr(self.priority)}")
        for name in ("delay", "expires", "keep_result"):
            value = getattr(self, name)
            if value != 0 or value is False:
                check_seconds(name, value)
        if self.id is None and self.key is None and self.unique is None:
            return
        for name in ("id", "key", "unique"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, str) and 0 < _size(value) <= _LONGEST_ID):
                raise UsageError(f"{name} must be a text of 1 to {_LONGEST_ID} bytes, not {short_repr(value)}")

    def with_id(self, id: str) -> PutOptions:
        """These options for the item ``id``."""
        return replace(self, id=id)

    def with_unique(self, unique: str | None) -> PutOptions:
        """These options for an item with that unique key."""
        return replace(self, unique=unique)


class Producer:
    """Puts the items of one client.

    Args:
        codec: encodes what is put.
        shell: where those who put wait.
    """

    def __init__(self, codec: Codec, shell: ClientShell) -> None:
        self._codec = codec
        self._shell = shell
        # Tasks and threads wait elsewhere than in that loop.
        self._shared = SharedOffers(shell.event) if shell.outside is None else None
        self._owners: dict[str, str] = {}
        # Of this process alone: a child of a fork makes a producer of its own.
        self._number = randbits(63) or 1
        #: One step of the interpreter, so that threads need no lock.
        self._count = count(1).__next__

    def record(self, ctx: Any, msg: Mapping[str, Any], options: PutOptions) -> Record:
        """The item as it travels.

        Raises:
            PayloadError, UsageError: it cannot be encoded, or is no message.
        """
        return record_of(self._codec, ctx, msg, options, self._count)

    def put(self, queue: str, records: Sequence[Record], seconds: float) -> Steps[list[ItemPlace]]:
        """Put ``records``, all or none, and return once they are on disk.

        Args:
            seconds: to try it for.

        Raises:
            PutRefused: none of them was put.
            PutUnknown: they may have been put.
        """
        check_queue(queue)
        begun = monotonic()
        deadline = begun + seconds
        attempt = _Attempt(self, queue, records, begun, deadline)
        pauses = growing_pauses()
        while (receipts := (yield from attempt.make())) is None:
            left = deadline - monotonic()
            if left <= 0:
                yield from attempt.give_up(seconds)
            yield Pause(min(next(pauses), left))
        return receipts

    def owner(self, queue: str, seconds: float) -> Steps[str]:
        """The owner at which this client puts the items of ``queue``."""
        owner = self._owners.get(queue)
        if owner is None:
            owner = self._owners[queue] = str((yield Ask(all_queues(), _opening(queue, ""), seconds, True)))
        return owner

    def has_owner(self, queue: str) -> bool:
        """Return whether :meth:`owner` knows without asking."""
        return queue in self._owners

    def open_at(self, owner: str, queue: str, seconds: float) -> Steps[None]:
        """Have ``owner`` serve the queue, which its next life does not know if nothing of it came to the disk."""
        yield Ask(all_queues(owner), _opening(queue, owner), seconds, True)

    def waits_for(self, owner: str) -> Steps[str]:
        """The reason for which the store of ``owner`` answers nothing; empty: there is none, or nobody says it."""
        try:
            return str((yield Ask(all_queues(owner), {"method": "waits_for", "args": {}}, _LAST, True)))
        except (CallError, RemoteError, RouterUnreachable):
            return ""  # of another version, or away: what is known without it is told

    def forget_owner(self, queue: str) -> None:
        """Ask for an owner again at the next put."""
        self._owners.pop(queue, None)

    def offer(self, owner: str, queue: str, records: Sequence[Record], seconds: float) -> Steps[PutAnswer]:
        """Offer ``records`` to ``owner`` once."""
        send = partial(self._send, owner, queue)
        if self._shared is None or len(records) != 1 or not self._shell.is_current:
            return (yield from send(records, seconds))
        return (yield from self._shared.offer(queue, owner, records[0], seconds, send))

    def _send(self, owner: str, queue: str, records: Sequence[Record], seconds: float) -> Steps[PutAnswer]:
        args = {"producer": self._number, "records": pack_records(records), "version": VERSION}
        message = {"method": "put", "args": args}
        return PutAnswer.of((yield Ask(at_owner(queue, owner), message, seconds, True)))

    def shown_id(self, record: Record) -> str:
        """The id of an item as text."""
        return record.id.decode() if record.id else f"{self._number:x}-{record.counter}"


class _Attempt:
    """The attempts to put some items."""

    def __init__(
        self, producer: Producer, queue: str, records: Sequence[Record], begun: float, deadline: float
    ) -> None:
        self._producer = producer
        self._queue, self._records, self._begun, self._deadline = queue, records, begun, deadline
        #: The owner who may have put them.
        self._asked = ""
        self._reason: Exception | None = None

    def make(self) -> Steps[list[ItemPlace] | None]:
        """Try it once; None: it is to be tried again."""
        producer, queue = self._producer, self._queue
        try:
            owner = self._asked or (yield from producer.owner(queue, self._left()))
            if self._asked and isinstance(self._reason, NoConsumer):
                yield from producer.open_at(owner, queue, self._left())
        except (CallError, RouterUnreachable) as error:
            self._failed(error)
            if not self._asked and isinstance(error, CallError):
                self._refuse_if_final(error)
            return None
        except RemoteError as error:
            if self._asked:
                self._reason = error
                return None
            raise PutRefused(f"queue {queue!r} cannot be opened: {error.value}") from error
        try:
            answer = yield from producer.offer(owner, queue, self._aged(), self._left())
        except (CallError, RouterUnreachable) as error:
            self._failed(error)
            if not _was_not_begun(error):
                # Only this owner can tell whether it has them.
                self._asked = owner
            elif not self._asked:
                producer.forget_owner(queue)
            return None
        if answer.again:
            self._failed(Overloaded(f"{owner}: {answer.refusal}"))
            return None
        return self._receipts(owner, answer)

    def _aged(self) -> Sequence[Record]:
        """The items, with what is left of their delay and expiry: their put may have waited for a queue server."""
        age = monotonic() - self._begun
        return self._records if age < _NOTABLE else [_aged(record, age) for record in self._records]

    def _failed(self, error: CallError | RouterUnreachable) -> None:
        if isinstance(error, AccessDenied) and not self._asked:
            raise error
        self._reason = error

    def _refuse_if_final(self, error: CallError) -> None:
        absence = absent(error)
        if absence is not None and absence.is_final:
            raise PutRefused(f"queue {self._queue!r}: nothing was put: {absence.text()}") from error

    def _receipts(self, owner: str, answer: PutAnswer) -> list[ItemPlace]:
        if answer.refusal and answer.is_blind and self._asked:
            raise PutUnknown(f"queue {self._queue!r}: {owner} may have been given the items before: {answer.refusal}")
        if answer.refusal:
            raise PutRefused(f"queue {self._queue!r} at {owner}: {answer.refusal}")
        producer, queue = self._producer, self._queue
        if answer.others:
            ids = ", ".join(short_repr(producer.shown_id(self._records[at])) for at in answer.others[:5])
            count = len(answer.numbers) - len(answer.others)
            others = f"; {count} others were put" if len(self._records) > 1 else ""
            raise PutRefused(
                f"queue {queue!r} at {owner} has items of other content with the id {ids}: choose another id{others}"
            )
        return [
            ItemPlace(queue, owner, producer.shown_id(record), record.priority, number)
            for record, number in zip(self._records, answer.numbers, strict=True)
        ]

    def give_up(self, seconds: float) -> Steps[None]:
        """Raise: the time is over. Whoever may have the items is asked what he waits for.

        Raises:
            PutRefused, PutUnknown: it was not put; it may have been.
        """
        if not self._asked and isinstance(self._reason, RouterUnreachable):
            raise self._reason
        if not self._asked:
            raise PutRefused(
                f"queue {self._queue!r}: nothing was put within {seconds:g} s: {self._why()}"
            ) from self._reason
        why = (yield from self._producer.waits_for(self._asked)) or self._why()
        raise PutUnknown(
            f"queue {self._queue!r}: {self._asked} has not said within {seconds:g} s whether it has the "
            f"{len(self._records)} item(s): {why}. Put again with the same id, nothing is put twice"
        ) from self._reason

    def _why(self) -> str:
        absence = absent(self._reason) if isinstance(self._reason, CallError) else None
        return absence.text(self._asked) if absence is not None else str(self._reason)

    def _left(self) -> float:
        return max(0.001, self._deadline - monotonic())


def record_of(
    codec: Codec, ctx: Any, msg: Mapping[str, Any], options: PutOptions, count: Callable[[], int] = int
) -> Record:
    """An item as it travels.

    Args:
        count: the next number of an item to which the user gives no id, called once that is encoded; else it has none.

    Raises:
        PayloadError, UsageError: it cannot be encoded, or is no message.
    """
    method, body = request_body(ctx, msg)
    _check_names(body["args"])
    format, encoded = codec.encode(body)
    id, digest = b"", b""
    if options.id is not None:
        id, digest = options.id.encode(), content_digest(method, body["args"])
    key = b"" if options.key is None else options.key.encode()
    return Record(
        id, 0 if id else count(), digest, options.priority, options.delay, options.expires, key, method.decode(),
        int(format), encoded, options.keep_result, b"" if options.unique is None else options.unique.encode(),
    )  # fmt: skip


def _check_names(args: Mapping[Any, Any]) -> None:
    """Refuse arguments that no method can be called with: nobody waits for the failures of an item."""
    try:
        "".join(args)
    except TypeError:
        wrong = next(name for name in args if not isinstance(name, str))
        raise UsageError(f"args must be a mapping of names to values, and {short_repr(wrong)} is no name") from None


def _aged(record: Record, seconds: float) -> Record:
    if not record.delay and not record.expires:
        return record
    left = [time and max(_LEAST, time - seconds) for time in (record.delay, record.expires)]
    return record._replace(delay=left[0], expires=left[1])


def _opening(queue: str, owner: str) -> Mapping[str, Any]:
    """The message that opens ``queue``: at ``owner`` alone, or, where that is empty, where the nearest owner says."""
    return {"method": "open", "args": {"queue": queue, "version": VERSION, **({"owner": owner} if owner else {})}}


def _size(text: str) -> int:
    """The bytes of ``text``; 0: it cannot be encoded."""
    try:
        return len(text.encode())
    except UnicodeEncodeError:
        return 0


def _was_not_begun(error: CallError | RouterUnreachable) -> bool:
    if isinstance(error, (NoConsumer, Overloaded, RouterUnreachable)):
        return True
    return error.details.get("started") == "no"
