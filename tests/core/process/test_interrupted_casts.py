"""A signal's handler raises between any two steps, as Ctrl-C does: the counts stay right, and no cast is lost."""

from __future__ import annotations

from functools import partial
from itertools import count

import pytest

from rpcmq.errors import Outcome
from rpcmq.wire import KEY, KIND_AT, SEQUENCE, SEQUENCE_OF_KEY, Kind, control, pack
from tests.core.interrupts import is_interrupted
from tests.core.process.calling import COMPUTE, OTHER, Process
from tests.core.process.test_open_casts import PlayedRouter, check_counts

#: The files at whose lines the signals come.
FILES = ("casts.py", "refused_casts.py", "retained_casts.py", "uplink.py")


class Interrupt(Exception):
    """As the handler of SIGALRM may raise it."""


class Scene:
    """A process with casts that wait for a full queue, are on their way again, and are on their way."""

    def __init__(self) -> None:
        self.process = Process()
        self.router = PlayedRouter(self.process)
        self.waiting = [self.process.cast() for _ in range(2)]
        self.sent = [self.process.cast(OTHER) for _ in range(3)]
        self.confirmed = pack(Kind.CAST, b"c", key=self.process.uplink.next_key(), address=OTHER)
        for _ in self.waiting:
            self.router.refuse(Outcome.OVERLOADED, limit_value=1)
        for _ in self.sent:
            self.router.accept()
        self.router.tell()

    def cast_behind(self) -> None:
        self.process.cast(COMPUTE)

    def cast(self) -> None:
        self.process.cast(OTHER)

    def confirm(self) -> None:
        self.process.casts.send_confirmed(self.confirmed)

    def reoffer(self) -> None:
        self.process.casts.tick(1.0)

    def hear(self) -> None:
        """The router refuses, returns and has delivered casts, in one batch."""
        refusal = {"outcome": Outcome.OVERLOADED, "text": "why", "details": {}}
        returned = {"outcome": Outcome.DRAINING, "text": "why", "details": {}}
        batch = [
            pack(Kind.REPLY, key=self.process.uplink.next_key()),
            control(Kind.ERROR, refusal, key=self.sent[0][KEY]),
            pack(Kind.DELIVERED, self.sent[1][KEY][SEQUENCE_OF_KEY]),
            control(Kind.ERROR, returned, key=self.sent[2][KEY]),
        ]
        for message in (self.sent[0], self.sent[2]):
            self.router.has.pop(message[KEY], None)
        heard = self.process.uplink.received
        self.router.to_tell = batch
        try:
            self.process.uplink.receive(1.0, b"".join(batch))
        finally:
            self.router.to_tell = batch[self.process.uplink.received - heard :]


@pytest.mark.parametrize(
    "operation",
    [
        Scene.confirm,
        pytest.param(Scene.cast_behind, marks=pytest.mark.long),
        pytest.param(Scene.cast, marks=pytest.mark.long),
        pytest.param(Scene.reoffer, marks=pytest.mark.long),
        pytest.param(Scene.hear, marks=pytest.mark.long),
    ],
)
def test_whenever_a_signal_comes_the_counts_stay_right_and_no_cast_is_lost(operation):
    for step in count():
        scene = Scene()
        process, router = scene.process, scene.router
        interrupted = is_interrupted(step, partial(operation, scene), FILES)
        check_counts(process)
        router.connect(resumed=True)
        router.tell()
        check_counts(process)
        for now in (2.0, 3.0, 4.0):
            process.calls.tick(now)
            router.unread += process.sent()
            while router.unread:
                router.accept()
            router.acknowledge()
            check_counts(process)
        assert process.calls.counters["late replies"] <= 2, "only the interrupted message comes again"
        assert process.casts.open == len(process.casts.returned)
        had = {key[SEQUENCE_OF_KEY] for key in [*router.has, *process.casts.returned]}
        assert {message[SEQUENCE] for message in [*scene.waiting, *scene.sent]} <= had
        retained = {message[SEQUENCE] for message in process.casts.retained}
        assert retained <= had, "nothing is retained that was not sent"
        assert process.casts.retained.size_bytes == sum(map(len, process.casts.retained))
        if not interrupted:
            break
    assert step > 20


class Heard(Scene):
    """One of the messages of the router is interrupted, and comes again if it was not handled."""

    def __init__(self) -> None:
        super().__init__()
        self.call = self.process.start(timeout=None)
        self.router.accept()
        self.message = b""

    def answer(self) -> None:
        self.message = pack(Kind.REPLY, b"result", key=self.call.key)

    def refuse(self) -> None:
        body = {"outcome": Outcome.OVERLOADED, "text": "why", "details": {}}
        self.message = control(Kind.ERROR, body, key=self.sent[0][KEY])

    def acknowledge(self) -> None:
        self.message = pack(Kind.ACK, sequence=self.router.read)

    def receive(self) -> None:
        self.process.uplink.receive(1.0, self.message)


@pytest.mark.parametrize("prepare", [Heard.answer, Heard.refuse, Heard.acknowledge])
def test_an_exception_of_a_signals_handler_is_not_taken_for_a_fault_of_the_message(prepare):
    files = (*FILES, "calls.py", "session.py")
    for step in count():
        scene = Heard()
        process, call = scene.process, scene.call
        prepare(scene)
        before = process.uplink.received
        interrupted = is_interrupted(step, scene.receive, files, Interrupt, each_instruction=False)
        check_counts(process)
        if process.uplink.received == before:
            scene.receive()
        check_counts(process)
        if prepare is Heard.answer:
            assert call.answer == scene.message and call in process.calls.changed, f"after step {step}"
        elif prepare is Heard.refuse:
            assert process.casts.refused.is_waiting(scene.sent[0]), f"after step {step}"
        else:
            assert process.uplink.unacknowledged == 0, f"after step {step}"
            assert process.casts.open == len(scene.waiting), f"after step {step}"
        if not interrupted:
            break
    assert step > 3


def test_an_acknowledgement_is_asked_for_again_where_a_signal_has_interrupted_that():
    for step in count():
        scene = Scene()
        uplink = scene.process.uplink
        uplink.last_messages.clear()
        uplink._asked = False
        interrupted = is_interrupted(step, uplink.ask_acknowledgement, ("uplink.py", "session.py"), Interrupt)
        uplink.ask_acknowledgement()
        assert [message[KIND_AT] for message in uplink.last_messages] == [Kind.HEARTBEAT], f"after step {step}"
        if not interrupted:
            break
    assert step > 3
