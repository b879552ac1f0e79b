"""Many links, and links that end while a turn over them is under way."""

from __future__ import annotations

from rpcmq.core.common.session import Session
from rpcmq.core.router.handshake import Handshake
from rpcmq.core.router.link_states import LinkState
from rpcmq.core.router.link_table import LinkTable
from rpcmq.core.router.liveness import Liveness
from rpcmq.core.router.model import Link
from rpcmq.core.router.settings import Settings
from rpcmq.wire import VERSION, Kind, control


class Table:
    """A link table by itself, with what it told its owner."""

    def __init__(self, **settings: float) -> None:
        #: The reports in their order: of links that ended the reason, of others their state.
        self.told: list[tuple[str, str]] = []
        self.ended: list[tuple[str, str]] = []
        self.tokens = iter(range(1_000_000))
        of_settings = Settings(**settings)  # type: ignore[arg-type]
        self.links = LinkTable(self._is_ended, lambda now, link: self.told.append((link.identity, link.state.value)))
        self.handshake = Handshake(of_settings, self.links, 1, lambda: str(next(self.tokens)))
        self.liveness = Liveness(of_settings, self.links)

    def _is_ended(self, now: float, link: Link, reason: str) -> None:
        self.told.append((link.identity, reason))
        self.ended.append((link.identity, reason))

    def hello(self, now: float, number: int) -> Link:
        body = {"identity": f"p{number}", "queue_type": "roundrobin", "versions": [VERSION]}
        assert self.handshake.hello(now, b"%d" % number, control(Kind.HELLO, body)) is None
        link = self.links.by_identity(f"p{number}")
        assert link is not None
        return link

    def run(self, now: float, until: float) -> float:
        """Tick when it wants to, until that time; returns how many links the busiest tick looked at."""
        while (due := max(now, self.liveness.next_deadline())) <= until:
            self.liveness.tick(due)
            assert self.liveness.next_deadline() > due
            now = due
        return now


def test_of_many_links_each_is_looked_at_once_a_turn():
    table = Table(unresponsive_seconds=12.0)
    links = [table.hello(0.0, i) for i in range(2_300)]
    table.run(0.0, 11.9)
    assert {link.state for link in links} == {LinkState.ANSWERING}
    table.run(11.9, 13.2)
    assert {link.state for link in links} == {LinkState.QUIET}


def test_many_that_leave_together_are_spared_kept_and_ended_in_time():
    table = Table(consumer_grace_seconds=0.5, resume_seconds=30.0)
    links = [table.hello(0.0, i) for i in range(1_200)]
    for i in range(1_200):
        table.links.lost(1.0, b"%d" % i)
    assert table.liveness.tick(1.4) == []
    assert table.liveness.tick(1.5) == links
    assert table.liveness.tick(2.0) == []
    table.run(2.0, 30.9)
    assert table.ended == [] and len(table.links) == 1_200
    table.run(30.9, 31.0)
    assert len(table.ended) == 1_200 and len(table.links) == 0
    assert not table.links.away and not table.links.in_grace


def test_one_that_comes_back_in_time_is_not_ended():
    table = Table(consumer_grace_seconds=0.5, resume_seconds=30.0)
    link = table.hello(0.0, 1)
    table.links.lost(1.0, b"1")
    body = {"identity": "p1", "queue_type": "roundrobin", "versions": [VERSION], "token": link.token, "received": 0}
    assert table.handshake.hello(1.2, b"again", control(Kind.HELLO, body)) is None
    assert table.liveness.tick(1.6) == []
    table.links.lost(20.0, b"again")
    assert table.liveness.tick(20.4) == [] and table.liveness.tick(20.5) == [link]
    table.run(20.5, 49.9)
    assert table.ended == []
    table.run(49.9, 50.0)
    assert [identity for identity, _ in table.ended] == ["p1"]


def test_a_link_that_ends_in_the_middle_of_a_turn_does_not_end_its_successor():
    table = Table(outbox_max_messages=100)
    for i in range(1_000):
        table.hello(0.0, i)
    table.liveness.tick(0.0)  # the second half is yet to be looked at
    old = table.links.by_identity("p0")
    assert old is not None and isinstance(old, Session)
    for _ in range(101):
        old.send(control(Kind.ANSWER))
    table.links.end(0.1, old, "said goodbye")
    successor = table.hello(0.2, 0)
    table.run(0.2, 3.0)
    assert table.ended == [("p0", "said goodbye")]
    assert table.links.by_identity("p0") is successor


def test_who_is_silent_is_known_before_the_work_of_others_is_given_away():
    table = Table(outbox_max_messages=100, unresponsive_seconds=12.0)
    full, silent = table.hello(0.0, 1), table.hello(0.0, 2)
    table.run(0.0, 11.0)
    table.told.clear()
    full.heard = 11.0
    for _ in range(101):
        full.send(control(Kind.ANSWER))
    table.liveness._next_check = 12.0
    table.liveness.tick(12.0)
    assert silent.state is LinkState.QUIET
    assert table.told == [
        ("p2", "quiet"),
        ("p1", "101 messages wait to be sent; link.outbox_max_messages = 100"),
    ]
