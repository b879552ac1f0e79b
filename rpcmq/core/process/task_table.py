"""The consumer's side of a process: registrations, and delivered messages until they are settled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from rpcmq.core.process import casts_had
from rpcmq.core.process.answered_streams import AnsweredStreams
from rpcmq.core.process.call import Call
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.received_streams import ReceivedStreams
from rpcmq.core.process.recent_messages import RecentMessages
from rpcmq.core.process.settlements import Settlements, wire_microseconds
from rpcmq.core.process.task import Registration, Sender, Task
from rpcmq.core.process.task_states import RegistrationState, TaskState
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
from rpcmq.core.process.witness import NOT_ADOPTED, Witness
from rpcmq.errors import CallError, Outcome, ProtocolError
from rpcmq.payload.format import STREAMED, has_stream
from rpcmq.wire import (
    ATTEMPT_AT,
    CONSUMER_AT,
    HEADER,
    HEADER_BYTES,
    KEY,
    KIND_AT,
    LOW_FLAGS_AT,
    NO_TTL,
    Flag,
    Kind,
    pack,
    payload_of,
)
from rpcmq.wire.bodies import RegisterBody

__all__ = ["TaskTable"]

_unpack = HEADER.unpack_from
# Looking up a member of an enum costs on the hot path.
_CAST = int(Kind.CAST)
_REQUEST = int(Kind.REQUEST)
_SEALED, _FANOUT, _STREAM = Flag.SEALED, Flag.FANOUT, Flag.STREAM
_AGAIN = Flag.RESENT | Flag.IDEMPOTENT
_ANSWERS = (int(Kind.REPLY), int(Kind.FAULT), int(Kind.END))
_SENT = int(Kind.CLOCK_STAMP)
_ITEM = int(Kind.ITEM)
_WAITING, _RUNNING, _STREAMING = TaskState.WAITING, TaskState.RUNNING, TaskState.STREAMING
_ABANDONED, _ANSWERED, _SETTLED = TaskState.ABANDONED, TaskState.ANSWERED, TaskState.SETTLED


class TaskTable:
    """Registrations and tasks over one uplink. ``delivered`` lists the tasks to be started.

    Args:
        on_refused: called when a router that has come back does not take a registration again.
        answers_kept_bytes: most bytes of answers that are kept in a mesh.
    """

    def __init__(
        self,
        uplink: Uplink,
        calls: Calls,
        on_refused: Callable[[Registration, CallError], None] = lambda registration, error: None,
        answers_kept_bytes: int = 16 << 20,
    ) -> None:
        self._uplink = uplink
        self._calls = calls
        self._on_refused = on_refused
        self.recent = RecentMessages()
        self._settlements = Settlements(uplink)
        self.flush = self._settlements.flush
        self.registrations: dict[int, Registration] = {}
        self.delivered: list[Task] = []
        self.changed: list[Task] = []
        self.counters: Counter[str] = Counter()
        self.streams = ReceivedStreams(uplink, self, self.counters)
        #: Answers routers of a mesh that ask for what was had.
        self.witness = Witness(
            uplink, self.registrations, self.recent, self._settlements, self.counters, answers_kept_bytes
        )
        uplink.handle(Kind.REQUEST, self._request)
        uplink.handle(Kind.CAST, self._request)
        uplink.handle(Kind.CANCEL, self.cancel)
        self.answered_streams = AnsweredStreams(uplink, self._running, self._note_change)
        uplink.handle(Kind.REGISTERED, self._registered)
        uplink.moves.work.append(lambda: any(self._routed_tasks()))
        uplink.moves.streams.append(lambda: any(task.flags & Flag.STREAM for task in self._routed_tasks()))

    # --- registrations -----------------------------------------------------------------------

    def register(self, now: float, registration: Registration, timeout: float) -> Call:
        """Ask the router to deliver; the returned call ends when it will."""
        self.registrations[registration.tag] = registration
        registration.state = RegistrationState.WANTED
        call = Call(str(registration.address), 0, timeout)
        return self._send_registration(now, registration, call)

    def unregister(self, now: float, registration: Registration, timeout: float) -> Call:
        """Stop deliveries; running tasks go on."""
        registration.state = RegistrationState.LEAVING
        call = Call(str(registration.address), 0, timeout)
        return self._calls.start(now, call, Kind.UNREGISTER, b"", consumer=registration.tag)

    def remove(self, registration: Registration) -> None:
        """Forget a registration after it was unregistered and its tasks are done: its tag may be another's then."""
        if self.registrations.get(registration.tag) is registration:
            registration.state = RegistrationState.REMOVED
            del self.registrations[registration.tag]

    def welcome(self, now: float, welcome: Welcome) -> None:
        """The link is ready. If the router knows nothing of us, register again."""
        router = self._uplink.router
        lapsed = router is not None and router.lapsed
        casts_had.note_welcome(self.registrations.values(), welcome.resumed, lapsed)
        if welcome.resumed:
            return
        self._settlements.clear()
        self._end_session(welcome)
        for registration in self.registrations.values():
            asked = [c for c in self._calls.open.values() if c.message[CONSUMER_AT] == registration.tag]
            leaving = next((c for c in asked if c.message[KIND_AT] == Kind.UNREGISTER), None)
            if leaving is not None:
                # The router has no registration of ours, as wanted.
                self._calls.on_end(now, leaving.message)
            joining = next((c for c in asked if c.message[KIND_AT] == Kind.REGISTER), None)
            if joining is not None:
                self._calls.cancel(joining)
                self._send_registration(now, registration, joining)
            else:
                self._register_anew(now, registration)

    def _end_session(self, welcome: Welcome) -> None:
        """Abandon what runs, for there is nobody to answer to; but for tasks whose next owner will ask for them."""
        answers = (m for m in (*welcome.sent, *welcome.unsent) if m[KIND_AT] in _ANSWERS)
        if void := sum(message[KEY] not in self.witness.answers.answers for message in answers):
            self.counters["late answers"] += void
        for registration in self.registrations.values():
            casts_had.note_session_over(registration)
            routed = [task for task in registration.running.values() if task.sender is self._uplink]
            for task in routed:
                if not self.witness.moved(task, welcome):
                    task.abandon()
                    self.streams.drop(task)
                    del registration.running[task.key]
                    if not casts_had.is_others_now(task, self.recent):
                        casts_had.note_cut_off(task)

    def _registered(self, now: float, message: bytes) -> None:
        """REGISTERED: it ends a call; without a key, the router has restored a consumer that it had taken for lost."""
        is_anew = not any(message[KEY])
        casts_had.note_registered(self.registrations.get(message[CONSUMER_AT]), is_anew, self.recent)
        if not is_anew:
            self._calls.on_end(now, message)

    def register_again(self, now: float, registration: Registration) -> None:
        """Ask the router again that has refused ``registration``, unless a router was asked since."""
        if registration.is_refused:
            self._register_anew(now, registration)

    def _register_anew(self, now: float, registration: Registration) -> None:
        """Ask a router that has forgotten ``registration`` to deliver."""
        if registration.state is not RegistrationState.WANTED:
            return
        call = Call(str(registration.address), 0, None)
        call.waiter = partial(self._reregistered, registration, call)
        self._send_registration(now, registration, call)

    def _reregistered(self, registration: Registration, call: Call) -> None:
        if call.error is not None:
            registration.is_refused = True
            self._on_refused(registration, call.error)

    def _send_registration(self, now: float, registration: Registration, call: Call) -> Call:
        registration.is_refused = False
        own = self.registrations.values() if self._uplink.moves.mesh is not None else ()
        body = RegisterBody(
            credit=registration.credit, peer_url=registration.peer_url, group=registration.group,
            occupied=registration.occupied, recent=self.recent.keys_of(registration.group, casts_had.cut_off_of(own)),
        )  # fmt: skip
        address = registration.address.encode()
        return self._calls.start(now, call, Kind.REGISTER, body.payload(), address=address, consumer=registration.tag)

    # --- tasks -------------------------------------------------------------------------------

    def _request(self, now: float, message: bytes) -> None:
        tag = message[CONSUMER_AT]
        registration = self.registrations.get(tag)
        if registration is None:
            self.counters["deliveries for an unknown consumer"] += 1
            return
        if registration.unended >= registration.credit and registration.is_overrun:
            raise ProtocolError(f"{registration.unended} delivered with a credit of {registration.credit}", "credit")
        witness = self.witness
        if witness.is_active and not message[LOW_FLAGS_AT] & NOT_ADOPTED and not witness.admits(message, registration):
            return
        if message[KIND_AT] == _CAST:
            key = message[KEY]
            flags = message[LOW_FLAGS_AT]
            if (flags & _AGAIN and casts_had.had_before(key, flags, registration, self.recent)) or (
                flags & _FANOUT and witness.is_active and witness.had_copy(key, tag)
            ):
                self.counters["duplicate casts dropped"] += 1
                if not casts_had.awaits_end(key, message[ATTEMPT_AT], flags, registration):
                    self._settlements.add(tag, key, message[ATTEMPT_AT], Outcome.OK, 0)
                return
            self.recent.add(key, registration.group)
        self.accept(now, message, registration, self._uplink)

    def accept(self, now: float, message: bytes, registration: Registration, sender: Sender) -> None:
        """Accept a call or cast for ``registration``, to be run and answered to ``sender``.

        Raises:
            ProtocolError: its variable parts do not fit.
        """
        _, _, kind, flags, hops, attempt, form, _, ttl, *_, address_bytes, method_bytes, trace_bytes = _unpack(message)
        cut = HEADER_BYTES + address_bytes
        end = cut + method_bytes
        if end + trace_bytes > len(message):
            raise ProtocolError("address, method and trace do not fit into the message", "length")
        task = Task()
        task.key = key = message[KEY]
        task.sender = sender
        task.registration = registration
        task.tag = registration.tag
        task.is_call = kind == _REQUEST
        task.hops = hops
        task.attempt = attempt
        task.flags = flags
        task.format = form
        task.method = message[cut:end].decode(errors="replace")
        task.trace = message[end : end + trace_bytes]
        task.payload = message[end + trace_bytes :] if not flags & 1 else payload_of(message)
        task.seal = message if flags & _SEALED else None
        task.ttl = None if ttl == NO_TTL else ttl / 1000
        task.received_at = now
        task.on_change = task.moved = task.credit = None
        if form > STREAMED and task.is_call and flags & _STREAM and has_stream(form) and sender is self._uplink:
            task.format = form - STREAMED
            self.streams.begin(task)
        if sender is not self._uplink and len(registration.running) >= registration.credit:
            task.state = _WAITING
            registration.waiting[key] = task
            registration.waiting_bytes += len(task.payload)
            return
        task.state = _RUNNING
        registration.unended += 1
        if registration.sets_aside:
            casts_had.note_begun(task, self._uplink)
        earlier = registration.running.setdefault(key, task)
        if earlier is not task:
            # The router has taken it for lost, and delivers it again; it takes no answer to that attempt.
            earlier.abandon()
            self.changed.append(earlier)
            registration.running[key] = task
        self.delivered.append(task)

    def cancel(self, now: float, message: bytes) -> None:
        """Cancel a task: its caller gave up."""
        task = self._running(message)
        if task is not None and not self.witness.refuses_cancel(message, task):
            task.cancel()
            self.streams.drop(task)
            self.changed.append(task)

    def cancel_direct(self, key: bytes, sender: Sender) -> None:
        """Cancel a peer's direct call: a waiting one never runs, a running one is notified."""
        for registration in self.registrations.values():
            waits = registration.waiting.get(key)
            if waits is not None and waits.sender is sender:
                del registration.waiting[key]
                registration.waiting_bytes -= len(waits.payload)
                waits.abandon()
            task = registration.running.get(key)
            if task is not None and task.sender is sender:
                task.abandon()
                self.changed.append(task)

    def _note_change(self, task: Task) -> None:
        self.changed.append(task)

    def _running(self, message: bytes) -> Task | None:
        key = message[KEY]
        for registration in self.registrations.values():
            task = registration.running.get(key)
            if task is not None and task.is_call:  # not the copy of it that one of our groups has
                return task
        return None

    def answer(
        self, now: float, task: Task, kind: int, format: int, payload: bytes | memoryview, error: bytes = b"",
        flags: int = 0, is_begun: bool = True,
    ) -> None:  # fmt: skip
        """End the task with REPLY, FAULT or END. ``error`` names the class raised, for the router's log."""
        if not self._finish(task, _ANSWERED):
            self.counters["late answers"] += 1
            return
        if task.sender is self._uplink:
            self._settlements.answered = True
        spent = wire_microseconds(now - task.received_at) if is_begun else NO_TTL
        message = pack(
            kind, payload, flags=flags, format=format, ttl=spent, key=task.key, hops=task.hops, attempt=task.attempt,
            consumer=task.tag, method=error if error and self._accepts_error_name(task) else b"",
        )  # fmt: skip
        if self.witness.is_active:
            self.witness.answered(task, message)
        task.sender.send(message)

    def _accepts_error_name(self, task: Task) -> bool:
        """Return whether a FAULT may name the error: only if the router supports it."""
        return task.sender is self._uplink and self._uplink.accepts_error_names

    def _finish(self, task: Task, end: TaskState) -> bool:
        """End ``task``; return whether the end is to be sent."""
        before, registration = task.state, task.registration
        if before is _RUNNING or before is _STREAMING:
            task.state = end
        elif task.has_ended:
            self._uplink.report_illegal(f"task: {end.value} while it is {before.value}")
            return False
        else:
            task.state = TaskState.WASTED
        registration.unended -= 1
        if self.streams.open:
            self.streams.forget(task)
        if registration.cut_off and (awaited := registration.cut_off.pop(task.key, None)) is not None:
            self._settlements.add(registration.tag, task.key, awaited, Outcome.OK, 0)
        if registration.running.get(task.key) is task:
            del registration.running[task.key]
        while registration.waiting and len(registration.running) < registration.credit:
            waiting = registration.waiting.pop(next(iter(registration.waiting)))
            registration.waiting_bytes -= len(waiting.payload)
            if waiting.state is _WAITING:
                waiting.state = _RUNNING
                registration.unended += 1
                registration.running[waiting.key] = waiting
                self.delivered.append(waiting)
        return before is not _ABANDONED

    def send_item(self, task: Task, kind: int, format: int, payload: bytes | memoryview, flags: int = 0) -> None:
        """ITEM of a stream (uses up a grant), or ALIVE."""
        if task.state is _ABANDONED or task.has_ended:
            return
        if kind == _ITEM:
            flags |= self.answered_streams.use(task, len(payload))
            if task.state is _RUNNING:
                task.state = _STREAMING
        key, hops, attempt, tag = task.key, task.hops, task.attempt, task.tag
        task.sender.send(
            pack(kind, payload, flags=flags, format=format, key=key, hops=hops, attempt=attempt, consumer=tag)
        )

    def settle(self, now: float, task: Task, outcome: Outcome) -> None:
        """Settle a cast."""
        if self._finish(task, _SETTLED) and task.sender is self._uplink:
            spent = wire_microseconds(now - task.received_at)
            self._settlements.add(task.tag, task.key, task.attempt, outcome, spent)

    def occupy(self, registration: Registration, change: int) -> None:
        """So many more, or fewer, casts of ``registration`` run that were settled, and take of its credit."""
        registration.occupied += change
        self._settlements.occupy(registration.tag, registration.occupied)

    def give_back(self, task: Task) -> bool:
        """Have ``task`` given to another consumer, or to this one again.

        Returns:
            Whether it was given back. Not what has ended, or no router can give to others: nothing is changed then.
        """
        if task.state is not _RUNNING or task.sender is not self._uplink or task.flags & _FANOUT:
            return False
        if task.moved is not None or not self._settlements.takes_back or self.streams.was_asked_for(task):
            return False
        self._finish(task, TaskState.RETURNED)
        if not task.is_call:
            self.recent.forget(task.key, task.registration.group)
        self._uplink.send(pack(Kind.GIVE_BACK, key=task.key, hops=task.hops, attempt=task.attempt, consumer=task.tag))
        return True

    def _routed_tasks(self) -> Iterator[Task]:
        """Iterate over the running tasks whose answers go by way of the router."""
        for registration in self.registrations.values():
            for task in registration.running.values():
                if task.sender is self._uplink:
                    yield task

    @property
    def running(self) -> int:
        """Tasks that are not settled."""
        return sum(len(r.running) for r in self.registrations.values())
