"""Random conversations of processes with a router: only transitions of the tables are ever seen, and most are.

What makes each row happen for certain is in ``test_link_states.py`` and ``test_request_states.py``.
"""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from rpcmq.core.common import illegal_events
from rpcmq.core.router.link_states import TRANSITIONS as OF_LINKS
from rpcmq.core.router.request_states import DELIVERY_TRANSITIONS, TRANSITIONS
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.checked_states import seen
from rpcmq.testing.invariants import check_router
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Flag, Kind, json_bytes
from rpcmq.wire.stream_grant import grant_payload

NAMES = st.sampled_from(("a", "b", "c"))
TTL = st.sampled_from((None, 1, 20))
CALL_FLAGS = st.sampled_from((0, Flag.IDEMPOTENT, Flag.MANDATORY, Flag.STREAM, Flag.NESTED))
CAST_FLAGS = st.sampled_from((0, Flag.IDEMPOTENT, Flag.MANDATORY, Flag.CONFIRM, Flag.FANOUT, Flag.RESENT))
FORMATS = st.sampled_from((1, 1, 1, 3, 4))
#: A process that takes requests with a stream.
KNOWS: dict[str, Any] = {"accepts": ("json", "pickle", "request-streams")}


class Conversation(RuleBasedStateMachine):
    """Three processes that call, serve, are silent, vanish and come back; and a router that restarts."""

    def __init__(self) -> None:
        super().__init__()
        settings = Settings(
            recovery_seconds=3.0, resume_seconds=30.0, consumer_grace_seconds=5.0, queue_max_messages=3,
            mailbox_max_seconds=20.0, unclaimed_seconds=10.0,
        )  # fmt: skip
        self.net = Network(settings, lost_seconds=20.0)
        self.processes = {name: self.net.process(name, keeps=True, **KNOWS) for name in "abc"}
        self.processes["a"].register("topic", credit=2, tag=0)
        self.calls: list[tuple[Process, Any]] = []

    def teardown(self) -> None:
        assert illegal_events.raised == []

    @invariant()
    def the_tables_agree(self) -> None:
        check_router(self.net.router)
        assert [note.text for note in self.net.notes if note.event == "internal error"] == []

    # --- messages ----------------------------------------------------------------------------

    @rule(name=NAMES, ttl=TTL, flags=CALL_FLAGS, format=FORMATS)
    def call(self, name: str, ttl: float | None, flags: int, format: int) -> None:
        process = self.processes[name]
        self.calls.append((process, process.request("topic", ttl=ttl, flags=flags, format=format)))

    @rule(name=NAMES, ttl=TTL, flags=CAST_FLAGS)
    def cast(self, name: str, ttl: float | None, flags: int) -> None:
        self.processes[name].cast("topic", ttl=ttl, flags=flags)

    @rule(name=NAMES, tag=st.integers(0, 1), credit=st.integers(1, 3))
    def register(self, name: str, tag: int, credit: int) -> None:
        self.processes[name].register("topic", credit=credit, tag=tag)

    @rule(name=NAMES, tag=st.integers(0, 1))
    def unregister(self, name: str, tag: int) -> None:
        self.processes[name].unregister(tag)

    @rule(kind=st.sampled_from((Kind.REPLY, Kind.FAULT, Kind.ITEM, Kind.ALIVE)), is_malformed=st.booleans())
    def answer(self, kind: Kind, is_malformed: bool) -> None:
        method = b"malformed" if is_malformed and kind is Kind.REPLY else b""
        for process in self.processes.values():
            requests = [m for m in process.inbox if m.kind is Kind.REQUEST][:2]
            for request in requests:
                header = request.header
                process.send(
                    kind, key=request.key, format=1, attempt=header.attempt, consumer=header.consumer, method=method
                )
                if kind in (Kind.REPLY, Kind.FAULT):
                    process.inbox.remove(request)

    @rule(
        kind=st.sampled_from((Kind.REQUEST_GRANT, Kind.REQUEST_STOP, Kind.GIVE_BACK)),
        items=st.sampled_from((0, 2, 2000)),
    )
    def ask_for_its_stream(self, kind: Kind, items: int) -> None:
        payload = grant_payload(items, 100) if kind is Kind.REQUEST_GRANT else b""
        for process in self.processes.values():
            for request in [m for m in process.inbox if m.kind is Kind.REQUEST][:2]:
                header = request.header
                process.send(kind, payload, key=request.key, attempt=header.attempt, consumer=header.consumer)
                if kind is Kind.GIVE_BACK:
                    process.inbox.remove(request)

    @precondition(lambda self: self.calls)
    @rule(kind=st.sampled_from((Kind.REQUEST_ITEM, Kind.REQUEST_ITEM, Kind.REQUEST_END)), size=st.sampled_from((0, 60)))
    def send_of_its_stream(self, kind: Kind, size: int) -> None:
        process, call = self.calls[-1]
        process.send(kind, bytes(size), key=call.key)

    @rule(outcome=st.sampled_from(Outcome))
    def settle(self, outcome: Outcome) -> None:
        for process in self.processes.values():
            for cast in process.got(Kind.CAST):
                process.settle(cast, outcome=outcome)

    @precondition(lambda self: self.calls)
    @rule(last=st.booleans())
    def cancel(self, last: bool) -> None:
        process, call = self.calls.pop(-1 if last else 0)
        process.cancel(call)

    @rule()
    def hedge(self) -> None:
        """A second consumer gets a call, as :meth:`Deliveries.deliver` allows."""
        router = self.net.router
        for link in router.links:
            for request in link.calls.values():
                with_it = {each.consumer for each in request.deliveries()}
                others = [c for c in request.destination.consumers if c.ready and c not in with_it]
                free = [c for c in others if request.key not in c.in_flight]
                if with_it and free:
                    router.dispatch.deliveries.deliver(self.net.now, request, free[0])
                    self.net.run()
                    return

    @rule(name=NAMES, what=st.sampled_from(("control.kick", "control.purge")))
    def control(self, name: str, what: str) -> None:
        body = {"what": what, "identity": name, "topic": "topic"}
        self.net.process("operator").send(Kind.QUERY, json_bytes(body), format=1)

    # --- connections -------------------------------------------------------------------------

    @rule(name=NAMES, is_noticed=st.booleans())
    def lose(self, name: str, is_noticed: bool) -> None:
        self.processes[name].lose(is_noticed)

    @rule(name=NAMES)
    def connect(self, name: str) -> None:
        self.processes[name].resume()
        self.processes[name].connect()

    @rule(name=NAMES)
    def pause(self, name: str) -> None:
        self.processes[name].pause()

    @rule(name=NAMES)
    def resume(self, name: str) -> None:
        self.processes[name].resume()

    @rule(name=NAMES)
    def replace(self, name: str) -> None:
        """A process stops; another one of its identity begins."""
        self.processes[name].resume()
        self.processes[name].stop()
        self.processes[name] = self.net.process(name, keeps=True, **KNOWS)
        self.processes[name].register("topic", credit=1, tag=0)

    # --- time, and the router ----------------------------------------------------------------

    @rule(name=NAMES, then=st.sampled_from(("connect", "resume", "kick", "cancel")))
    def fall_silent(self, name: str, then: str) -> None:
        process = self.processes[name]
        process.pause()
        self.net.advance(14.0)
        if then == "kick":
            self.control(name, "control.kick")
        elif then == "cancel":
            for caller, call in self.calls:
                caller.cancel(call)
            self.net.advance(2.0)
        process.resume()
        if then == "connect":
            process.connect()

    @rule(seconds=st.sampled_from((0.05, 2.0, 6.0, 14.0, 40.0)))
    def wait(self, seconds: float) -> None:
        self.net.advance(seconds)

    @rule(drains=st.booleans(), finishes=st.booleans())
    def restart(self, drains: bool, finishes: bool) -> None:
        if drains:
            self.net.router.begin_drain(self.net.now)
            self.net.run()
            check_router(self.net.router)
        if finishes:
            self.net.router.finish_drain(self.net.now)
            self.net.run()
        self.net.restart_router()
        for process in self.processes.values():
            process.resume()
            process.connect()
            process.got()
        self.processes["a"].register("topic", credit=2, tag=0)


def test_only_transitions_of_the_tables_are_seen_and_most_of_them() -> None:
    seen.clear()
    converse(examples=100, derandomize=True)
    tables = TRANSITIONS.keys() | DELIVERY_TRANSITIONS.keys() | OF_LINKS.keys()
    assert seen.keys() <= tables
    missing = tables - seen.keys()
    assert len(missing) <= len(tables) // 4, missing


@pytest.mark.long
def test_only_transitions_of_the_tables_are_seen_in_many_conversations() -> None:
    converse(examples=2000)


def converse(examples: int, derandomize: bool = False) -> None:
    settings = hypothesis.settings(
        derandomize=derandomize, database=None, max_examples=examples, stateful_step_count=60, deadline=None
    )
    run_state_machine_as_test(Conversation, settings=settings)
