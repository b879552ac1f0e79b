"""A signal's handler raises between any two steps, as Ctrl-C does: the counts stay right, and no cast is lost."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from rpcmq.errors import Outcome
from rpcmq.wire import KEY, SEQUENCE, SEQUENCE_OF_KEY, Kind, control, pack
from tests.core.process.calling import COMPUTE, OTHER, Process
from tests.core.process.test_open_casts import PlayedRouter, check_counts

#: The files at whose lines the signals come.
FILES = ("casts.py", "refused_casts.py", "retained_casts.py", "uplink.py")


def is_interrupted(step: int, operation: Callable[[], object]) -> bool:
    """Run ``operation``, and raise before its instruction number ``step``; return False if it has fewer."""
    left = step

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal left
        if Path(frame.f_code.co_filename).name not in FILES:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        operation()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


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


@pytest.mark.parametrize("operation", [Scene.cast_behind, Scene.cast, Scene.confirm, Scene.reoffer, Scene.hear])
def test_whenever_a_signal_comes_the_counts_stay_right_and_no_cast_is_lost(operation):
    for step in count():
        scene = Scene()
        process, router = scene.process, scene.router
        interrupted = is_interrupted(step, partial(operation, scene))
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
        assert process.calls.counters["late replies"] <= 1, "what was handled does not come again"
        assert process.casts.open == len(process.casts.returned)
        had = {key[SEQUENCE_OF_KEY] for key in [*router.has, *process.casts.returned]}
        assert {message[SEQUENCE] for message in [*scene.waiting, *scene.sent]} <= had
        retained = {message[SEQUENCE] for message in process.casts.retained}
        assert retained <= had, "nothing is retained that was not sent"
        assert process.casts.retained.size_bytes == sum(map(len, process.casts.retained))
        if not interrupted:
            break
    assert step > 20
