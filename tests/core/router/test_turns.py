"""A peer's messages are handled for a turn; the rest waits, in its order, while others are heard."""

from __future__ import annotations

import pytest

from rpcmq.core.router.actions import Answer, Disconnect
from rpcmq.core.router.turns import TURN_STEPS
from rpcmq.testing.network import Network, Process
from rpcmq.wire import Address, Flag, Kind, control, pack, split

#: Subscribers, of whom each gets a copy of each event: a few events are a turn.
SUBSCRIBERS = 100
A_TURN = TURN_STEPS // SUBSCRIBERS + 1


@pytest.fixture
def subscribers(net: Network) -> list[Process]:
    made = [net.process(f"sub-{i}", queue_type="pubsub") for i in range(SUBSCRIBERS)]
    for process in made:
        process.subscribe("#", window=10_000)
    return made


@pytest.fixture
def pub(net: Network) -> Process:
    return net.process("pub")


def event(process: Process, payload: bytes) -> bytes:
    key = process.uplink.next_key()
    return pack(Kind.PUBLISH, payload, format=1, key=key, address=Address("a").encode())


def receive(net: Network, process: Process, *messages: bytes) -> None:
    """Give the router one batch, and no further turn."""
    assert process.connection is not None
    net.router.turns.spent = 0
    net.router.receive(net.now, process.connection.route, b"".join(messages))


def events(process: Process) -> list[bytes]:
    return [m.payload for m in process.got(Kind.PUBLISH)]


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def test_a_batch_is_handled_for_a_turn_and_goes_on_when_others_were_heard(
    net: Network, pub: Process, subscribers: list[Process]
) -> None:
    other = net.process("other")
    receive(net, pub, *(event(pub, payload) for payload in numbers(0, 200)))
    published = net.router.pubsub.published
    assert published["events"] == A_TURN and net.router.turns.is_over
    assert len(net.link(pub).inbox) == 200 - A_TURN
    # Somebody else is answered before it goes on.
    key = other.uplink.next_key()
    net.router.run_next_turn(net.now)
    receive(net, other, pack(Kind.DECLARE, b"{}", format=1, key=key, address=Address("b").encode()))
    assert [message[5] for message in net.link(other).outbox] == [Kind.REGISTERED]
    assert published["events"] == 2 * A_TURN
    net.run()
    assert all(events(process) == numbers(0, 200) for process in subscribers)
    assert not net.link(pub).inbox and not net.link(pub).inbox_bytes


def test_what_a_sender_sends_meanwhile_comes_after_what_waits(
    net: Network, pub: Process, subscribers: list[Process]
) -> None:
    receive(net, pub, *(event(pub, payload) for payload in numbers(0, 200)))
    for first in (200, 210):
        receive(net, pub, *(event(pub, payload) for payload in numbers(first, first + 10)))
    assert net.router.pubsub.published["events"] == A_TURN
    net.run()
    assert events(subscribers[0]) == numbers(0, 220)


def test_those_who_wait_take_turns(net: Network, subscribers: list[Process]) -> None:
    publishers = [net.process(f"pub-{i}") for i in range(3)]
    for process in publishers:
        receive(net, process, *(event(process, process.identity.encode()) for _ in range(200)))
        net.router.turns.spent = 0
    for _ in range(3):
        net.router.run_next_turn(net.now)
    for process in publishers:
        assert len(net.link(process).inbox) == 200 - 2 * A_TURN, process.identity
    net.run()
    assert len(events(subscribers[0])) == 600


def test_only_what_was_handled_counts_as_received_and_a_resumption_sends_the_rest_again_once(
    net: Network, pub: Process, subscribers: list[Process]
) -> None:
    with net.together():
        for payload in numbers(0, 150):
            pub.publish("a", payload)
        pub.lose()
    pub.connect()
    messages = [event(pub, payload) for payload in numbers(150, 250)]
    for message in messages:
        pub.uplink.send(message)
    assert pub.uplink.batch() == messages
    pub.uplink.batch_was_sent()
    before = net.link(pub).received
    receive(net, pub, *messages)
    assert net.link(pub).received == before + A_TURN
    pub.lose()
    pub.connect()
    net.run()
    assert events(subscribers[0]) == numbers(0, 250)
    assert net.link(pub).received == before + 100


def test_what_a_process_sent_before_its_connection_broke_is_handled_all_the_same(
    net: Network, pub: Process, subscribers: list[Process]
) -> None:
    receive(net, pub, *(event(pub, payload) for payload in numbers(0, 200)))
    pub.die()
    assert events(subscribers[0]) == numbers(0, 200)


def test_a_goodbye_waits_for_what_was_said_before_it(net: Network, pub: Process, subscribers: list[Process]) -> None:
    receive(net, pub, *(event(pub, payload) for payload in numbers(0, 200)))
    receive(net, pub, pack(Kind.GOODBYE))
    assert net.router.links.by_identity("pub") is not None
    net.run()
    assert net.router.links.by_identity("pub") is None
    assert events(subscribers[0]) == numbers(0, 200)


def test_a_window_that_is_full_is_acknowledged_when_the_last_of_it_is_handled(
    net: Network, pub: Process, subscribers: list[Process]
) -> None:
    """Fewer than the messages after which an ACK is due: the sender asked while they waited, and waits for it."""
    receive(net, pub, *(event(pub, payload) for payload in numbers(0, 80)))
    receive(net, pub, pack(Kind.HEARTBEAT))
    link = net.link(pub)
    (told,) = [message for message in link.last_messages if message[5] == Kind.HEARTBEAT]
    assert int.from_bytes(told[28:36]) == A_TURN
    link.last_messages.clear()
    while net.router.turns.is_anybody_waiting:
        net.router.run_next_turn(net.now)
    (ack,) = [message for message in link.last_messages if message[5] == Kind.ACK]
    assert int.from_bytes(ack[28:36]) == 80
    # Nothing of this went through the session of `pub`, which would not believe it.
    link.last_messages.clear()


def test_what_waits_is_bounded_in_bytes_and_ends_the_link_that_sends_it(make_net) -> None:
    net = make_net(inbox_max_bytes=20_000)
    sub, pub, other = net.process("sub", queue_type="pubsub"), net.process("pub"), net.process("other")
    sub.subscribe("#", window=10_000)
    query = control(Kind.QUERY, {"what": "control.purge", "topic": "nobody"}, key=pub.uplink.next_key())
    receive(net, pub, query, *(event(pub, b"x" * 100) for _ in range(50)))
    link = net.link(pub)
    assert 50 * 100 < link.inbox_bytes < 20_000
    for _ in range(3):
        receive(net, pub, *(event(pub, b"x" * 100) for _ in range(50)))
    assert net.router.links.by_identity("pub") is None and not link.inbox and not link.inbox_bytes
    answer, cut, *_ = [a for a in net.router.actions if isinstance(a, Answer | Disconnect)]
    assert isinstance(answer, Answer) and b"link.inbox_max_bytes = 20000" in split(answer.message)[0]
    assert isinstance(cut, Disconnect)
    net.run()
    assert events(sub) == []
    other.publish("a", b"after")
    assert events(sub) == [b"after"]


def test_a_link_that_ends_in_its_turn_leaves_nothing(net: Network, pub: Process, subscribers: list[Process]) -> None:
    receive(net, pub, *(event(pub, payload) for payload in numbers(0, 200)))
    link = net.link(pub)
    net.router.links.end(net.now, link, "replaced")
    assert not link.inbox and not link.inbox_bytes
    net.run()
    assert len(events(subscribers[0])) == A_TURN
    assert not net.router.turns.is_anybody_waiting


def fanout(net: Network, pub: Process) -> list[bytes]:
    for number in range(100):
        net.process(f"node-{number}").register("nodes", credit=1000)
    return [
        pack(
            Kind.CAST, format=1, flags=Flag.FANOUT, key=pub.uplink.next_key(), address=Address("nodes").encode()
        )
        for _ in range(100)
    ]  # fmt: skip


def purges(net: Network, pub: Process) -> list[bytes]:
    body = {"what": "control.purge", "topic": "nobody"}
    return [control(Kind.QUERY, body, key=pub.uplink.next_key()) for _ in range(100)]


def introductions(net: Network, pub: Process) -> list[bytes]:
    for number in range(300):
        net.process(f"node-{number}").register("nodes", peer_url="tcp://127.0.0.1:1")
    return [
        pack(Kind.INTRODUCE, key=pub.uplink.next_key(), address=Address("nodes").encode()) for _ in range(100)
    ]  # fmt: skip


def registrations(net: Network, pub: Process) -> list[bytes]:
    body = {"credit": 1, "recent": bytes(20 * 300).hex()}
    return [
        control(Kind.REGISTER, body, key=pub.uplink.next_key(), consumer=tag, address=Address("nodes").encode())
        for tag in range(100)
    ]


@pytest.mark.parametrize("make", [fanout, purges, introductions, registrations])
def test_whatever_costs_more_than_its_own_handling_is_counted(net: Network, pub: Process, make) -> None:
    messages = make(net, pub)
    net.router.turns.spent = 0
    receive(net, pub, *messages)
    assert 0 < len(net.link(pub).inbox) < len(messages)
    while net.router.turns.is_anybody_waiting:
        net.router.run_next_turn(net.now)
    assert not net.router.refused


def test_ordinary_messages_are_never_put_off(net: Network, pub: Process) -> None:
    node = net.process("node")
    node.register("compute", credit=5000)
    keys = [pub.uplink.next_key() for _ in range(4096)]
    receive(net, pub, *(pack(Kind.CAST, format=1, key=key, address=Address("compute").encode()) for key in keys))
    assert not net.link(pub).inbox
    assert len(net.link(node).outbox) == 4096
