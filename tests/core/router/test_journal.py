"""The journal of rare events, and the internal error that tells them."""

from __future__ import annotations

from typing import Any

import pytest

from rpcmq.core.router.actions import LogEvent
from rpcmq.core.router.journal import MAX_ENTRIES, Journal
from rpcmq.core.router.roundrobin.request_table import RequestTable
from rpcmq.testing.network import Network
from rpcmq.wire import Flag, Kind


def test_the_story_of_one_key_in_its_order():
    journal = Journal()
    journal.note(1.0, b"a", "waits again")
    journal.note(2.0, b"b", "came twice")
    journal.note(2.5, b"a", "delivered again", "node-2")
    assert list(journal.story(3.0, b"a")) == ["2.000 s ago: waits again", "0.500 s ago: delivered again (node-2)"]


def test_the_oldest_entries_are_forgotten():
    journal = Journal()
    for number in range(MAX_ENTRIES + 1):
        journal.note(0.0, b"%d" % number, "came twice")
    assert len(journal) == MAX_ENTRIES
    assert not list(journal.story(0.0, b"0")) and list(journal.story(0.0, b"1"))


def test_calls_that_are_delivered_and_answered_are_not_written_down(net: Network):
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=10)
    for _ in range(10):
        api.request("compute", ttl=30)
        node.reply(node.take(Kind.REQUEST))
        api.cast("compute")
        node.settle(node.take(Kind.CAST))
    assert len(net.router.faults.journal) == 0


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> Network:
    """A network whose router fails when a call is cancelled."""

    def fail(*args: Any) -> None:
        raise RuntimeError("a fault of the router")

    monkeypatch.setattr(RequestTable, "cancel", fail)
    return Network()


def internal_error(net: Network) -> LogEvent:
    (note,) = [note for note in net.notes if note.event == "internal error"]
    return note


def test_an_internal_error_tells_what_became_of_the_message_before(faulty: Network):
    net = faulty
    api, first, second = net.process("api"), net.process("node-1"), net.process("node-2")
    first.register("compute")
    call = api.request("compute", "reboot", ttl=30, flags=Flag.IDEMPOTENT)
    first.lose()
    second.register("compute")
    net.advance(1.0)
    api.cancel(call)
    error = internal_error(net)
    assert "RuntimeError: a fault of the router" in error.text
    assert f"The message {call.key.hex()} before that:" in error.text
    assert error.fields["story"] == [
        "0.500 s ago: consumer gone (node-1)",
        "0.500 s ago: delivered again (node-2)",
        "now: 1.000 s old, of 'compute', attempt 1",
        "now: with node-2 for 0.500 s",
    ]
    assert all(line in error.text for line in error.fields["story"])


def test_an_internal_error_tells_where_a_waiting_call_is(faulty: Network):
    api = faulty.process("api")
    call = api.request("compute", ttl=30)
    api.cancel(call)
    assert internal_error(faulty).fields["story"][-1] == "now: waits in 'compute'"


def test_an_internal_error_in_a_timeout_tells_its_message(net: Network, monkeypatch: pytest.MonkeyPatch):
    reported: list[tuple[Any, ...]] = []
    monkeypatch.setattr(RequestTable, "withdraw", lambda *args: 1 / 0)
    net.router.dispatch.requests.on_fault = lambda *args: reported.append(args)
    call = net.process("api").request("compute", ttl=1)
    net.advance(2.0)
    assert [(identity, key) for _, identity, key in reported] == [("", call.key)]


def test_tables_that_cannot_be_read_do_not_hide_the_error(net: Network, monkeypatch: pytest.MonkeyPatch):
    faults = net.router.faults
    faults.whereabouts = lambda now, key: 1 / 0  # type: ignore[assignment,return-value]
    try:
        raise RuntimeError("the first one")
    except RuntimeError:
        faults.report(net.now, "api", b"key")
    (note,) = [each for each in net.router.actions if isinstance(each, LogEvent)]
    assert "the first one" in note.text and "not to be told: ZeroDivisionError" in note.text
    net.router.actions.clear()
