"""A router that shuts down takes nothing new, finishes what runs, and leaves nobody in doubt about the rest."""

from __future__ import annotations

import pytest

from rpcmq.errors import Outcome
from rpcmq.server.leftovers import leftovers, under_way
from rpcmq.testing.network import Call, Network, Process
from rpcmq.wire import Flag, Kind, control, pack


def error_of(call: Call) -> tuple[Outcome, str, dict[str, object]]:
    body = call.end.body
    assert call.end.kind is Kind.ERROR
    return Outcome(body["outcome"]), body["text"], body["details"]


def drain(net: Network) -> None:
    net.router.begin_drain(net.now)
    net.run()


def old(process: Process) -> Process:
    """As a process that knows of no more than that there is a DRAIN: it goes on sending."""
    process.uplink._holds = False
    return process


def test_drain_gives_back_what_nobody_has_and_lets_the_rest_finish(net: Network, api: Process, node: Process):
    node.register("compute")
    running, waiting = api.request("compute"), api.request("compute")
    drain(net)
    assert error_of(waiting)[:2] == (Outcome.DRAINING, "the router is shutting down; the call did not run")
    assert running.ends == [] and net.router.in_flight == 1
    node.reply(node.take(Kind.REQUEST), b"finished")
    assert running.end.payload == b"finished"
    assert net.router.in_flight == 0


def test_a_draining_router_takes_nothing_and_welcomes_nobody(net: Network, api: Process, node: Process):
    node.register("compute")
    drain(net)
    call, cast = old(api).request("compute"), api.cast("compute")
    assert error_of(call)[:2] == (Outcome.DRAINING, "the router is shutting down; not accepted")
    assert error_of(cast)[0] is Outcome.DRAINING
    assert node.got(Kind.REQUEST, Kind.CAST) == []
    late = net.process("late")
    assert late.refusals == [("draining", "the router is shutting down")]


def test_everyone_is_told_of_the_drain(net: Network, api: Process, node: Process):
    drain(net)
    assert [p.uplink.state.value for p in (api, node)] == ["draining", "draining"]


def test_the_router_knows_when_nothing_new_can_be_under_way_any_more(net: Network, api: Process, node: Process):
    node.register("compute")
    api.delay = 0.2
    net.router.begin_drain(net.now)
    with net.together():
        call = api.request("compute")
    assert net.router.links.has_undrained_senders
    net.advance(0.25)
    assert net.router.links.has_undrained_senders, "its answer is under way"
    net.advance(0.5)
    assert not net.router.links.has_undrained_senders
    assert error_of(call)[0] is Outcome.DRAINING


def test_processes_that_know_nothing_of_it_or_are_silent_are_not_waited_for(net: Network):
    ancient = net.process("ancient")
    net.link(ancient).answers_drain = False
    silent = net.process("silent")
    silent.pause()
    drain(net)
    assert net.router.links.has_undrained_senders
    net.advance(net.settings.unresponsive_seconds + 2)
    assert not net.router.links.has_undrained_senders


def test_a_process_cannot_answer_a_drain_that_nobody_asked_about(net: Network, api: Process):
    api.inject(pack(Kind.DRAIN))
    assert net.router.refused == {"kind": 1}


@pytest.mark.parametrize("over_a_link_of_its_own", [False, True])
def test_what_a_handler_asks_for_is_still_taken_so_that_it_can_finish(
    net: Network, api: Process, node: Process, over_a_link_of_its_own: bool
):
    middle = net.process("middle")
    asking = net.process("its client") if over_a_link_of_its_own else middle
    node.register("compute")
    middle.register("scheduler")
    outer = api.request("scheduler")
    request = middle.take(Kind.REQUEST)
    drain(net)
    inner = asking.request("compute", flags=Flag.NESTED)
    node.reply(node.take(Kind.REQUEST), b"inner")
    assert inner.end.payload == b"inner"
    cast = asking.cast("compute", flags=Flag.NESTED | Flag.CONFIRM)
    assert [m.kind for m in cast.answers] == [Kind.CONFIRM]
    node.settle(node.take(Kind.CAST))
    middle.reply(request, b"outer")
    assert outer.end.payload == b"outer"
    late = asking.request("compute", flags=Flag.NESTED)
    assert error_of(late)[0] is Outcome.DRAINING, "nothing of it runs any more"
    cheat = api.request("compute", flags=Flag.NESTED)
    assert error_of(cheat)[0] is Outcome.DRAINING


def test_what_a_handler_asked_for_before_the_drain_is_waited_for_though_no_consumer_had_it_yet(
    net: Network, api: Process, node: Process
):
    middle = net.process("middle")
    node.register("compute", credit=1)
    middle.register("scheduler")
    outer, running = api.request("scheduler"), api.request("compute")
    inner, waiting = middle.request("compute", flags=Flag.NESTED), api.request("compute")
    unserved = middle.request("nobody", flags=Flag.NESTED)
    drain(net)
    assert error_of(waiting)[0] is error_of(unserved)[0] is Outcome.DRAINING
    assert inner.ends == []
    node.reply(node.take(Kind.REQUEST), b"running")
    node.reply(node.take(Kind.REQUEST), b"inner")
    assert (running.end.payload, inner.end.payload) == (b"running", b"inner")
    middle.reply(middle.take(Kind.REQUEST), b"outer")
    assert outer.end.payload == b"outer"
    assert net.router.in_flight == 0


def test_subscribers_are_sent_what_waits_for_them_however_slow_they_are(net: Network, api: Process):
    slow, away = net.process("slow"), net.process("away")
    for subscriber in (slow, away):
        subscriber.subscribe("a.#", window=2)
    away.lose()
    for n in range(9):
        api.publish("a.b", b"%d" % n)
    assert len(slow.got(Kind.PUBLISH)) == 2 and leftovers(net.router).events == 7 + 9
    drain(net)
    expected = [b"%d" % n for n in range(9)]
    assert [m.payload for m in slow.got(Kind.PUBLISH)] == expected[2:]
    assert leftovers(net.router).events == 9 and not under_way(net.router), "who is away is not waited for"
    away.connect()
    assert [m.payload for m in away.got(Kind.PUBLISH)] == expected


def test_who_has_a_session_may_come_back_for_its_answers(net: Network, api: Process, node: Process):
    node.register("compute")
    call = api.request("compute")
    drain(net)
    api.lose()
    node.reply(node.take(Kind.REQUEST), b"done")
    api.connect()
    assert call.end.payload == b"done"
    assert api.uplink.state.value == "draining" and api.refusals == []
    assert not net.router.links.has_undrained_senders


def test_when_the_router_leaves_each_call_is_told_what_became_of_it(net: Network, api: Process, node: Process):
    node.register("compute", credit=3)
    running = api.request("compute")
    again = api.request("compute", flags=Flag.IDEMPOTENT)
    drain(net)
    net.advance(5.0)
    inner = node.request("nowhere", flags=Flag.NESTED)
    net.router.refuse_nested_work()
    late = node.request("compute", flags=Flag.NESTED)
    net.router.finish_drain(net.now)
    net.run()
    outcome, text, details = error_of(running)
    assert outcome is Outcome.LINK_LOST
    assert text == (
        "the router stopped when its drain timed out (router.drain_seconds): node had it for 5.0 s; it may have run"
    )
    assert details["started"] == "unknown"
    assert [error_of(call)[0] for call in (again, inner, late)] == [Outcome.DRAINING] * 3
    assert net.router.in_flight == 0
    assert [p.refusals for p in (api, node)] == [[("draining", "the router has shut down")]] * 2


def test_what_was_not_read_when_the_router_leaves_goes_to_its_next_life(net: Network, api: Process, node: Process):
    node.register("compute", credit=9)
    read = api.request("compute", payload=b"read")
    drain(net)
    old(api).delay = 1.0
    unread = api.request("compute", payload=b"unread")
    net.router.refuse_nested_work()
    net.router.finish_drain(net.now)
    api.delay = 0.0
    # The router reads nothing more.
    assert api.connection is not None
    api.connection.to_router.clear()
    net.advance(2.0)
    assert read.end.kind is Kind.ERROR and unread.ends == []
    net.restart_router()
    api.connect()
    welcome = api.welcomes[-1]
    assert welcome.sent == [] and [message[16:36] for message in welcome.unsent] == [unread.key]


def test_casts_that_a_consumer_had_are_not_offered_again(net: Network, node: Process):
    api = net.process("api", keeps=True)
    node.register("compute", credit=9)
    cast = api.cast("compute")
    assert api.got(Kind.DELIVERED) == []
    drain(net)
    net.router.finish_drain(net.now)
    net.run()
    assert [bytes(m.payload) for m in api.got(Kind.DELIVERED)] == [cast.key[12:]]


# --- calls that want a consumer, just after a restart ---------------------------------------------


@pytest.fixture
def restarted(make_net) -> Network:
    """A router with a recovery window; ``api`` and ``node`` are known from its life before."""
    made: Network = make_net(recovery_seconds=2.0)
    made.advance(3.0)
    return made


def check_delivered(node: Process, sent: Call) -> None:
    """Check that ``node`` gets what was ``sent``, a call or a cast to be confirmed, and the sender its end."""
    (message,) = node.got(Kind.REQUEST, Kind.CAST)
    if message.kind is Kind.REQUEST:
        node.reply(message, b"done")
        assert sent.end.payload == b"done"
    else:
        assert [m.kind for m in sent.answers] == [Kind.CONFIRM]


@pytest.mark.parametrize("verb", ["request", "cast"])
def test_a_mandatory_message_waits_for_consumers_that_are_on_their_way_back(restarted: Network, verb: str):
    api, node = restarted.process("api"), restarted.process("node")
    node.register("compute")
    restarted.restart_router()
    api.connect()
    sent = getattr(api, verb)("compute", flags=Flag.MANDATORY | Flag.CONFIRM * (verb == "cast"))
    restarted.advance(1.0)
    node.connect()
    node.register("compute", tag=0)
    restarted.advance(1.5)
    check_delivered(node, sent)


@pytest.mark.parametrize("verb", ["request", "cast"])
def test_it_does_not_wait_for_longer_than_the_recovery_window(restarted: Network, verb: str):
    api = restarted.process("api")
    restarted.restart_router()
    api.connect()
    sent = getattr(api, verb)("compute", flags=Flag.MANDATORY | Flag.CONFIRM * (verb == "cast"))
    cancelled = api.request("compute", flags=Flag.MANDATORY, ttl=0.5)
    restarted.advance(1.5)
    assert sent.ends == [] and error_of(cancelled)[0] is Outcome.TIMEOUT
    restarted.advance(1.0)
    assert error_of(sent)[0] is Outcome.NO_CONSUMER
    assert error_of(api.request("compute", flags=Flag.MANDATORY))[0] is Outcome.NO_CONSUMER


@pytest.mark.parametrize("verb", ["request", "cast"])
def test_that_of_a_new_process_waits_as_well_once_others_come_back(restarted: Network, verb: str):
    api, node = restarted.process("api"), restarted.process("node")
    node.register("compute")
    restarted.restart_router()
    api.connect()
    new = restarted.process("new")
    sent = getattr(new, verb)("compute", flags=Flag.MANDATORY | Flag.CONFIRM * (verb == "cast"))
    hopeless = getattr(new, verb)("nowhere", flags=Flag.MANDATORY | Flag.CONFIRM * (verb == "cast"))
    restarted.advance(1.0)
    assert sent.ends == []
    node.connect()
    node.register("compute", tag=0)
    restarted.advance(1.5)
    check_delivered(node, sent)
    assert error_of(hopeless)[0] is Outcome.NO_CONSUMER


@pytest.mark.parametrize("verb", ["request", "cast"])
def test_that_of_a_new_process_waits_before_anybody_has_come_back(restarted: Network, verb: str):
    """The only service of a new program may be the first to come back: the router cannot know whom it had before."""
    node = restarted.process("node")
    node.register("compute")
    restarted.restart_router()
    new = restarted.process("new")
    sent = getattr(new, verb)("compute", flags=Flag.MANDATORY | Flag.CONFIRM * (verb == "cast"))
    hopeless = getattr(new, verb)("nowhere", flags=Flag.MANDATORY | Flag.CONFIRM * (verb == "cast"))
    restarted.advance(1.0)
    assert sent.ends == [] and hopeless.ends == []
    node.connect()
    node.register("compute", tag=0)
    restarted.advance(1.5)
    check_delivered(node, sent)
    assert error_of(hopeless)[0] is Outcome.NO_CONSUMER


def test_a_mandatory_cast_that_has_a_consumer_does_not_wait_for_the_recovery_window(restarted: Network):
    restarted.restart_router()
    node, new = restarted.process("node"), restarted.process("new")
    node.register("compute")
    cast = new.cast("compute", flags=Flag.MANDATORY | Flag.CONFIRM)
    node.take(Kind.CAST)
    assert [m.kind for m in cast.answers] == [Kind.CONFIRM]


def test_casts_behind_a_mandatory_one_that_waits_keep_their_order(restarted: Network):
    restarted.restart_router()
    new = restarted.process("new")
    new.cast("compute", payload=b"1", flags=Flag.MANDATORY)
    node = restarted.process("node")
    node.register("compute", credit=10)
    new.cast("compute", payload=b"2")
    restarted.advance(1.0)
    assert node.got(Kind.CAST) == []
    restarted.advance(1.5)
    assert [bytes(m.payload) for m in node.got(Kind.CAST)] == [b"1", b"2"]


def test_a_mandatory_message_does_not_wait_where_there_is_no_recovery_window(make_net):
    net: Network = make_net(recovery_seconds=0.0)
    new = net.process("new")
    assert error_of(new.request("compute", flags=Flag.MANDATORY))[0] is Outcome.NO_CONSUMER


def test_a_drain_that_a_router_of_before_announces_is_understood(net: Network, api: Process):
    api.uplink.receive(net.now, control(Kind.DRAIN, {"text": "bye"}))
    net.run()
    assert net.router.refused == {} and api.uplink.state.value == "draining"
