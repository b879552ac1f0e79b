"""The consumer's part of adoption: only its own process knows whether it has started a message.

In a mesh a message may be given to a consumer by one router, and asked for by another one, its next *owner*, when the
first is gone. Owners are ordered by their *stamps*. The rules are those of docs/contributing/mesh-model.md:

* A consumer that is asked for a message that it never had promises to start it for no earlier owner (``promise``).
* One that runs it, or has ended it, sends the answer to the latest owner that asked (``retag``), and keeps it until the
  caller's process has it (``keep``: :mod:`rpcmq.core.process.kept_answers`).
* It refuses what an earlier owner delivers, and tells it of the later one (``fence``).

Streams, idempotent messages and fanouts are not asked for: they end, or are sent to another consumer. A consumer that
another router has given its copy of a fanout takes no other one.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from math import inf

from rpcmq.core.process.kept_answers import KeptAnswers
from rpcmq.core.process.recent_messages import RecentMessages
from rpcmq.core.process.settlements import Settlements
from rpcmq.core.process.task import Moved, Registration, Sender, Task
from rpcmq.core.process.task_states import TaskState
from rpcmq.core.process.uplink import Uplink
from rpcmq.core.process.welcome import Welcome
from rpcmq.errors import Outcome
from rpcmq.wire import (
    CONSUMER_AT,
    FORMAT_AT,
    KEY,
    KIND_AT,
    STAMP,
    Flag,
    Kind,
    for_consumer,
    pack,
    with_stamp,
)
from rpcmq.wire.adoption import HERE_RECORD, Word, taken_keys, where_records

__all__ = ["NOT_ADOPTED", "Witness"]

#: Flags of messages that no router asks for.
NOT_ADOPTED = Flag.IDEMPOTENT | Flag.FANOUT | Flag.STREAM
#: Most promises. A router may ask for all that a dead one had; each costs some 150 bytes.
_MAX_PROMISES = 65_536
_CAST = int(Kind.CAST)


class Witness:
    """Knows what the consumers of one uplink had, and says it.

    Args:
        registrations: of this process, by tag, with the tasks that run.
        recent: the casts that it had.
        settlements: take those of casts that are asked for.
        counters: of the process's tasks.
        max_bytes: most bytes of answers that are kept.

    Attributes:
        is_active: whether the router is one of a mesh, in which others may ask, or the last one was.
        answers: those that are kept.
    """

    __slots__ = (
        "_copies", "_counters", "_promises", "_recent", "_registrations", "_settlements", "_uplink", "answers",
        "is_active",
    )  # fmt: skip

    def __init__(
        self,
        uplink: Uplink,
        registrations: Mapping[int, Registration],
        recent: RecentMessages,
        settlements: Settlements,
        counters: Counter[str],
        max_bytes: int,
    ) -> None:
        self._uplink = uplink
        self._registrations = registrations
        self._recent = recent
        self._settlements = settlements
        self._counters = counters
        self.is_active = False
        #: Fanouts of which a registration had a copy.
        self._copies = RecentMessages()
        self._copies.look_up_often()
        self.answers = KeptAnswers(counters, max_bytes)
        #: The earliest owner that each message may be started for, by key; of casts by key and group.
        self._promises: OrderedDict[bytes, bytes] = OrderedDict()
        uplink.moves.on_change.append(self._mesh_changed)
        uplink.handle(Kind.WHERE, self._where)
        uplink.handle(Kind.TAKEN, self._taken)

    # --- what the process does ---------------------------------------------------------------

    def admits(self, message: bytes, registration: Registration) -> bool:
        """Return whether the delivered ``message`` is to be started; if not, its owner is answered or refused."""
        key, is_call = message[KEY], message[KIND_AT] != _CAST
        if self._is_new(key, registration.group, is_call):
            return True
        stamp = message[STAMP]
        latest, word = self._known(key, registration.group, is_call)
        name = _name(key, registration.group, is_call)
        if word is Word.NOT_HAD and stamp >= latest:
            self._promises.pop(name, None)
            return True
        self._counters["deliveries of what was had or promised"] += 1
        if stamp < latest:
            self._say(registration.tag, [(key, latest, Word.NEWER)])
        elif word is Word.RUNNING:
            self._retag(key, registration, is_call, stamp)
        elif word is Word.ANSWERED:
            self._answer_again(key, registration.tag, is_call, stamp)
        return False

    def _is_new(self, key: bytes, group: str, is_call: bool) -> bool:
        """Return whether it is known at once that nothing is known of a message: the common case."""
        if is_call:
            if key in self.answers.answers or key in self.answers.had or key in self._promises:
                return False
        elif self._promises or self._recent.is_known(key, group):
            return False
        for registration in self._registrations.values():  # noqa: SIM110 - quicker than any()
            if key in registration.running:
                return False
        return True

    def had_copy(self, key: bytes, tag: int) -> bool:
        """Return whether the registration ``tag`` had its copy of the fanout ``key`` before; from now on it had.

        Each router makes copies for its own consumers, when it gets the fanout. One that has had its copy, and goes on
        at another router, may be there before the fanout is.
        """
        name = str(tag)  # each registration of this process has a copy of its own
        if self._copies.is_known(key, name):
            return True
        self._copies.add(key, name)
        return False

    def refuses_cancel(self, message: bytes, task: Task) -> bool:
        """Return whether ``message``, a CANCEL, is of an earlier owner of ``task`` than the one that waits for it."""
        return self.is_active and message[STAMP] < task.stamp

    def answered(self, task: Task, message: bytes) -> None:
        """Keep ``message``, the answer to ``task``, unless nobody asks for such, or the caller has given up."""
        if task.flags & NOT_ADOPTED:
            return
        if task.state is TaskState.ANSWERED:
            self.answers.keep(task.key, message)
        else:
            self.answers.forget(task.key, was_taken=False)

    def moved(self, task: Task, welcome: Welcome) -> bool:
        """Return whether ``task`` goes on although its session is over: the next owner will ask for it."""
        if task.flags & NOT_ADOPTED:
            return False
        if welcome.same_mesh and self._uplink.moves.is_adopted:
            task.sender, pulse = _NOBODY, self._uplink.pulse
            was_counted_on = pulse.counted_on_before
            if task.moved is not None and was_counted_on <= task.moved.asked_at:
                was_counted_on = task.moved.counted_on
            task.moved = Moved(was_counted_on, inf)
            return True
        if task.is_call:
            self.answers.forget(task.key, was_taken=False)
        return False

    def _mesh_changed(self) -> None:
        self.is_active = self._uplink.moves.mesh is not None
        if self.is_active:
            self._recent.look_up_often()

    # --- what owners ask ---------------------------------------------------------------------

    def _where(self, now: float, message: bytes) -> None:
        """WHERE: the next owner asks.

        Raises:
            ProtocolError: malformed.
        """
        records = where_records(message)
        registration = self._registrations.get(message[CONSUMER_AT])
        if registration is None:
            self._counters["questions for an unknown consumer"] += 1
            return
        is_call = bool(message[FORMAT_AT])
        words: list[tuple[bytes, bytes, Word]] = []
        answered: list[tuple[bytes, bytes]] = []
        for key, stamp in records:
            latest, word = self._known(key, registration.group, is_call)
            if stamp < latest:
                words.append((key, latest, Word.NEWER))
                continue
            words.append((key, stamp, word))
            if word is Word.NOT_HAD:
                self._promise(_name(key, registration.group, is_call), stamp)
            elif word is Word.RUNNING:
                self._retag(key, registration, is_call, stamp)
            elif word is Word.ANSWERED:
                answered.append((key, stamp))
        self._say(registration.tag, words)
        for key, stamp in answered:
            self._answer_again(key, registration.tag, is_call, stamp)

    def _taken(self, now: float, message: bytes) -> None:
        """TAKEN: the callers have these answers.

        Raises:
            ProtocolError: malformed.
        """
        for key in taken_keys(message):
            if key in self.answers.answers:
                self.answers.forget(key, was_taken=True)

    # --- parts -------------------------------------------------------------------------------

    def _known(self, key: bytes, group: str, is_call: bool) -> tuple[bytes, Word]:
        """Return the stamp of the latest owner that is known of a message, and the word about it."""
        task = self._running(key, group, is_call)
        if task is not None:
            return task.stamp, Word.RUNNING
        if is_call:
            answer = self.answers.answers.get(key)
            if answer is not None:
                return answer[STAMP], Word.ANSWERED
            was_taken = self.answers.had.get(key)
            if was_taken is not None:
                return b"", Word.ANSWERED if was_taken else Word.LOST
        elif self._recent.is_known(key, group):
            return b"", Word.ANSWERED
        return self._promises.get(_name(key, group, is_call), b""), Word.NOT_HAD

    def _running(self, key: bytes, group: str, is_call: bool) -> Task | None:
        for registration in self._registrations.values():
            task = registration.running.get(key)
            if task is not None and task.is_call is is_call and (is_call or registration.group == group):
                return task
        return None

    def _retag(self, key: bytes, registration: Registration, is_call: bool, stamp: bytes) -> None:
        """Have the answer to what runs sent to the owner with ``stamp``, as of ``registration``."""
        task = self._running(key, registration.group, is_call)
        if task is not None:
            task.hops, task.attempt = stamp
            task.tag = registration.tag
            task.sender = self._uplink
            if task.moved is not None:
                task.moved = task.moved._replace(asked_at=self._uplink.heard)

    def _answer_again(self, key: bytes, tag: int, is_call: bool, stamp: bytes) -> None:
        if not is_call:
            self._settlements.add(tag, key, stamp[1], Outcome.OK, 0)
            return
        kept = self.answers.answers.get(key)
        # Without one the caller has it: who asks is to forget the call, and its router to count on this consumer again.
        answer = for_consumer(with_stamp(kept or pack(Kind.REPLY, key=key, format=1), stamp), tag)
        if kept is not None:
            self.answers.replace(key, answer)
        self._settlements.answered = True
        self._uplink.send(answer)

    def _promise(self, name: bytes, stamp: bytes) -> None:
        self._promises.pop(name, None)
        self._promises[name] = stamp
        if len(self._promises) > _MAX_PROMISES:
            self._promises.popitem(last=False)
            self._counters["promises forgotten"] += 1

    def _say(self, tag: int, words: list[tuple[bytes, bytes, Word]]) -> None:
        payload = b"".join(HERE_RECORD.pack(*each) for each in words)
        self._uplink.send(pack(Kind.HERE, payload, consumer=tag))


class _Nobody(Sender):
    """Takes what a task says whose session is over, until its next owner asks for it."""

    def send(self, message: bytes) -> None:
        pass


_NOBODY = _Nobody()


def _name(key: bytes, group: str, is_call: bool) -> bytes:
    """Return a name for a message: a call, and the copies of it that groups get, have the same key."""
    return key if is_call else b"%b\0%b" % (key, group.encode())
