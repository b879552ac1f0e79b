"""A router that floods another one: each message costs what it is worth, each thing that grows has a bound."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.core.router.mesh import adoption, fences, learner
from rpcmq.core.router.mesh.adoption import Adoption
from rpcmq.core.router.mesh.hosting import Hosting
from rpcmq.core.router.mesh.limits import LinkLimits
from rpcmq.errors import Outcome
from rpcmq.testing.mesh_network import Call, MeshNetwork, Process
from rpcmq.wire import Address, Flag, Kind, origin_of, pack
from rpcmq.wire.adoption import HERE_RECORD, WHERE_RECORD, Word
from rpcmq.wire.consumer_name import NOBODY, ConsumerName
from rpcmq.wire.interest import InterestBody, PlaceState, Row, identity_key, part_key, place_key
from rpcmq.wire.mesh_bodies import KnowsBody
from tests.core.router.mesh.known_addresses import assert_known, interest_of
from tests.core.router.mesh.links import link_routers, neighbour_of, two_routers

STATE = PlaceState(1, 1, True).encode()


@pytest.fixture
def net() -> Iterator[MeshNetwork]:
    yield from two_routers()


def flood(net: MeshNetwork, *messages: bytes) -> None:
    """Let b send ``messages`` to a."""
    for message in messages:
        neighbour_of(net, "b", "a").send(message)
    net.run()


def counted(net: MeshNetwork, what: str) -> int:
    return neighbour_of(net, "a", "b").counters[what]


# --- INTEREST ------------------------------------------------------------------------------------


def interest(rows: list[Row], begins: bool = False, ends: bool = False, base: int = 1) -> bytes:
    return InterestBody(begins, ends, False, base, 1, 0, 0, rows).message()


def test_an_interest_that_would_take_seconds_is_refused(net: MeshNetwork) -> None:
    flood(net, interest([(identity_key(number), b"x") for number in range(4_000)], begins=True))
    assert counted(net, "refused length") == 1
    net.advance(5.0)
    assert_known(net)


def test_who_tells_everything_anew_without_end_is_asked_later(net: MeshNetwork) -> None:
    rows: list[Row] = [(place_key(Address(f"topic-{number}")), STATE) for number in range(200)]
    flood(net, *[interest(rows, begins=True, ends=True), interest(rows[:3], begins=True)] * 300)
    table = interest_of(net, "a").learner.table
    assert table.unswept(neighbour_of(net, "a", "b")) <= learner._MOST_UNSWEPT + 1
    assert counted(net, "interest asked for anew") > 500
    net.advance(200.0)
    assert_known(net)
    assert not table.is_sweeping and len(table) == 0


def test_who_asks_for_everything_without_end_is_told_it_now_and_then(
    net: MeshNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[bool] = []
    read = InterestBody.of

    def of(message: bytes) -> InterestBody:
        body = read(message)
        begun.append(body.begins)
        return body

    monkeypatch.setattr(InterestBody, "of", of)
    for _ in range(600):
        flood(net, pack(Kind.INTEREST_ACK))
        net.advance(0.1)
    assert 3 <= sum(begun) <= 9, "after 0, 0.5, 1, 2 ... seconds"


def test_groups_of_a_topic_that_another_router_makes_up(net: MeshNetwork) -> None:
    topic = Address("compute")
    flood(net, interest([], begins=True))
    for start in range(0, 3_000, 500):
        flood(net, interest([(place_key(topic, f"group-{n}"), STATE) for n in range(start, start + 500)]))
    table = interest_of(net, "a").learner.table
    assert len(list(table.groups(place_key(topic)))) == 3_000
    net.process("node", router="a").register("compute")
    assert counted(net, "addresses not noted") == 0, "no more are tried than a topic may have"
    flood(net, interest([(place_key(topic, f"group-{n}"), b"") for n in range(500)]))
    assert len(list(table.groups(place_key(topic)))) == 2_500


def test_what_routers_told_that_are_gone_has_a_bound_in_bytes(net: MeshNetwork) -> None:
    net.hosts["a"].settings.mesh_max_address_bytes = 200_000
    for number in range(5):
        name = f"x{number}"
        net.add_router(name, peers=("a",))
        link_routers(net, "a", name)
        at_a = neighbour_of(net, name, "a")
        at_a.send(interest([], begins=True))
        for start in range(0, 1_000, 100):
            rows = [(place_key(Address(f"{name}-topic-{n}")), STATE) for n in range(start, start + 100)]
            at_a.send(interest(rows))
        net.run()
        net.hosts[name].kill()
        net.advance(8.0)
    gone = interest_of(net, "a").learner._gone
    assert len(gone) >= 1 and gone.size_bytes <= 200_000
    assert [holding.router for holding in gone.since(net.now - 8.0)] == ["x4"]


# --- adoption ------------------------------------------------------------------------------------


def where(count: int, first: int = 0, topic: str = "compute", kind: Kind = Kind.WHERE) -> bytes:
    records = [WHERE_RECORD.pack(key_of_message(first + number), b"\1\1") for number in range(count)]
    return pack(kind, b"".join(records), sequence=1, format=1, address=Address(topic).encode())


def key_of_message(number: int) -> bytes:
    return origin_of(9, 9) + number.to_bytes(8)


KEYS = [key_of_message(number) for number in range(1_000)]


@pytest.mark.parametrize(
    ("message", "fit_into_a_turn"),
    [
        (where(1_000), 1),
        (where(1_000, kind=Kind.FENCES), 1),
        (pack(Kind.HERE, b"".join(HERE_RECORD.pack(key, b"\1\1", Word.NEWER) for key in KEYS), method=b"x"), 3),
        (pack(Kind.TAKEN, b"".join(KEYS)), 11),
    ],
    ids=["where", "fences", "here", "taken"],
)
def test_messages_about_many_others_end_a_turn(net: MeshNetwork, message: bytes, fit_into_a_turn: int) -> None:
    router, link = net.router_of("a"), neighbour_of(net, "a", "b")
    assert link.route is not None
    router.turns.spent = 0
    router.receive(net.now, link.route, message * 20)
    assert len(link.inbox) >= 20 - fit_into_a_turn, "other links get their turns before these"


def test_owners_that_were_seen_are_passed_on_together(net: MeshNetwork) -> None:
    """In a message for each they would be more than the 100,000 that may wait for a router."""
    net.add_router("c", peers=("a",))
    link_routers(net, "a", "c")
    link_routers(net, "b", "c")
    before = neighbour_of(net, "a", "c").sent_messages
    flood(net, where(1_000), where(1_000, first=5_000, kind=Kind.FENCES))
    assert neighbour_of(net, "a", "c").sent_messages - before <= 5
    assert len(adoption_of(net, "c").witness.fences) == 2_000


def test_a_newcomer_is_told_of_many_owners_as_it_takes_them(net: MeshNetwork) -> None:
    """Each for a topic of its own, they were more messages at once than may wait for a router."""
    flood(net, *[where(1, first=number, topic=f"topic-{number}", kind=Kind.FENCES) for number in range(3_000)])
    net.hosts["a"].settings.outbox_max_messages = 500
    net.add_router("c", peers=("a",))
    link_routers(net, "a", "c")
    net.advance(3.0)
    assert len(adoption_of(net, "c").witness.fences) == 3_000
    assert not any("outbox" in note.text for note in net.hosts["a"].notes)


def test_owners_that_were_seen_have_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences, "_MOST_BYTES", 100_000)
    known = fences.Fences()
    for number in range(1_000):
        place = Address(f"{number:0>250}", "s" * 250, "e" * 250), False
        known.put(KEYS[number], fences.Fence(b"\1\1", 2, place, True, 0.0))
    assert 50 <= len(known) <= 80 and known.size_bytes <= 100_000
    assert known.get(KEYS[-1], "") is not None and known.get(KEYS[0], "") is None
    known.expire(10_000.0)
    assert known.size_bytes == 0


def test_consumers_that_are_too_many_for_one_message_are_not_named(net: MeshNetwork) -> None:
    names: list[Row] = [(identity_key(number), b"%0250d" % number) for number in range(6_400)]
    flood(net, interest([], begins=True), *[interest(names[at : at + 100]) for at in range(0, 6_400, 100)])
    block = place_key(Address("compute"))
    flood(net, interest([(block, PlaceState(1, 1, in_parts=True).encode())]))
    flood(net, *[interest([(part_key(block, part), b"\xff" * 16)]) for part in range(20)])
    flood(net, where(1))
    assert counted(net, "consumers not named") == 0
    flood(net, *[interest([(part_key(block, part), b"\xff" * 16)]) for part in range(20, 50)])
    flood(net, where(1))
    assert counted(net, "consumers not named") == 1


def adoption_of(net: MeshNetwork, router: str) -> Adoption:
    return next(part for part in net.router_of(router).mesh.parts if isinstance(part, Adoption))


def ask(net: MeshNetwork) -> tuple[Process, Call]:
    """A call at a of a process that has come from elsewhere: ``node``, the consumer, is asked for it."""
    node = net.process("node", router="a")
    node.register("compute", tag=0)
    net.advance(1.0)
    caller = net.process("caller", router="a")
    net.link(caller).routers = 2
    call = caller._message(Kind.REQUEST, "compute", "m", b"", hops=1, flags=Flag.RESENT, ttl=60)
    net.advance(0.01)
    assert call.key in adoption_of(net, "a")._asked
    return node, call


def test_a_router_that_names_consumers_without_end(net: MeshNetwork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "_MOST_NAMED", 1_000)
    _, call = ask(net)
    number = next(iter(adoption_of(net, "a")._questions))
    consumers = tuple(ConsumerName(origin_of(9, each), f"nobody-{each}") for each in range(1_500))
    adoption_of(net, "a")._questions[number].told.clear()
    flood(net, KnowsBody(consumers=consumers).message(sequence=number))
    record = HERE_RECORD.pack(call.key, adoption_of(net, "a")._asked[call.key].stamp, Word.NOT_HAD)
    others = [ConsumerName(origin_of(8, each), "other") for each in range(5_000)]
    flood(net, *[pack(Kind.HERE, record, key=each.key, method=b"other") for each in others])
    assert len(adoption_of(net, "a")._asked[call.key].promised) <= 2_501
    net.advance(11.0)
    assert call.end.outcome is Outcome.LINK_LOST


@pytest.mark.parametrize("word", [Word.RUNNING, Word.ANSWERED, Word.NEWER, Word.LOST])
def test_a_process_has_no_say_about_messages_for_others(net: MeshNetwork, word: Word) -> None:
    _, call = ask(net)
    stranger = net.process("stranger", router="a")
    stranger.register("own-topic", tag=0)
    asked = adoption_of(net, "a")._asked[call.key]
    stamp = b"\xff\xff" if word is Word.NEWER else asked.stamp
    for tag in (0, 5):
        stranger.send(Kind.HERE, HERE_RECORD.pack(call.key, stamp, word), consumer=tag)
    net.run()
    assert adoption_of(net, "a")._asked.get(call.key) is asked and not call.ends
    assert net.link(stranger).counters["word about a message of others"] == 2


def test_a_router_that_may_not_get_a_message_is_not_asked_for_it_and_has_no_say(net: MeshNetwork) -> None:
    part = adoption_of(net, "a")
    part._routers._limits[neighbour_of(net, "a", "b")] = LinkLimits(neighbour_of(net, "a", "b"), ("*/#",), ("open.#",))
    node, call = ask(net)
    asked = part._asked[call.key]
    assert not adoption_of(net, "b").witness.fences
    number = next(iter(part._questions))
    flood(net, KnowsBody(consumers=(NOBODY,)).message(sequence=number))
    flood(net, pack(Kind.HERE, HERE_RECORD.pack(call.key, asked.stamp, Word.RUNNING), method=b"x"))
    assert part._asked.get(call.key) is asked and not asked.question.told  # type: ignore[union-attr]
    node.send(Kind.HERE, HERE_RECORD.pack(call.key, asked.stamp, Word.NOT_HAD), consumer=0)
    node.reply(node.take(Kind.REQUEST), b"1")
    assert call.end.payload == b"1"


# --- room ----------------------------------------------------------------------------------------


def want(count: int, topic: str = "compute") -> bytes:
    return pack(Kind.WANT, count.to_bytes(4), address=Address(topic).encode())


def seconds_until_taken(net: MeshNetwork, node: Process, api: Process) -> float:
    """How long a call of ``api`` waits for ``node``, which it is answered by."""
    began = net.now
    call = api.request("compute", "m", ttl=60)
    while not any(message.kind == Kind.REQUEST for message in node.inbox):
        assert net.now < began + 50.0, "it never gets its turn"
        net.advance(0.05)
    node.reply(node.take(Kind.REQUEST), b"1")
    assert call.end.payload == b"1"
    return net.now - began


def test_room_that_is_wanted_and_never_used_keeps_nobody_waiting(net: MeshNetwork) -> None:
    node, api = net.process("node", router="a"), net.process("api", router="a")
    node.register("compute", credit=16)
    net.advance(1.0)
    flood(net, want((1 << 32) - 1))
    assert seconds_until_taken(net, node, api) <= 1.2, "until what is kept for it is of use to others"
    for _ in range(20):
        assert seconds_until_taken(net, node, api) < 0.1
        net.advance(0.4)
        flood(net, want((1 << 32) - 1))
    assert counted(net, "unresponsive") == 0


@pytest.mark.parametrize("pause", [0.05, 0.9])
def test_room_that_is_wanted_again_and_again(net: MeshNetwork, pause: float) -> None:
    node, api = net.process("node", router="a"), net.process("api", router="a")
    node.register("compute", credit=16)
    net.advance(1.0)
    for _ in range(3):
        flood(net, want(1_000))
        net.advance(pause)
        flood(net, want(0) if pause > 0.5 else want(1_000))
    for _ in range(10):
        assert seconds_until_taken(net, node, api) < 0.1
        flood(net, want(1_000))


def test_who_uses_room_again_gets_all_that_is_free(net: MeshNetwork) -> None:
    node, api = net.process("node", router="a"), net.process("api", router="b")
    node.register("compute", credit=4)
    other = net.process("other", router="a")
    other.register("compute", credit=4)
    net.advance(1.0)
    flood(net, want(100))
    net.advance(2.5)
    flood(net, want(0))
    net.advance(0.1)
    calls = [api.request("compute", "m", ttl=60) for _ in range(50)]
    for _ in range(60):
        for each in (node, other):
            taken = [message for message in each.inbox if message.kind == Kind.REQUEST]
            for message in taken:
                each.inbox.remove(message)
                each.reply(message, b"1")
        net.advance(0.01)
    assert all(call.end.payload == b"1" for call in calls)


def test_room_is_bounded_and_costs_turns(net: MeshNetwork) -> None:
    net.process("node", router="a").register("compute", credit=65_535)
    net.advance(1.0)
    net.router_of("a").turns.spent = 0
    flood(net, want((1 << 32) - 1))
    hosting = next(part for part in net.router_of("a").mesh.parts if isinstance(part, Hosting))
    (kept,) = hosting._rooms.kept[neighbour_of(net, "a", "b")].values()
    assert len(kept) == 4096


def test_nobody_that_does_not_answer_gets_room(net: MeshNetwork) -> None:
    net.process("node", router="a").register("compute", credit=4)
    net.advance(1.0)
    flood(net, want(100))
    net.cut("a", "b")
    net.advance(4.0)
    hosting = next(part for part in net.router_of("a").mesh.parts if isinstance(part, Hosting))
    assert not any(hosting._rooms.kept.get(neighbour_of(net, "a", "b"), {}).values())


def test_room_that_was_not_wanted_is_not_used(net: MeshNetwork) -> None:
    """Else one that sends everything back, and makes room, would be offered all that waits again and again."""
    row = [(place_key(Address("compute")), PlaceState(1, (1 << 32) - 1, True).encode())]
    flood(net, interest([], begins=True), interest(row))
    net.cut("a", "b", is_one_way=True)  # b answers only what is said here
    api = net.process("api", router="a")
    calls = [api.request("compute", "m", ttl=60) for _ in range(20)]
    link = neighbour_of(net, "a", "b")
    busy = pack(Kind.BUSY, key=calls[0].key, address=Address("compute").encode())
    room = pack(Kind.ROOM, (1 << 31).to_bytes(4), key=calls[0].key, address=Address("compute").encode())
    router = net.router_of("a")
    (topic,) = (each for each in router.directory if each.address.topic == "compute")
    assert len(topic.remotes[link].offered) == 20
    assert link.route is not None
    router.receive(net.now, link.route, busy)
    assert len(topic.queue) == 20 and topic.remotes[link].wanted == 20
    router.receive(net.now, link.route, room)
    assert len(topic.remotes[link].offered) == 20
    router.turns.spent = 0
    router.receive(net.now, link.route, busy)
    assert router.turns.spent >= 400
    topic.remotes[link].wanted = 3
    router.receive(net.now, link.route, room)
    assert len(topic.remotes[link].offered) == 3
