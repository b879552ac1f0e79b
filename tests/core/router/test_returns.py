"""Consumers give back messages that others may have, and keep credit for casts that they have settled and still run."""

from __future__ import annotations

import pytest

from rpcmq.testing.invariants import check_router
from rpcmq.testing.network import Message, Network, Process
from rpcmq.wire import Flag, Kind


@pytest.fixture
def other(net: Network) -> Process:
    return net.process("other")


def occupied(process: Process, count: int, tag: int = 0) -> None:
    process.send(Kind.OCCUPIED, count.to_bytes(4), consumer=tag)


def give_back(process: Process, message: Message, attempt: int | None = None) -> None:
    header = message.header
    attempt = header.attempt if attempt is None else attempt
    process.send(Kind.GIVE_BACK, key=message.key, attempt=attempt, consumer=header.consumer)


def began(net: Network, node: Process, count: int) -> list[Message]:
    """``node`` has settled ``count`` casts, which it runs."""
    casts = [node.take(Kind.CAST) for _ in range(count)]
    with net.together():
        occupied(node, count)
        node.settle(*casts)
    return casts


# --- credit ---------------------------------------------------------------------------------------


def test_a_cast_that_is_settled_and_runs_takes_credit(net: Network, api: Process, node: Process) -> None:
    node.register("compute", credit=2)
    for n in range(5):
        api.cast("compute", payload=b"%d" % n)
    began(net, node, 2)
    assert not node.got(Kind.CAST)
    check_router(net.router)
    occupied(node, 1)
    assert [m.payload for m in node.got(Kind.CAST)] == [b"2"]
    occupied(node, 0)
    assert [m.payload for m in node.got(Kind.CAST)][-1] == b"3"
    check_router(net.router)


@pytest.mark.parametrize("server", ["", "node-1"])
def test_who_runs_such_casts_is_busier(net: Network, api: Process, node: Process, other: Process, server: str) -> None:
    node.register("compute", server, credit=4)
    api.cast("compute", server=server)
    api.cast("compute", server=server)
    began(net, node, 2)
    other.register("compute", server, credit=4)
    check_router(net.router)
    for _ in range(2):
        api.cast("compute", server=server)
    assert (len(node.got(Kind.CAST)), len(other.got(Kind.CAST))) == (0, 2)
    check_router(net.router)


def test_a_number_above_the_credit_counts_as_the_credit(net: Network, api: Process, node: Process) -> None:
    node.register("compute", credit=2)
    occupied(node, 2**32 - 1)
    api.cast("compute")
    assert not node.got(Kind.CAST)
    occupied(node, 1)
    assert len(node.got(Kind.CAST)) == 1


def test_a_consumer_registers_with_what_it_still_runs(net: Network, api: Process, node: Process) -> None:
    node.register("compute", credit=2, occupied=1)
    for _ in range(3):
        api.cast("compute")
    assert len(node.got(Kind.CAST)) == 1
    check_router(net.router)


def test_credit_stays_taken_when_the_connection_is_lost_and_comes_back(
    net: Network, api: Process, node: Process
) -> None:
    node.register("compute", credit=2)
    api.cast("compute")
    began(net, node, 1)
    node.lose()
    net.advance(8)
    node.connect()
    for _ in range(3):
        api.cast("compute")
    assert len(node.got(Kind.CAST)) == 1
    check_router(net.router)


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", b"\0\0\0\0\0"])
def test_credit_without_a_count_is_refused(net: Network, node: Process, payload: bytes) -> None:
    node.register("compute")
    node.send(Kind.OCCUPIED, payload, consumer=0)
    assert net.link(node).counters["refused length"] == 1


def test_credit_of_an_unknown_consumer_is_counted(net: Network, node: Process) -> None:
    occupied(node, 1, tag=9)
    assert net.router.dispatch.requests.counters["credit of an unknown consumer"] == 1


# --- messages -------------------------------------------------------------------------------------


def test_what_is_given_back_goes_to_another_consumer(net: Network, api: Process, node: Process, other: Process) -> None:
    node.register("compute", credit=5)
    api.cast("compute", payload=b"1")
    cast = node.take(Kind.CAST)
    other.register("compute", credit=5)
    give_back(node, cast)
    again = other.take(Kind.CAST)
    assert (again.key, again.header.attempt) == (cast.key, cast.header.attempt)
    other.settle(again)
    assert net.router.in_flight == 0 and not node.got(Kind.CAST)
    check_router(net.router)


def test_it_waits_before_all_that_are_younger(net: Network, api: Process, node: Process) -> None:
    node.register("compute", credit=1)
    for n in range(3):
        api.cast("compute", payload=b"%d" % n)
    for _ in range(10):  # more often than a lost one would be given to others
        cast = node.take(Kind.CAST)
        assert cast.payload == b"0"
        give_back(node, cast)
        check_router(net.router)
    for n in range(3):
        cast = node.take(Kind.CAST)
        assert cast.payload == b"%d" % n
        node.settle(cast)


def test_it_waits_where_nobody_is_left(net: Network, api: Process, node: Process, other: Process) -> None:
    node.register("compute")
    api.cast("compute")
    cast = node.take(Kind.CAST)
    node.unregister(0)
    give_back(node, cast)
    check_router(net.router)
    other.register("compute")
    assert other.take(Kind.CAST).key == cast.key


def test_a_call_is_answered_by_whoever_gets_it_next(net: Network, api: Process, node: Process, other: Process) -> None:
    node.register("compute")
    call = api.request("compute", ttl=60)
    request = node.take(Kind.REQUEST)
    other.register("compute")
    give_back(node, request)
    other.reply(other.take(Kind.REQUEST), b"mine")
    assert call.end.payload == b"mine"
    check_router(net.router)


def test_a_call_is_no_copy_of_a_fanout_whatever_its_flags_are(
    net: Network, api: Process, node: Process, other: Process
) -> None:
    node.register("compute")
    call = api.request("compute", ttl=60, flags=Flag.FANOUT)
    request = node.take(Kind.REQUEST)
    other.register("compute")
    node.unregister(0)
    give_back(node, request)
    check_router(net.router)
    other.reply(other.take(Kind.REQUEST), b"mine")
    assert call.end.payload == b"mine"


def test_a_call_whose_caller_has_given_up_is_given_to_nobody(
    net: Network, api: Process, node: Process, other: Process
) -> None:
    node.register("compute")
    call = api.request("compute", ttl=60)
    request = node.take(Kind.REQUEST)
    other.register("compute")
    api.send(Kind.CANCEL, key=call.key)
    give_back(node, request)
    assert not other.got(Kind.REQUEST) and net.router.in_flight == 0
    check_router(net.router)


def test_a_copy_of_a_fanout_comes_again_to_the_same_consumer(
    net: Network, api: Process, node: Process, other: Process
) -> None:
    node.register("compute")
    other.register("compute")
    api.cast("compute", flags=Flag.FANOUT)
    give_back(node, node.take(Kind.CAST))
    node.settle(node.take(Kind.CAST))
    other.settle(other.take(Kind.CAST))
    assert not node.got(Kind.CAST) and not other.got(Kind.CAST)
    check_router(net.router)


def test_the_sender_goes_on_keeping_an_idempotent_cast(net: Network, node: Process) -> None:
    sender = net.process("sender", keeps=True)
    node.register("compute")
    sender.cast("compute", flags=Flag.IDEMPOTENT)
    give_back(node, node.take(Kind.CAST))
    net.advance(1)
    assert not sender.got(Kind.DELIVERED)
    node.settle(node.take(Kind.CAST))
    net.advance(1)
    assert len(sender.got(Kind.DELIVERED)) == 1


def test_what_is_not_there_is_counted(net: Network, api: Process, node: Process) -> None:
    node.register("compute")
    api.cast("compute")
    cast = node.take(Kind.CAST)
    give_back(node, cast, attempt=1)
    node.settle(cast)
    give_back(node, cast)
    assert net.router.dispatch.requests.counters["return of an unknown request"] == 2
    assert not node.got(Kind.CAST)
