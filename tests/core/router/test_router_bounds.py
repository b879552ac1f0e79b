"""Bounds of the sending, keeping and work that one peer can cause: its own, not its victim's."""

from __future__ import annotations

import re

import pytest

from rpcmq.core.common.session import BATCH_BYTES, BATCH_MESSAGES, MAX_FAILED_RESUMPTIONS, WINDOW_BYTES, Session
from rpcmq.core.router.rights import EVERYTHING, Key
from rpcmq.core.router.roundrobin.answer_bounds import MOST_WORK_BYTES
from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.invariants import check_router
from rpcmq.testing.network import Call, Network, Process
from rpcmq.wire import (
    DETACH_BYTES,
    HEADER,
    MAX_INLINE_BYTES,
    MAX_NAME_BYTES,
    VERSION,
    Address,
    Flag,
    Kind,
    control,
    pack,
    size_of,
)

COMPUTE = Address("compute").encode()
KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def mallory(net: Network) -> Process:
    return net.process("mallory")


def inline(key: bytes, size_bytes: int) -> bytes:
    """A cast whose payload is not detached, however large."""
    head = pack(Kind.CAST, b"", key=key, format=1, address=COMPUTE)
    return (len(head) + size_bytes).to_bytes(4) + head[4:] + bytes(size_bytes)


# --- batches ---------------------------------------------------------------------------------


def test_a_large_payload_that_is_not_detached_is_refused(net: Network, mallory: Process):
    """It would be copied into a batch with others, which together no peer may be able to take."""
    node = net.process("node")
    node.register("compute", credit=100)
    mallory.inject(b"".join(inline(mallory.uplink.next_key(), 3 * MIB // 2) for _ in range(20)))
    assert net.router.refused == {"length": 1}
    assert [r for r, _ in mallory.refusals] == ["protocol"] and "must be detached" in mallory.refusals[0][1]
    assert node.got(Kind.CAST) == []


def test_the_longest_message_that_needs_no_frame_of_its_own_passes(net: Network, mallory: Process):
    node = net.process("node")
    longest = Address("t" * MAX_NAME_BYTES, "s" * MAX_NAME_BYTES, "e" * MAX_NAME_BYTES)
    node.register(longest.topic, server=longest.server, exchange=longest.exchange, credit=10)
    message = pack(
        Kind.CAST, bytes(DETACH_BYTES - 1), key=mallory.uplink.next_key(), format=1, address=longest.encode(),
        method=b"m" * 255, trace=b"t" * 255,
    )  # fmt: skip
    assert len(message) == MAX_INLINE_BYTES
    mallory.uplink.send(message)
    net.run()
    assert len(node.got(Kind.CAST)) == 1 and net.router.refused == {}


def test_a_process_refuses_it_too(net: Network, mallory: Process):
    head = HEADER.pack(HEADER.size + DETACH_BYTES + 2000, VERSION, Kind.REPLY, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    mallory.uplink.receive(net.now, head + bytes(DETACH_BYTES + 2000))
    assert mallory.uplink.discarded == {"length": 1}


def test_a_batch_is_bounded_in_bytes(net: Network):
    session = Session([])
    for _ in range(2 * BATCH_MESSAGES):
        session.send(pack(Kind.CAST, bytes(DETACH_BYTES - 1)))
    batch = session.batch()
    assert sum(map(len, batch)) <= BATCH_MESSAGES * MAX_INLINE_BYTES < 16 * MIB
    session = Session([])
    for size in (100 * KIB, 40 * MIB, 100, 600 * KIB, 600 * KIB):
        session.send(pack(Kind.CAST, bytes(size)))
    sizes: list[list[int]] = []
    while session.may_send:
        sizes.append([size_of(message) for message in session.batch()])
        session.batch_was_sent()
        session.acknowledged(session._sent_base + session.unacknowledged)
    assert [len(batch) for batch in sizes] == [1, 1, 2, 1]
    assert all(len(batch) == 1 or sum(batch) <= BATCH_BYTES for batch in sizes)


def test_a_payload_beyond_the_limit_is_refused_by_name_and_the_rest_of_its_batch_passes():
    net = Network(Settings(message_max_bytes=MIB))
    mallory, node = net.process("mallory"), net.process("node")
    node.register("compute", credit=10)
    with net.together():
        mallory.cast("compute", payload=b"before")
        large = mallory.cast("compute", payload=bytes(MIB + 1))
        mallory.cast("compute", payload=b"after")
    assert [m.payload for m in node.got(Kind.CAST)] == [b"before", b"after"]
    (error,) = large.answers
    assert error.outcome is Outcome.PROTOCOL
    assert error.body["text"] == f"payload of {MIB + 1} bytes exceeds message.max_bytes = {MIB}"
    assert net.router.refused == {"size": 1} and net.link(mallory).received == 3


# --- what a peer does not take ---------------------------------------------------------------


def test_no_more_is_sent_than_a_peer_may_leave_unacknowledged(net: Network, mallory: Process):
    session = Session([])
    for _ in range(40):
        session.send(pack(Kind.CAST, bytes(MIB)))
    while session.may_send:
        session.batch()
        session.batch_was_sent()
    assert WINDOW_BYTES <= session.sent_bytes <= WINDOW_BYTES + MIB + KIB
    sent = session.unacknowledged
    session.dirty.clear()
    session.marked = False
    session.acknowledged(5)
    assert session.may_send and session.dirty == [session], "what waits is sent as soon as there is room"
    while session.may_send:
        session.batch()
        session.batch_was_sent()
    assert session.unacknowledged == sent


def test_acknowledgements_within_a_batch(net: Network):
    session = Session([])
    messages = [pack(Kind.CAST, bytes(n), sequence=n + 1) for n in range(10)]
    for message in messages:
        session.send(message)
    session.batch()
    session.batch_was_sent()
    assert session.acknowledged(3) == messages[:3]
    assert session.sent_bytes == sum(map(size_of, messages[3:])) and session.sent == messages[3:]
    assert session.find_sent(messages[5][16:36]) == messages[5]
    assert session.acknowledged(10) == messages[3:] and session.sent_bytes == 0


def test_what_is_said_about_a_link_does_not_pile_up(net: Network, mallory: Process):
    """A peer that asks for heartbeats and reads none made the router keep them all."""
    link = net.link(mallory)
    for _ in range(1000):
        net.router.receive(net.now, link.route or b"", pack(Kind.HEARTBEAT, sequence=0, flags=Flag.ANSWER_WANTED))
        net.router.receive(net.now, link.route or b"", b"garbage")
    assert len(link.last_messages) <= 4
    net.run()
    check_router(net.router)


def test_what_ends_each_connection_is_not_sent_for_ever(net: Network):
    """Should a message ever be one that the peer's transport can't take: its link starts over without it."""
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=10)
    link, router = net.link(node), net.router
    node.cut_off()
    call = api.request("compute", ttl=600)
    received = link._sent_base
    hellos = 0
    while not call.ends and hellos < 20:
        hellos += 1
        router.lost(net.now, link.route or b"")
        body = {"identity": "node", "queue_type": "roundrobin", "versions": [1], "token": link.token}
        router.receive(net.now, b"r%d" % hellos, control(Kind.HELLO, body | {"received": received}))
        net.run()
        while link.may_send:
            link.batch()
            link.batch_was_sent()
    assert hellos == MAX_FAILED_RESUMPTIONS + 2
    assert call.end.outcome is Outcome.LINK_LOST and "may have run" in call.end.body["text"]
    assert router.links.by_identity("node") is not link
    check_router(router)


def unread(net: Network, node: Process) -> None:
    """From now on ``node`` reads nothing, and its heartbeats still come."""
    node.delay = 1e9


def test_a_consumer_that_does_not_take_what_it_is_sent_gets_no_more_and_others_do(net: Network):
    """Its messages wait in the queue, which is bounded, and where another consumer can take them."""
    api, slow = net.process("api"), net.process("slow")
    slow.register("compute", credit=1000)
    unread(net, slow)
    for _ in range(40):
        api.cast("compute", payload=bytes(MIB))
    link = net.link(slow)
    assert WINDOW_BYTES <= link.sent_bytes <= WINDOW_BYTES + 2 * MIB and link.is_full and not link.outbox
    (topic,) = net.router.directory
    delivered = link.unacknowledged - len(slow.got(Kind.REGISTERED))
    assert len(topic.queue) == 40 - delivered
    check_router(net.router)
    quick = net.process("quick")
    quick.register("compute", credit=1000)
    assert len(quick.got(Kind.CAST)) == 40 - delivered
    # Acknowledged at last, it is given work again.
    count = link._sent_base + link.unacknowledged
    net.router.receive(net.now, link.route or b"", pack(Kind.ACK, sequence=count))
    assert not link.is_full and {c.credit for c in link.consumers.values()} == {1000}
    check_router(net.router)


def test_a_subscriber_that_does_not_take_what_it_is_sent_loses_events_and_nobody_else(net: Network):
    pub, slow, quick = (
        net.process("pub"),
        net.process("slow", queue_type="pubsub"),
        net.process("quick", queue_type="pubsub"),
    )
    for each in (slow, quick):
        each.subscribe("#", window=60_000)
    unread(net, slow)
    for _ in range(100):
        pub.publish("a", bytes(MIB))
    link = net.link(slow)
    assert link.sent_bytes <= WINDOW_BYTES + 2 * MIB and not link.outbox
    assert link.window is not None and link.window.size_bytes <= net.router.settings.pubsub_max_bytes
    assert len(quick.got(Kind.PUBLISH)) == 100


@pytest.mark.parametrize("kind", [Kind.REPLY, Kind.FAULT])
def test_a_queue_server_gets_no_large_answer_of_a_worker_and_other_callers_do(net: Network, kind: Kind):
    queues, node = net.process("queues"), net.process("node")
    node.register("billing", exchange="rpcmq.work", credit=100)
    node.register("billing", credit=100)
    answer = node.reply if kind is Kind.REPLY else node.fault
    for size, is_passed_on in ((MOST_WORK_BYTES // 2, True), (MOST_WORK_BYTES, False), (12 * MIB, False)):
        item = queues.request("billing", exchange="rpcmq.work", ttl=600)
        answer(node.take(Kind.REQUEST), bytes(size))
        assert (item.end.kind is kind) is is_passed_on
        if not is_passed_on:
            assert item.end.outcome is Outcome.PROTOCOL and item.end.body["details"]["started"] == "yes"
            assert re.search(r"node answered with \d+ bytes, and 1114112 are the most", item.end.body["text"])
        call = queues.request("billing", ttl=600)
        answer(node.take(Kind.REQUEST), bytes(size))
        assert len(call.end.payload) == size
    check_router(net.router)


def test_a_queue_server_hears_that_an_item_was_begun_and_gets_nothing_large_beside_it(net: Network):
    queues, node = net.process("queues"), net.process("node")
    node.register("billing", exchange="rpcmq.work")
    item = queues.request("billing", exchange="rpcmq.work", ttl=600)
    request = node.take(Kind.REQUEST)
    node.alive(request, b"begun")
    node.alive(request, bytes(MIB))
    node.reply(request)
    assert item.end.kind is Kind.REPLY
    assert [each.payload for each in queues.got(Kind.ALIVE)] == [b"begun"]


def test_a_large_answer_that_its_caller_does_not_take_becomes_an_error():
    net = Network(Settings(outbox_max_bytes=20 * MIB))
    api, other, node = net.process("api"), net.process("other"), net.process("node")
    node.register("compute", credit=100)
    calls = [api.request("compute", ttl=600) for _ in range(40)]
    requests = [node.take(Kind.REQUEST) for _ in calls]
    api.lose()
    for request in requests:
        node.reply(request, bytes(MIB))
    assert net.link(api).outbox and sum(map(size_of, net.link(api).outbox)) <= 21 * MIB
    call = other.request("compute", ttl=600)
    node.reply(node.take(Kind.REQUEST), bytes(MIB))
    assert len(call.end.payload) == MIB
    net.advance(2)
    api.connect()
    ends = [call.end for call in calls]
    errors = [end for end in ends if end.kind is Kind.ERROR]
    assert len(ends) == 40 and 19 <= len(errors) <= 21
    assert {end.outcome for end in errors} == {Outcome.LINK_LOST}
    assert "link.outbox_max_bytes = " in errors[0].body["text"] and errors[0].body["details"]["started"] == "yes"
    check_router(net.router)


# --- what a link, a key and all together may hold --------------------------------------------

ROOT = Key("root", "ROOT", (EVERYTHING,), identities=("*",))
WEB = Key("web", "WEB", (EVERYTHING,), identities=("*",))


def overloaded(call: Call) -> str:
    """The limit that the router names."""
    assert call.end.outcome is Outcome.OVERLOADED, call.end
    limit = call.end.body["details"]["limit"]
    assert f"{limit} = " in call.end.body["text"]
    return str(limit)


def casts(net: Network, process: Process, count: int, topic: str = "mailbox", size_bytes: int = 100 * KIB) -> int:
    """Send casts until one is refused; how many were taken."""
    process.got(Kind.ERROR)
    for number in range(count):
        process.cast(topic, payload=bytes(size_bytes))
        if process.got(Kind.ERROR):
            return number
    return count


def test_what_one_link_holds_is_bounded_whatever_the_topics():
    net = Network(Settings(link_max_bytes=MIB, queue_max_bytes=1 << 40))
    mallory, api, node = (net.process(name) for name in ("mallory", "api", "node"))
    node.register("compute", credit=1000)
    taken = sum(casts(net, mallory, 5, f"topic-{n}") for n in range(20))
    assert 10 <= taken <= 12 and net.link(mallory).usage.size_bytes <= MIB + 200 * KIB
    assert overloaded(mallory.request("compute")) == "link.max_bytes"
    call = api.request("compute")
    node.reply(node.take(Kind.REQUEST), b"honest ones go on")
    assert call.end.payload == b"honest ones go on"
    assert net.router.dispatch.requests.counters["refused: link.max_bytes"] > 0
    check_router(net.router)


def test_in_flight_messages_count_and_are_given_back_when_they_end():
    net = Network(Settings(link_max_bytes=MIB))
    mallory, node = net.process("mallory"), net.process("node")
    node.register("compute", credit=1000)
    calls = [mallory.request("compute", payload=bytes(100 * KIB), ttl=600) for _ in range(20)]
    refused = [call for call in calls if call.ends]
    assert len(refused) == 9 and {overloaded(call) for call in refused} == {"link.max_bytes"}
    check_router(net.router)
    for request in node.got(Kind.REQUEST):
        node.reply(request)
    assert net.link(mallory).usage.size_bytes == 0
    call = mallory.request("compute", payload=bytes(100 * KIB))
    node.reply(node.take(Kind.REQUEST), b"again")
    assert call.end.payload == b"again"


def test_a_cancelled_call_that_its_consumer_still_has_does_not_keep_its_payload(net: Network, mallory: Process):
    node = net.process("node")
    node.register("compute", credit=1000)
    call = mallory.request("compute", payload=bytes(MIB), ttl=600)
    mallory.cancel(call)
    (consumer,) = net.link(node).consumers.values()
    (delivery,) = consumer.in_flight.values()
    request = delivery.request
    assert request.has_ended and request.size < KIB and net.link(mallory).usage.size_bytes == 0
    check_router(net.router)
    node.reply(node.take(Kind.REQUEST))
    assert not consumer.in_flight


def test_copies_of_a_fanout_share_its_bytes_until_the_last_has_ended(net: Network, mallory: Process):
    nodes = [net.process(f"node-{n}") for n in range(5)]
    for number, node in enumerate(nodes):
        node.register("compute", credit=1 if number else 10)
    for _ in range(2):
        mallory.cast("compute", payload=bytes(MIB), flags=Flag.FANOUT)
    usage = net.link(mallory).usage
    assert 2 * MIB < usage.size_bytes < 2 * MIB + 20 * KIB
    check_router(net.router)
    for node in nodes[1:]:
        node.settle(node.take(Kind.CAST))
        node.settle(node.take(Kind.CAST))
        check_router(net.router)
    assert usage.size_bytes > 2 * MIB
    nodes[0].settle(*nodes[0].got(Kind.CAST))
    assert usage.size_bytes == 0


def test_what_all_links_of_a_key_hold_is_bounded_and_other_keys_go_on():
    net = Network(Settings(max_bytes_per_key=20 * MIB, link_max_bytes=8 * MIB, queue_max_bytes=1 << 40))
    net.router.set_authorized_keys(net.now, [ROOT, WEB])
    node, api = net.process("node", user="ROOT"), net.process("api", user="ROOT")
    node.register("compute", credit=1000)
    # One after the other, as of those who leave when they are refused: what they sent stays.
    for number in range(8):
        mallory = net.process(f"mallory-{number}", user="WEB")
        casts(net, mallory, 60, size_bytes=200 * KIB)
        if number < 4:
            mallory.lose()
            net.advance(40)
    held = net.router.memory.held_bytes
    assert 20 * MIB <= held <= 30 * MIB
    assert overloaded(mallory.request("compute")) == "security.max_bytes_per_key"
    call = api.request("compute")
    node.reply(node.take(Kind.REQUEST), b"fine")
    assert call.end.payload == b"fine"
    check_router(net.router)


def test_when_the_router_holds_too_much_those_with_more_than_their_share_are_refused():
    net = Network(Settings(router_max_bytes=20 * MIB, link_max_bytes=1 << 40, queue_max_bytes=1 << 40))
    node, api, mallory = (net.process(name) for name in ("node", "api", "mallory"))
    node.register("compute", credit=1000)
    assert casts(net, api, 3) == 3
    assert casts(net, mallory, 500) < 310
    assert overloaded(mallory.request("compute")) == "router.max_bytes"
    assert net.router.memory.overdrawn == 1
    call = api.request("compute")
    node.reply(node.take(Kind.REQUEST), b"fine")
    assert call.end.payload == b"fine"
    # When what it had sent is gone it may send again.
    consumer = net.process("consumer")
    consumer.register("mailbox", credit=1000)
    while got := consumer.got(Kind.CAST):
        consumer.settle(*got)
    net.advance(3)
    assert net.router.memory.overdrawn == 0 and not net.link(mallory).overdrawn
    assert casts(net, mallory, 3, "other") == 3
    check_router(net.router)


def test_a_link_that_does_not_take_what_it_is_sent_ends_when_the_router_holds_too_much():
    net = Network(Settings(router_max_bytes=10 * MIB))
    node, api, mallory = net.process("node"), net.process("api"), net.process("mallory")
    node.register("compute", credit=1000)
    calls = [mallory.request("compute", ttl=600) for _ in range(16)]
    mallory.lose()
    for request in node.got(Kind.REQUEST):
        node.reply(request, bytes(MIB))
    assert len(calls) == 16
    net.advance(2)
    assert net.router.links.by_identity("mallory") is None and net.router.refused["out of memory"] == 1
    assert any("router.max_bytes" in note.text for note in net.notes if note.identity == "mallory")
    call = api.request("compute")
    node.reply(node.take(Kind.REQUEST), b"fine")
    assert call.end.payload == b"fine"


def test_methods_that_callers_make_up_are_remembered_within_bounds(net: Network, mallory: Process):
    """The bound was one of two million, of up to 790 bytes each."""
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=1)
    link = net.link(mallory)
    for number in range(0, 12_000, 100):
        messages = [
            pack(Kind.CANCEL if n % 2 else Kind.REQUEST, b"", key=link.origin + (1 + n // 2).to_bytes(8), format=1,
                    address=b"" if n % 2 else COMPUTE, method=b"" if n % 2 else b"%08d" % n + b"x" * 247)
            for n in range(number, number + 100)
        ]  # fmt: skip
        net.router.receive(net.now, link.route or b"", b"".join(messages))
    net.run()
    directory = net.router.directory
    assert len(directory.destinations) <= 5_000
    assert directory._target_bytes == sum(len(key) + 300 for key in directory.destinations) < 4 * MIB
    assert len(list(directory.statistics)) <= net.router.settings.max_methods + 2
    node.inbox.clear()
    for request in [m for m in node.received if m.kind is Kind.REQUEST]:
        node.reply(request)
    call = api.request("compute", "an honest method that nobody remembers")
    node.reply(node.take(Kind.REQUEST), b"fine")
    assert call.end.payload == b"fine"
    check_router(net.router)
    for process in (mallory, api, node):
        process.lose()
    net.advance(2000)
    assert directory.destinations == {} and directory._target_bytes == 0


# --- many at once ----------------------------------------------------------------------------


def flood(net: Network, process: Process, count: int, ttl: int = 1000) -> None:
    """Calls to nobody, in batches."""
    link = net.link(process)
    for _ in range(0, count, 500):
        messages = [
            pack(Kind.REQUEST, b"", key=process.uplink.next_key(), format=1, ttl=ttl, address=COMPUTE)
            for _ in range(500)
        ]
        net.router.receive(net.now, link.route or b"", b"".join(messages))


def test_the_calls_of_a_caller_that_has_gone_are_not_all_ended_in_one_go(net: Network, mallory: Process):
    """100,000 of them held up everybody for a second."""
    router, link = net.router, net.link(mallory)
    flood(net, mallory, 3000, ttl=600_000)
    router.links.end(net.now, link, "gone")
    assert 2000 < len(link.calls) < 3000 and router.in_flight == len(link.calls)
    assert router.next_deadline() <= net.now
    check_router(router)
    # It comes back under the same handle and asks again, for one that has ended and one that has not.
    again = net.process("again")
    net.link(again)
    ticks = 0
    while link.calls:
        ticks += 1
        router.tick(net.now)
        check_router(router)
    assert 8 <= ticks <= 12 and router.in_flight == 0
    (topic,) = router.directory
    assert len(topic.queue) == 0


def test_a_caller_that_comes_back_at_once_may_ask_again_before_all_its_calls_have_ended(net: Network):
    api = net.process("api")
    flood(net, api, 2000, ttl=600_000)
    link, last = net.link(api), net.link(api).origin + (2000).to_bytes(8)
    net.router.links.end(net.now, link, "gone")
    assert last in link.calls
    api.lose()
    api.connect()
    assert net.link(api) is not link and net.link(api).origin == link.origin
    node = net.process("node")
    api.uplink.send(pack(Kind.REQUEST, b"again", key=last, format=1, ttl=600_000, address=COMPUTE))
    net.run()
    assert net.router.refused == {} and len(net.link(api).calls) == 1
    node.register("compute", credit=10)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert Call(api, last).end.payload == b"done"
    check_router(net.router)


def test_calls_that_expire_together_are_not_all_ended_in_one_go(net: Network, mallory: Process):
    flood(net, mallory, 3000, ttl=1000)
    net.now += 1.1
    net.router.tick(net.now)
    assert 2000 < net.router.in_flight < 3000
    check_router(net.router)
    assert net.router.next_deadline() == net.now, "at once, and not before: the shell is not late"
    ticks = 0
    while net.router.in_flight:
        ticks += 1
        net.router.tick(net.now)
    assert 8 <= ticks <= 12
    check_router(net.router)


def test_refusals_end_a_turn(net: Network, mallory: Process):
    """To refuse a message costs several times what it costs to take it."""
    link = net.link(mallory)
    key = mallory.uplink.next_key()
    message = pack(Kind.CAST, b"", key=key, format=1, address=COMPUTE)
    net.router.turns.spent = 0
    net.router.receive(net.now, link.route or b"", message * 1000)
    assert net.router.refused["duplicate"] < 300 and link.inbox
    net.run()
    assert net.router.refused["duplicate"] == 999 and not link.inbox
    check_router(net.router)


@pytest.mark.parametrize("kind", [Kind.REGISTER, Kind.DECLARE, Kind.SUBSCRIBE, Kind.QUERY])
def test_a_body_that_is_too_long_is_not_read(net: Network, mallory: Process, kind: Kind):
    """To read 64 MiB of JSON would take seconds, and gigabytes."""
    body = b'{"what":"summary","credit":1,"more":"' + b"x" * MIB + b'"}'
    message = pack(kind, body, key=mallory.uplink.next_key(), format=1, address=COMPUTE)
    mallory.uplink.send(message)
    net.run()
    (error,) = mallory.got(Kind.ERROR)
    assert error.outcome is Outcome.PROTOCOL and error.body["text"].endswith("exceeds the limit of 1048576")
    assert net.router.refused == {"body": 1}
