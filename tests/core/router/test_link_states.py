"""The transition table of a link: each row by what really happens to a router, and that nothing else is taken."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import rpcmq
from rpcmq.core.common import illegal_events
from rpcmq.core.common.illegal_events import IllegalEvent
from rpcmq.core.router.link_states import TRANSITIONS, LinkState
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.model import Link
from rpcmq.testing.network import Network, Process
from rpcmq.wire import NO_TTL, Address, Kind, json_bytes, pack

NEW, ANSWERING, UNRESPONSIVE, QUIET, AWAY, ENDED = LinkState
EVENTS = sorted({event for _, event in TRANSITIONS})
ILLEGAL = [(state, event) for state in LinkState for event in EVENTS if (state, event) not in TRANSITIONS]
Row = tuple[LinkState, str]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[Row]:
    """The events of all links but an operator's, each with the state in which it came."""
    rows: list[Row] = []
    happens = LinkTable.happens

    def noted(self: LinkTable, now: float, link: Link, event: str) -> bool:
        if link.identity != "operator":
            rows.append((link.state, event))
        return happens(self, now, link, event)

    monkeypatch.setattr(LinkTable, "happens", noted)
    return rows


# --- how a link comes into a state, and what then happens to it ------------------------------------


def arrive(net: Network, state: LinkState) -> Process:
    """A process with a link in ``state``, by what happens on its connection."""
    node = net.process("node")
    if state is UNRESPONSIVE:
        node.register("compute")
    if state in (UNRESPONSIVE, QUIET):
        node.pause()
        net.advance(net.settings.unresponsive_seconds + 1)
        node.resume()
    elif state is AWAY:
        node.lose()
    assert net.link(node).state is state
    return node


def another_connects(net: Network, node: Process) -> None:
    net.process("another")


def fail_to_connect(net: Network, node: Process) -> None:
    """Its first HELLO hits a defect."""

    def connected(now: float, link: Link) -> None:
        raise RuntimeError("a defect of access control")

    net.router.links.access.connected = connected  # type: ignore[method-assign]
    net.process("unlucky")
    noted = [note.event for note in net.notes]
    net.notes.clear()
    assert noted == ["link ended", "internal error"]


def fall_silent(net: Network, node: Process) -> None:
    node.register("compute")
    node.pause()
    net.advance(net.settings.unresponsive_seconds + 1)


def fall_idle(net: Network, node: Process) -> None:
    node.pause()
    net.advance(net.settings.unresponsive_seconds + 1)


def lose_what_counts(net: Network, node: Process) -> None:
    """Unresponsive, because of its one registration, which an operator's node type takes from it."""
    node.pause()
    for consumer in list(net.link(node).consumers.values()):
        net.router.roundrobin.registrations.end(net.now, consumer, "test")
    net.advance(2.0)


def get_what_counts(net: Network, node: Process) -> None:
    """Quiet, until a REQUEST that had come before has its turn."""
    link, router = net.link(node), net.router
    call = pack(Kind.REQUEST, key=node.uplink.next_key(), address=Address("compute").encode(), ttl=NO_TTL, format=1)
    router.turns.defer(link, [call])
    while router.turns.is_anybody_waiting:
        router.run_next_turn(net.now)
    assert link.calls
    node.pause()
    net.advance(2.0)


def speak(net: Network, node: Process) -> None:
    node.request("nowhere", ttl=1)


def lapse(net: Network, node: Process) -> None:
    net.advance(net.settings.consumer_grace_seconds + 1)


def reconnect(net: Network, node: Process) -> None:
    node.connect()


def lose(net: Network, node: Process) -> None:
    net.lose_at_router(node)


def stop(net: Network, node: Process) -> None:
    node.stop()


def kick(net: Network, node: Process) -> None:
    operator = net.process("operator")
    assert operator.send(Kind.QUERY, json_bytes({"what": "control.kick", "identity": "node"}), format=1).answers


SCENARIOS: dict[Row, Callable[[Network, Process], None]] = {
    (NEW, "connected"): another_connects,
    (NEW, "ended"): fail_to_connect,
    (ANSWERING, "connected"): reconnect,
    (ANSWERING, "silent"): fall_silent,
    (ANSWERING, "idle"): fall_idle,
    (ANSWERING, "lost"): lose,
    (ANSWERING, "ended"): stop,
    (UNRESPONSIVE, "connected"): reconnect,
    (UNRESPONSIVE, "heard"): speak,
    (UNRESPONSIVE, "idle"): lose_what_counts,
    (UNRESPONSIVE, "lost"): lose,
    (UNRESPONSIVE, "ended"): kick,
    (QUIET, "connected"): reconnect,
    (QUIET, "heard"): speak,
    (QUIET, "silent"): get_what_counts,
    (QUIET, "lost"): lose,
    (QUIET, "ended"): kick,
    (AWAY, "connected"): reconnect,
    (AWAY, "lapsed"): lapse,
    (AWAY, "ended"): kick,
}


@pytest.mark.parametrize(("state", "event"), TRANSITIONS, ids=str)
def test_each_row_of_the_table_happens_to_a_router(net: Network, seen: list[Row], state: LinkState, event: str) -> None:
    node = arrive(net, ANSWERING if state is NEW else state)
    link = net.link(node)
    seen.clear()

    SCENARIOS[state, event](net, node)

    assert (state, event) in seen
    assert set(seen) <= TRANSITIONS.keys()
    if state is not NEW:
        assert seen[0] == (state, event), "nothing else comes before"
        later = link.state
        for before, following in reversed(seen[1:]):
            assert TRANSITIONS[before, following] is later
            later = before
        assert TRANSITIONS[state, event] is later


@pytest.mark.parametrize(("state", "event"), ILLEGAL, ids=str)
def test_an_illegal_event_changes_nothing_and_is_never_nothing(
    net: Network, monkeypatch: pytest.MonkeyPatch, state: LinkState, event: str
) -> None:
    link, links = made(net, state), net.router.links
    tables = (list(links.away), list(links.in_grace), len(links))

    with pytest.raises(IllegalEvent, match=f"link: {event} while it is {state.value}"):
        links.happens(net.now, link, event)
    illegal_events.raised.clear()
    monkeypatch.setattr(illegal_events, "_strict", False)
    assert not links.happens(net.now, link, event)
    links.illegal.counts.clear()

    for _ in range(3):
        assert not links.happens(net.now, link, event)

    assert link.state is state and link.is_responsive is (state is ANSWERING)
    assert tables == (list(links.away), list(links.in_grace), len(links))
    assert links.illegal.counts == {f"link: {event} while it is {state.value}": 3}


def made(net: Network, state: LinkState) -> Link:
    if state is NEW:
        return Link([], "new", "roundrobin", 77, 1)
    node = arrive(net, ANSWERING if state is ENDED else state)
    link = net.link(node)
    if state is ENDED:
        node.stop()
    assert link.state is state
    return link


def test_in_production_an_illegal_event_is_logged_once_and_counted_in_the_views(
    make_net: Callable[..., Network], monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Network()
    operator, node = net.process("operator"), net.process("node")
    link = net.link(node)
    monkeypatch.setattr(illegal_events, "_strict", False)

    for _ in range(3):
        net.router.links.heard_again(net.now, link)
    net.run()

    (logged,) = [note for note in net.notes if note.event == "internal error"]
    assert "link: heard while it is answering" in logged.text and logged.identity == "node"
    for view in ("summary", "stats"):
        assert operator.query(view)["counters"]["illegal event: link: heard while it is answering"] == 3


def test_a_link_ends_once(net: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where two limits are broken at once: its consumers and callers are told once."""
    node = net.process("node")
    link = net.link(node)
    net.router.links.end(net.now, link, "kicked")
    net.run()
    monkeypatch.setattr(illegal_events, "_strict", False)
    net.router.links.on_fault = lambda now, identity, key: None
    net.router.links.end(net.now, link, "broke a limit")
    net.run()
    assert [note.text for note in net.notes if note.event == "link ended"] == ["node (roundrobin): kicked"]
    assert net.router.links.counters["links ended"] == 1


def test_a_link_that_may_not_be_admitted_after_all_is_not_left_behind(net: Network) -> None:
    """Nobody would end it, and its identity would be taken for good."""
    access = net.router.links.access
    admit = access.admit

    class Broken:
        def __getattr__(self, name: str) -> Any:
            return getattr(admit("", "node"), name)

        def attach(self, link: Link) -> None:
            raise RuntimeError("a defect of access control")

    access.admit = lambda user, identity: Broken()  # type: ignore[method-assign]
    net.process("node")
    assert len(net.router.links) == 0
    del access.admit
    net.notes.clear()
    assert net.link(net.process("node")).state is ANSWERING


def test_the_state_of_a_link_is_changed_in_one_place() -> None:
    package = Path(rpcmq.__file__).parent
    places = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if any(text in path.read_text() for text in ("link.state =", "each.state =", "link.is_responsive ="))
    }
    assert places == {"core/router/link_table.py"}
