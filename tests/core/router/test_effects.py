"""Durable entries are stored before anything is sent, also when the store fails."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from rpcmq.core.common.session import Session
from rpcmq.core.router.actions import Answer, LogEvent
from rpcmq.core.router.effects import NO_STORE, Effects, StoreError
from rpcmq.core.router.mesh.relayed_connections import RelayedConnections
from rpcmq.core.router.model import Link
from rpcmq.core.router.node_type import NodeContext, NodeType
from rpcmq.core.router.router import NODE_TYPES, Router
from rpcmq.testing.network import Network
from rpcmq.wire import KEY, Kind, pack, payload_of

KEEP = 0x70


class Ledger(NodeType):
    """Keeps what it is sent, and confirms it."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self.kinds = {KEEP: self._keep}  # type: ignore[dict-item]

    def _keep(self, now: float, link: Link, message: bytes) -> None:
        self._context.persist(bytes(payload_of(message)))
        link.send(pack(Kind.CONFIRM, b"kept", key=message[KEY]))
        self._context.act(LogEvent("kept", "one more", link.identity))


class LedgerRouter(Router):
    node_types = (*NODE_TYPES, Ledger)


class Disk:
    """A store that fails as often as it is told to, and says in which order things happen."""

    def __init__(self) -> None:
        self.fails = 0
        self.entries: list[bytes] = []
        self.asked: list[list[bytes]] = []

    def persist(self, entries: Sequence[bytes]) -> None:
        self.asked.append(list(entries))
        if self.fails:
            self.fails -= 1
            raise OSError("disk full")
        self.entries += entries


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def ledger(disk: Disk) -> Network:
    net = Network(engine=LedgerRouter)
    net.store = disk
    return net


def test_an_entry_is_durable_before_it_is_confirmed(ledger: Network, disk: Disk) -> None:
    api = ledger.process("api")
    first = api.send(KEEP, b"one")
    assert disk.entries == [b"one"] and first.answers[0].kind is Kind.CONFIRM
    assert [note.text for note in ledger.notes if note.event == "kept"] == ["one more"]


def test_while_the_store_fails_nothing_is_sent_and_nothing_is_done(ledger: Network, disk: Disk) -> None:
    api, node, other = ledger.process("api"), ledger.process("node"), ledger.process("other")
    node.register("compute")
    disk.fails = 1000
    kept = api.send(KEEP, b"one")
    also = api.send(KEEP, b"two")
    call = other.request("compute")
    assert not kept.answers and not also.answers and not disk.entries
    # What does not depend on it waits as well: it may lead to something that does.
    assert not node.got(Kind.REQUEST)
    assert not [note for note in ledger.notes if note.event == "kept"]
    disk.fails = 0
    ledger.run()
    assert disk.entries == [b"one", b"two"]
    assert kept.answers[0].kind is also.answers[0].kind is Kind.CONFIRM
    node.reply(node.take(Kind.REQUEST))
    assert call.end.kind is Kind.REPLY
    # Nothing is asked twice that went well, and the order is kept.
    assert disk.asked[-1] == [b"one", b"two"] and all(each[0] == b"one" for each in disk.asked)


def test_the_order_of_effects() -> None:
    order: list[str] = []
    dirty: list[Session] = []
    effects = Effects(dirty, RelayedConnections(Counter()))

    class Recording:
        def persist(self, entries: Sequence[bytes]) -> None:
            order.append(f"store {b''.join(entries).decode()}")

    def send(session: Session) -> None:
        order.append("send")
        if len(order) < 3:
            effects.durable.append(b"c")
            effects.actions.append(Answer(b"late", b""))

    def act(action: Any) -> None:
        order.append(f"act {action.route.decode()}")

    link: Any = Session(dirty)
    link.mark()
    effects.durable += [b"a", b"b"]
    effects.actions.append(Answer(b"first", b""))
    effects.perform(Recording(), send, act, lambda route, messages: True)
    assert order == ["store ab", "send", "act first", "store c", "act late"] and not effects


def test_a_router_without_a_store_makes_nothing_durable() -> None:
    effects = Effects([], RelayedConnections(Counter()))
    effects.durable.append(b"entry")
    with pytest.raises(StoreError, match="the router has no store"):
        effects.perform(NO_STORE, lambda session: None, lambda action: None, lambda route, messages: True)
    assert effects.durable == [b"entry"]


def test_two_node_types_cannot_take_one_kind() -> None:
    class Twice(Router):
        node_types = (*NODE_TYPES, Ledger, Ledger)

    with pytest.raises(AssertionError, match="two node types"):
        Network(engine=Twice)
