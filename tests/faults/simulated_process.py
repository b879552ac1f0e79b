"""A process of the simulation: what :class:`rpcmq.client.process.Process` does, without sockets and greenlets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import partial
from random import Random
from typing import Any, Protocol

from rpcmq.core.process.call import Call
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.casts import Casts
from rpcmq.core.process.task import Registration, Task, free_tag
from rpcmq.core.process.task_table import TaskTable
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
from rpcmq.drill.history import What
from rpcmq.errors import CallError, Outcome
from rpcmq.testing.endpoint import Endpoint
from rpcmq.testing.virtual_time import VirtualTime
from rpcmq.wire import NO_TTL, Address, Flag, Kind, pack, payload_of
from rpcmq.wire.bodies import DeclareBody, HelloBody
from rpcmq.wire.hedge import HedgeTerms
from tests.faults.plan import Operation
from tests.faults.simulated_streams import read_items, stream_items

__all__ = ["OUTCOMES", "Seen", "SimulatedProcess", "id_of"]

#: An attempt to connect may take so long (seconds).
_CONNECT_SECONDS = 5.0
_RECONNECT_MAX = 2.0
_TOPICS = ("compute", "network")
OUTCOMES = {int(outcome): outcome.name.lower() for outcome in Outcome}
_ANSWER = b"answer to "


class Seen(StrEnum):
    """Kinds of events that only a simulation writes down. In brackets: the fields."""

    #: A caller has read an item of a stream [number; of: the stream that it says it is of].
    ITEM = "item"
    #: A router delivers what is sent to the topic that the id names [server; group] to this consumer.
    SERVES = "serves"
    #: A router sends the events of the pattern that the id names to this subscriber.
    SUBSCRIBED = "subscribed"
    #: A subscriber has an event [topic].
    EVENT = "event"


class Stage(Protocol):
    """The surroundings of a process: the part of :class:`tests.faults.simulated_run.SimulatedRun` that it uses."""

    @property
    def net(self) -> VirtualTime:
        """The network, and its clock."""

    def record(self, what: str, id: str, fields: dict[str, Any], process: str = "router") -> None:
        """Something happens now."""

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do ``action`` in a while."""


def id_of(message: bytes) -> str:
    """The id of the operation that the call or cast ``message`` carries out."""
    return bytes(payload_of(message)).partition(b" ")[0].decode()


class SimulatedProcess(Endpoint):
    """The real engines of a process; connections, time, callers and handlers are simulated.

    Args:
        hello: further fields of its HELLO.
    """

    def __init__(self, stage: Stage, name: str, identity: str, seed: str, **hello: Any) -> None:
        self._stage = stage
        self._rng = Random(seed)
        self._attempts = 0
        self._lost_at: float | None = None
        #: Actions that came due while it was stopped.
        self._deferred: list[Callable[[], None]] = []
        self.name = name
        self.is_dead = self.is_leaving = False
        says = {"identity": identity, "queue_type": "roundrobin", "accepts": ("json",), "keeps": True, **hello}
        uplink = Uplink(HelloBody(versions=(1,), **says), self._welcomed, self._refused)
        self.casts = Casts(uplink, self._cast_refused)
        self.calls = Calls(uplink, self.casts)
        self.tasks = TaskTable(uplink, self.calls)
        super().__init__(stage.net, identity, uplink)

    # --- time --------------------------------------------------------------------------------

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do ``action`` in a while: not before it goes on if it is stopped by then, and not when it is dead."""

        def due() -> None:
            if self.is_paused:
                self._deferred.append(due)
            elif not self.is_dead:
                action()

        self._stage.later(seconds, due)

    def resume(self) -> None:
        super().resume()
        deferred, self._deferred = self._deferred, []
        for due in deferred:
            due()

    def next_deadline(self) -> float | None:
        ours, theirs = self.uplink.next_deadline(), self.calls.next_deadline()
        if ours is None or theirs is None:
            return theirs if ours is None else ours
        return min(ours, theirs)

    def tick(self, now: float) -> None:
        self.uplink.tick(now)
        self.calls.tick(now)

    def before_flush(self) -> None:
        self.tasks.flush(self._network.now)

    # --- the link ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Connect, and again whenever the connection is lost."""
        if self.is_dead or self.uplink.ready:
            return
        self.connect()
        if self.connection is None:
            self._again()
            return
        connection = self.connection

        def is_late() -> None:
            if self.connection is connection and not self.uplink.ready:
                self.lose()

        self.later(_CONNECT_SECONDS, is_late)

    def lose(self, is_noticed: bool = True) -> None:
        had = self.connection is not None
        if self.uplink.ready:
            self._lost_at = self._network.now
        super().lose(is_noticed)
        if had and not self.is_dead:
            self._again()

    def _again(self) -> None:
        self._attempts += 1
        pause = min(_RECONNECT_MAX, 0.02 * 2.0 ** min(self._attempts, 10))
        self.later(self._rng.uniform(0.0, pause), self.begin)

    def _welcomed(self, now: float, welcome: Welcome) -> None:
        self._attempts = 0
        away = {} if self._lost_at is None else {"away": round(now - self._lost_at, 6)}
        self._stage.record(What.LINKED, "", {"resumed": welcome.resumed, **away}, self.name)
        self.calls.welcome(now, welcome)
        self.tasks.welcome(now, welcome)

    def _refused(self, reason: str, text: str) -> None:
        if reason != "protocol":
            self.later(0.0, self.lose)

    def die(self, is_noticed: bool = True) -> None:
        self.is_dead = True
        super().die(is_noticed)

    # --- calling -----------------------------------------------------------------------------

    def send(self, operation: Operation) -> None:
        """Send what ``operation`` says."""
        stage, flags = self._stage, 0
        for flag, wanted in (
            (Flag.IDEMPOTENT, operation.idempotent),
            (Flag.MANDATORY, operation.mandatory),
            (Flag.FANOUT, operation.verb == "fanout"),
            (Flag.STREAM | Flag.BYTE_CREDIT, operation.verb == "stream"),
            (Flag.CONFIRM, operation.confirm),
        ):
            flags |= flag if wanted else 0
        fields = {"verb": operation.verb, "topic": operation.topic, "idempotent": operation.idempotent}
        fields |= {"confirm": operation.confirm, "server": operation.server}
        is_call = operation.verb in ("call", "stream")
        if is_call:
            fields["timeout"] = operation.timeout
        if operation.items:
            fields["items"] = operation.items
        if operation.consumers > 1:
            fields["consumers"] = operation.consumers
        stage.record(What.SUBMIT, operation.id, fields, self.name)
        address = Address(operation.topic, operation.server).encode()
        says = operation.id, operation.topic, operation.seconds, int(operation.fails), operation.items
        payload = " ".join(map(str, says)).encode()
        if not is_call and not operation.confirm:
            ttl = NO_TTL if operation.timeout is None else int(operation.timeout * 1000)
            key = self.uplink.next_key()
            message = pack(Kind.CAST, payload, key=key, flags=flags, format=1, address=address, method=b"m", ttl=ttl)
            self.casts.send(message, address)
            return
        call = Call(operation.topic, flags, operation.timeout if is_call else None)
        if operation.consumers > 1:
            call.hedge = HedgeTerms(operation.consumers, operation.hedge_after)
        call.waiter = lambda: self._ended(operation, call)
        if operation.items:
            call.waiter = lambda: self._read(operation, call)
        kind = Kind.REQUEST if is_call else Kind.CAST
        self.calls.start(self._network.now, call, kind, payload, address=address, method=b"m")
        if operation.cancel_after is not None:
            self.later(operation.cancel_after, lambda: self._cancel(operation, call))

    def _cancel(self, operation: Operation, call: Call) -> None:
        if not call.done:
            self.calls.cancel(call)
            self._stage.record(What.END, operation.id, {"outcome": "cancelled"}, self.name)

    def declare(self, topic: str) -> None:
        """Make ``topic`` known, without a consumer."""
        call = Call(topic, 0, None)
        address = Address(topic).encode()
        self.calls.start(self._network.now, call, Kind.DECLARE, DeclareBody().payload(), address=address)

    def _read(self, operation: Operation, call: Call) -> None:
        """A stream has items, or has ended."""
        for of, number in read_items(self._network.now, call, self.calls):
            self._stage.record(Seen.ITEM, operation.id, {"number": number, "of": of}, self.name)
        if call.done:
            call.waiter = None
            self._ended(operation, call)

    def _ended(self, operation: Operation, call: Call) -> None:
        record = self._stage.record
        if call.error is not None:
            outcome = call.error.details.get("outcome", type(call.error).__name__)
            name = OUTCOMES.get(outcome, str(outcome)) if isinstance(outcome, int) else str(outcome)
            record(What.END, operation.id, {"outcome": name}, self.name)
            return
        assert call.answer is not None
        if call.answer[5] == Kind.CONFIRM:
            record(What.CONFIRM, operation.id, {}, self.name)
            record(What.END, operation.id, {"outcome": "ok"}, self.name)
            return
        of = bytes(payload_of(call.answer)).removeprefix(_ANSWER).decode()
        outcome = "remote_error" if call.answer[5] == Kind.FAULT else "ok"
        record(What.END, operation.id, {"outcome": outcome, "of": of}, self.name)

    def _cast_refused(self, message: bytes, error: CallError) -> bytes | None:
        self._stage.record(What.SETTLE, id_of(message), {"outcome": "refused"}, self.name)
        return None

    # --- serving -----------------------------------------------------------------------------

    def serve(self, credit: int, topics: Sequence[str] = _TOPICS, group: str = "") -> None:
        """Consume ``topics``, each by the name of this process, too, unless for a ``group``."""
        server = "" if group else self.identity.partition("/")[0]
        for topic in topics:
            tag = free_tag(self.tasks.registrations)
            registration = Registration(tag, Address(topic, server), credit, "", self._start, group)
            call = self.tasks.register(self._network.now, registration, 60.0)
            call.waiter = partial(self.registered, call, topic, server, group)

    def registered(self, call: Call, topic: str, server: str, group: str) -> None:
        """Hook: called when ``call``, the registration of a consumer, has ended."""

    def after_receive(self, now: float) -> None:
        while self.calls.changed or self.tasks.delivered or self.tasks.changed:
            for call in self.calls.take_changed():
                if call.waiter is not None and (call.done or call.flags & Flag.STREAM):
                    call.waiter()
            changed, self.tasks.changed = self.tasks.changed, []
            for task in changed:
                if task.on_change is not None:
                    task.on_change()
            tasks, self.tasks.delivered = self.tasks.delivered, []
            for task in tasks:
                task.registration.on_task(task)

    def _start(self, task: Task) -> None:
        id, topic, seconds, fails, items = bytes(task.payload).decode().split()
        # What it was sent for, and what it was delivered to, must be the same.
        served = task.registration.address.topic
        fields = {"topic": topic if topic == served else f"{topic} at {served}", "attempt": task.attempt}
        if task.registration.group:
            fields["group"] = task.registration.group
        self._stage.record(What.START, id, fields, self.name)
        if task.is_call and task.flags & Flag.STREAM:
            finish = partial(self._finish, task, id, fails == "1")
            stream_items(task, id, int(items), float(seconds), self.tasks, self.later, finish)
        else:
            self.later(float(seconds), lambda: self._finish(task, id, fails == "1"))

    def _finish(self, task: Task, id: str, fails: bool) -> None:
        now = self._network.now
        self._stage.record(What.FINISH, id, {"failed": fails}, self.name)
        if task.is_call:
            kind = Kind.FAULT if fails else Kind.END if task.flags & Flag.STREAM else Kind.REPLY
            self.tasks.answer(now, task, kind, 1, _ANSWER + id.encode())
        else:
            self.tasks.settle(now, task, Outcome.REMOTE_ERROR if fails else Outcome.OK)

    def leave(self, then: Callable[[], None]) -> None:
        """Take no more, finish what runs, say goodbye."""
        self.is_leaving = True
        now = self._network.now
        for registration in list(self.tasks.registrations.values()):
            self.tasks.unregister(now, registration, 2.0).waiter = lambda: None
        self._leave_when_done(then)

    def _leave_when_done(self, then: Callable[[], None]) -> None:
        if self.tasks.running and self.uplink.ready:
            self.later(0.1, lambda: self._leave_when_done(then))
            return
        self.is_dead = True
        self.stop()
        then()
