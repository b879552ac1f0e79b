"""Calls whose payloads are pickles that try to run code."""

from __future__ import annotations

from time import monotonic

from rpcmq import Client
from rpcmq.core.process.call import Call
from rpcmq.payload.format import Format
from rpcmq.wire import KIND_AT, Address, Kind
from tests.payload.hostile import RUNS_CODE


def send_pickles(client: Client, topic: str, method: str) -> None:
    """Send each of the pickles to ``topic``; every call must end with FAULT."""
    assert len(RUNS_CODE) >= 50
    client.connect(20)
    process, address = client.process, Address(topic).encode()
    for name, payload in RUNS_CODE.items():
        call = Call(topic, 0, 20.0)
        process.calls.start(
            monotonic(), call, Kind.REQUEST, payload, format=Format.PICKLE, address=address, method=method.encode()
        )
        process.schedule()
        process.wait(call)
        assert call.error is None and call.answer is not None, f"{name}: {call.error}"
        assert call.answer[KIND_AT] == Kind.FAULT, name
