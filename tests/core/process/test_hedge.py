"""A process tells a router that can do it on which terms several consumers may have a call."""

from __future__ import annotations

import pytest

from rpcmq.core.process.call import Call
from rpcmq.wire import KEY, KIND_AT, Flag, Kind
from rpcmq.wire.hedge import HedgeTerms
from tests.core.process.calling import COMPUTE, Process

TERMS = HedgeTerms(3, 0.05, 0, False)


def start(process: Process, flags: int = Flag.IDEMPOTENT) -> Call:
    call = Call("compute", flags, 10.0)
    call.hedge = TERMS
    return process.calls.start(0.0, call, Kind.REQUEST, b"payload", address=COMPUTE, method=b"m")


def kinds(messages: list[bytes]) -> list[int]:
    return [message[KIND_AT] for message in messages]


@pytest.fixture
def process() -> Process:
    process = Process()
    process.connect(hedges=True)
    return process


def test_the_terms_come_right_behind_the_call(process: Process) -> None:
    call = start(process)
    request, hedge = process.sent()
    assert (request[KIND_AT], hedge[KIND_AT], hedge[KEY]) == (Kind.REQUEST, Kind.HEDGE, call.key)
    assert HedgeTerms.of(hedge) == TERMS


@pytest.mark.parametrize("terms", [HedgeTerms(2), HedgeTerms(8, 4000.0), HedgeTerms(2, 0.0, 95, False)])
def test_terms_are_read_as_they_were_said(terms: HedgeTerms) -> None:
    assert HedgeTerms.of(terms.message(bytes(20))) == terms


def test_an_earlier_router_is_told_nothing_of_it() -> None:
    process = Process()
    start(process)
    assert kinds(process.sent()) == [Kind.REQUEST]


def test_the_next_router_is_told_with_the_call_unless_it_is_an_earlier_one(process: Process) -> None:
    call = start(process)
    process.sent()
    messages = process.connect(boot=6, handle=8, hedges=True)
    assert kinds(messages) == [Kind.REQUEST, Kind.HEDGE]
    assert {message[KEY] for message in messages} == {call.key}
    assert kinds(process.connect(boot=7)) == [Kind.REQUEST]
    assert kinds(process.connect(boot=8, hedges=True)) == [Kind.REQUEST, Kind.HEDGE]


def test_what_was_not_sent_is_told_once(process: Process) -> None:
    process.uplink.lost(1.0)
    start(process)
    assert kinds(process.connect(boot=6, hedges=True)) == [Kind.REQUEST, Kind.HEDGE]


def test_what_is_given_up_before_it_was_sent_leaves_terms_that_nobody_minds(process: Process) -> None:
    process.uplink.lost(1.0)
    process.calls.cancel(start(process))
    assert kinds(process.uplink.outbox) == [Kind.HEDGE]
    assert not process.connect(boot=6, hedges=True)
