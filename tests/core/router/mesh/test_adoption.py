"""Calls and casts that a router takes over from one that is gone, without starting any twice.

Consumers are played by hand here: they say in HERE what a test wants. Their real engine is tested in
``tests/core/process``.
"""

from __future__ import annotations

import pytest

from rpcmq.core.router.settings import Settings
from rpcmq.errors import Outcome
from rpcmq.testing.invariants import check_router
from rpcmq.testing.mesh_network import Call, MeshNetwork, Message, Process
from rpcmq.wire import KEY, SETTLEMENT, STAMP, Flag, Kind, key_of
from rpcmq.wire.adoption import HERE_RECORD, Word, taken_keys, where_records


@pytest.fixture
def net() -> MeshNetwork:
    made = MeshNetwork(settings=Settings(recovery_seconds=0.0, mesh_recovery_seconds=10.0))
    made.advance(2.0)
    return made


def consumer(net: MeshNetwork, name: str, router: str, credit: int = 3) -> Process:
    """Let a process consume ``jobs``, and all routers know it."""
    process = net.process(name, router=router)
    process.register("jobs", credit=credit, tag=0)
    net.advance(1.0)
    return process


def move(net: MeshNetwork, process: Process, router: str, consumes: bool = False) -> None:
    """Let ``process`` go on at another router, and its new link be known."""
    process.move(router)
    if consumes:
        process.register("jobs", credit=3, tag=0)


def again(process: Process, call: Call, hops: int = 1, kind: Kind = Kind.REQUEST, flags: int = 0) -> None:
    """Send a message again, as a process does that has moved."""
    process._message(kind, "jobs", "run", b"", key=call.key, hops=hops, flags=flags | Flag.RESENT, ttl=60)


def questions(process: Process) -> list[tuple[bytes, bytes]]:
    """Key and stamp of each message that ``process`` was asked for and has not answered."""
    found = [message for message in process.inbox if message.kind == Kind.WHERE]
    for message in found:
        process.inbox.remove(message)
    return [record for message in found for record in where_records(message.message)]


def say(process: Process, word: Word, tag: int = 0) -> bytes:
    """Answer the one question that ``process`` has; return its stamp."""
    ((key, stamp),) = questions(process)
    process.send(Kind.HERE, HERE_RECORD.pack(key, stamp, word), consumer=tag)
    return stamp


def answer(process: Process, request: Message, stamp: bytes, payload: bytes) -> None:
    """REPLY for the owner with ``stamp``."""
    process.send(Kind.REPLY, payload, key=request.key, attempt=stamp[-1], consumer=0, format=1)


def test_a_call_of_a_router_that_was_killed_is_answered_by_the_consumer_that_runs_it(net: MeshNetwork) -> None:
    node, other = consumer(net, "node", "b"), consumer(net, "other", "c")
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    holder = node if node.inbox and node.inbox[-1].kind == Kind.REQUEST else other
    idle, idle_word = (other if holder is node else node), Word.NOT_HAD
    request = holder.take(Kind.REQUEST)
    net.hosts["a"].kill()
    move(net, api, "c")
    again(api, call)
    net.advance(0.1)
    stamp = say(holder, Word.RUNNING)
    say(idle, idle_word)
    assert not [m for p in (holder, idle) for m in p.inbox if m.kind == Kind.REQUEST], "nobody starts it again"
    answer(holder, request, stamp, b"once")
    assert call.end.payload == b"once"
    for name in "bc":
        check_router(net.router_of(name))


def test_nobody_is_given_it_before_all_have_promised(net: MeshNetwork) -> None:
    node, other = consumer(net, "node", "b"), consumer(net, "other", "c")
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    had = node if node.inbox[-1].kind == Kind.REQUEST else other
    had.inbox.clear()
    net.hosts["a"].kill()
    move(net, api, "c")
    again(api, call)
    net.advance(0.1)
    say(node, Word.NOT_HAD)  # its router had not sent it yet, let us say
    net.advance(3.0)
    assert not [m for p in (node, other) for m in p.inbox if m.kind == Kind.REQUEST]
    say(other, Word.NOT_HAD)
    given = [m for p in (node, other) for m in p.inbox if m.kind == Kind.REQUEST]
    assert len(given) == 1 and given[0].key == call.key


def test_a_silent_consumer_is_no_no(net: MeshNetwork) -> None:
    node, other = consumer(net, "node", "b"), consumer(net, "other", "c")
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    net.hosts["a"].kill()
    move(net, api, "c")
    again(api, call)
    net.advance(0.1)
    node.inbox.clear()
    say(other, Word.NOT_HAD)
    net.advance(11.0)
    assert call.end.outcome == Outcome.LINK_LOST
    assert "node" in call.end.body["text"] and "mesh.recovery_seconds" in call.end.body["text"]


def test_the_home_of_a_consumer_dies_and_the_consumer_goes_on_elsewhere(net: MeshNetwork) -> None:
    node = consumer(net, "node", "b")
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    request = node.take(Kind.REQUEST)
    net.hosts["b"].kill()
    net.advance(1.0)
    assert not call.ends
    move(net, node, "c", consumes=True)
    net.advance(0.1)
    stamp = say(node, Word.RUNNING)
    answer(node, request, stamp, b"once")
    assert call.end.payload == b"once" and stamp == b"\0\1"


def test_one_router_that_was_both_is_killed(net: MeshNetwork) -> None:
    node, other = consumer(net, "node", "a"), consumer(net, "other", "b")
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    request = node.take(Kind.REQUEST)
    net.hosts["a"].kill()
    move(net, api, "b")
    again(api, call)
    net.advance(1.0)
    say(other, Word.NOT_HAD)
    net.advance(2.0)
    assert not call.ends and not [m for m in other.inbox if m.kind == Kind.REQUEST], "node may have started it"
    move(net, node, "c", consumes=True)
    net.advance(0.1)
    stamp = say(node, Word.ANSWERED)
    answer(node, request, stamp, b"kept")
    assert call.end.payload == b"kept"


def test_a_router_that_was_stopped_and_goes_on_starts_nothing(net: MeshNetwork) -> None:
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    net.hosts["a"].pause()
    move(net, api, "b")
    again(api, call)
    net.advance(8.0)
    node = consumer(net, "node", "c")
    say(node, Word.NOT_HAD)  # as each that comes later is asked
    first = node.take(Kind.REQUEST)
    net.hosts["a"].resume()
    net.advance(3.0)
    assert not [m for m in node.inbox if m.kind == Kind.REQUEST]
    node.reply(first, b"once")
    assert call.end.payload == b"once"


def test_an_earlier_owner_is_refused_by_a_router_that_knows_a_later_one(net: MeshNetwork) -> None:
    node = consumer(net, "node", "c")
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    request = node.take(Kind.REQUEST)
    net.cut("a", "b")
    net.cut("a", "c")
    move(net, api, "b")
    again(api, call)
    net.advance(0.2)
    stamp = say(node, Word.RUNNING)
    net.heal()
    net.advance(5.0)
    answer(node, request, stamp, b"once")
    assert call.end.payload == b"once"
    assert not [m for m in node.inbox if m.kind in (Kind.REQUEST, Kind.CANCEL)]


def test_casts_are_asked_for_as_well(net: MeshNetwork) -> None:
    node = consumer(net, "node", "b")
    api = net.process("api", router="a")
    cast = api.cast("jobs", "run")
    delivered = node.take(Kind.CAST)
    net.hosts["a"].kill()
    move(net, api, "c")
    again(api, cast, kind=Kind.CAST)
    net.advance(0.1)
    stamp = say(node, Word.ANSWERED)
    assert not [m for m in node.inbox if m.kind == Kind.CAST]
    node.settle(Message(with_attempt(delivered.message, stamp)))
    check_router(net.router_of("c"))
    assert net.router_of("c").dispatch.requests.counters["settlement of an unknown cast"] == 0


def with_attempt(message: bytes, stamp: bytes) -> bytes:
    """``message`` with another stamp."""
    return message[: STAMP.start] + stamp + message[STAMP.stop :]


def test_consumers_are_told_which_answers_their_callers_have(net: MeshNetwork) -> None:
    node, api = consumer(net, "node", "b"), net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"
    net.advance(12.0)
    assert [key for m in node.inbox if m.kind == Kind.TAKEN for key in taken_keys(m.message)] == [call.key]
    local = net.process("local", router="b")
    second = local.request("jobs", "run", ttl=60)
    node.reply(node.take(Kind.REQUEST), b"done")
    net.advance(12.0)
    taken = [key for m in node.inbox if m.kind == Kind.TAKEN for key in taken_keys(m.message)]
    assert taken == [call.key, second.key]


def test_a_caller_that_has_moved_twice_is_answered_at_its_last_router(net: MeshNetwork) -> None:
    node = consumer(net, "node", "c")
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    request = node.take(Kind.REQUEST)
    for hops, router in enumerate("ba", 1):
        move(net, api, router)
        again(api, call, hops)
        net.advance(0.1)
        stamp = say(node, Word.RUNNING)
        assert stamp == bytes((hops, 0))
    answer(node, request, stamp, b"once")
    assert call.end.payload == b"once"
    assert key_of(request.message) == request.message[KEY]


def test_a_consumer_that_has_promised_refuses_an_earlier_owner_which_gives_up(net: MeshNetwork) -> None:
    node, api = consumer(net, "node", "b", credit=1), net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    request = node.take(Kind.REQUEST)
    node.send(Kind.HERE, HERE_RECORD.pack(request.key, b"\1\0", Word.NEWER), consumer=0)
    net.advance(1.0)
    assert not call.ends and not net.router_of("a").dispatch.requests.calls_in_flight
    next_call = api.request("jobs", "next", ttl=60)
    node.reply(node.take(Kind.REQUEST), b"free again")
    assert next_call.end.payload == b"free again"
    for host in net.hosts.values():
        check_router(host.router)


def test_a_consumer_that_no_other_router_knows_is_given_nothing(net: MeshNetwork) -> None:
    """If its router died with what it had given it, nobody would know whom to ask."""
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    for other in "bc":
        net.delay("a", other, 0.05)
    node = net.process("node", router="a")
    node.register("jobs", credit=3, tag=0)
    net.advance(0.09)
    assert not [m for m in node.inbox if m.kind == Kind.REQUEST]
    net.advance(0.05)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"
    for other in "bc":
        net.hosts[other].kill()
    net.advance(7.0)
    alone = net.process("alone", router="a")
    alone.register("lonely", tag=0)
    second = api.request("lonely", "run", ttl=60)
    alone.reply(alone.take(Kind.REQUEST), b"done")
    assert second.end.payload == b"done", "there is nobody who could be told"


def test_an_idempotent_call_that_runs_is_answered_by_way_of_the_next_router_of_its_caller(net: MeshNetwork) -> None:
    """The home of its only consumer has it of the former owner: it is no new attempt, let alone five of them."""
    node = consumer(net, "node", "b")
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60, flags=Flag.IDEMPOTENT)
    node.take(Kind.REQUEST)
    move(net, api, "c")
    again(api, call, hops=0, flags=Flag.IDEMPOTENT)
    net.advance(0.1)
    assert not call.ends
    request = node.take(Kind.REQUEST)  # its process knows the key, and starts it no second time
    node.reply(request, b"once")
    assert call.end.payload == b"once"
    for name in "abc":
        check_router(net.router_of(name))


def test_a_neighbour_is_offered_more_once_another_router_owns_what_it_was_offered(net: MeshNetwork) -> None:
    node = consumer(net, "node", "b", credit=1)
    api, other = net.process("api", router="a"), net.process("other", router="a")
    cast = api.cast("jobs", "run")
    running = node.take(Kind.CAST)
    move(net, api, "c")
    again(api, cast, kind=Kind.CAST)
    net.advance(0.1)
    stamp = say(node, Word.RUNNING)
    node.send(Kind.SETTLE, SETTLEMENT.pack(running.key, stamp[-1], Outcome.OK, 0), consumer=0)
    net.advance(1.0)
    later = other.cast("jobs", "run")
    net.advance(1.0)
    assert node.take(Kind.CAST).key == later.key


def test_a_call_that_is_asked_for_does_not_time_out_as_one_that_never_ran(net: MeshNetwork) -> None:
    consumer(net, "node", "b")
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60)
    net.hosts["a"].kill()
    move(net, api, "c")
    api._message(Kind.REQUEST, "jobs", "run", b"", key=call.key, hops=1, flags=Flag.RESENT, ttl=4)
    net.advance(5.0)
    assert call.end.outcome == Outcome.TIMEOUT and "it may have run" in call.end.body["text"]
    details = call.end.body["details"]
    assert (details["state"], details["started"]) == ("asked", "unknown")


def test_a_consumer_in_the_place_of_one_like_it_is_given_work(net: MeshNetwork) -> None:
    """It changes nothing of what is told to others, so that there is no news for them to acknowledge."""
    node = consumer(net, "node", "b", credit=3)
    with net.together():
        node.unregister(0)
        node.register("jobs", credit=3, tag=1)
    net.advance(1.0)
    call = net.process("api", router="a").request("jobs", "run", ttl=60)
    node.reply(node.take(Kind.REQUEST), b"done")
    assert call.end.payload == b"done"


@pytest.mark.parametrize("flags", [0, Flag.NOT_AGAIN])
def test_a_call_that_is_not_to_be_given_again_ends_where_nobody_has_it(net: MeshNetwork, flags: int) -> None:
    node, other = consumer(net, "node", "b"), consumer(net, "other", "c")
    api = net.process("api", router="a")
    call = api.request("jobs", "run", ttl=60, flags=flags)
    for each in (node, other):
        each.inbox.clear()
    net.hosts["a"].kill()
    move(net, api, "c")
    api._message(Kind.REQUEST, "jobs", "run", b"", key=call.key, hops=1, flags=Flag.RESENT | flags, ttl=60)
    net.advance(3.0)
    for each in (node, other):
        say(each, Word.NOT_HAD)
    net.advance(0.1)
    given = [m for p in (node, other) for m in p.inbox if m.kind == Kind.REQUEST]
    assert bool(given) is not bool(flags) and bool(call.ends) is bool(flags)
    if flags:
        assert call.end.outcome is Outcome.LINK_LOST and call.end.body["details"]["started"] == "unknown"
