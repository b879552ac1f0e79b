"""Views are made in small steps, one at a time, for all who ask: nobody else waits for them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rpcmq.core.router.queries import MAX_ASKED, Queries, encoded
from rpcmq.core.router.steps import finish
from rpcmq.core.router.view_rows import MAX_ROWS
from rpcmq.core.router.views import overview, view
from rpcmq.errors import Outcome
from rpcmq.testing.network import Call, Network, Process
from rpcmq.wire import Flag, Kind, json_bytes
from tests.views import VIEWS

#: With fewer topics, consumers and messages than this a view takes a few steps.
MANY = 300


def ask(process: Process, what: str = "topics") -> Call:
    return process.send(Kind.QUERY, json_bytes({"what": what}), format=1)


@pytest.fixture
def asked(net: Network) -> Iterator[Network]:
    """A network that makes no views by itself: :func:`make` does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Queries, "is_anybody_waiting", False)
        yield net


def make(net: Network, most: int = 10_000) -> int:
    """Make views until there is nothing to make, in at most ``most`` steps; returns how many it took."""
    queries = net.router.queries
    for taken in range(most):
        if not (queries._turns or queries._takers):
            net.run()
            return taken
        queries.step(net.now)
    net.run()
    return most


@pytest.mark.parametrize("what", sorted(set(VIEWS) - {"dropped", "keys", "mesh"}))
def test_every_view_is_made_in_small_steps(net: Network, what: str) -> None:
    api, node = net.process("api"), net.process("node")
    for number in range(200):
        node.register("compute", tag=number, server=f"node-{number}", credit=1)
        net.process(f"process-{number}")
    for number in range(MANY):
        api.request(f"topic-{number}", f"method-{number}", ttl=100)
        api.request("compute", ttl=100)
    net.advance(20)
    steps = sum(1 for _ in view(net.router, net.now, what))
    assert steps >= 3, what


def test_a_view_in_steps_is_the_view_and_its_json(net: Network) -> None:
    api = net.process("api")
    for number in range(50):
        api.request(f"topic-{number}")
    answer = overview(net.router, net.now, "overview")
    assert finish(encoded(answer)) == json_bytes(answer)
    assert finish(encoded({})) == b"{}" and finish(encoded({"a": [], "b": 1})) == b'{"a":[],"b":1}'


def test_what_changes_while_a_view_is_made_does_no_harm(net: Network) -> None:
    api, node, sub = net.process("api"), net.process("node"), net.process("sub", queue_type="pubsub")
    for number in range(MANY):
        api.request(f"topic-{number}", f"method-{number}", ttl=1 + number % 50)
    node.register("compute", credit=100)
    for what in VIEWS:
        extra = net.process(f"extra-{what}")
        extra.register("compute", credit=3)
        for number, _ in enumerate(view(net.router, net.now, what)):
            api.request("compute", f"new-{what}-{number}", ttl=1)
            api.cast(f"new-{what}-{number}")
            sub.subscribe(f"{what}.{number}")
            net.advance(0.3)
            if number == 1:
                extra.die()


def test_one_making_answers_all_who_had_asked_for_the_same(asked: Network) -> None:
    processes = [asked.process(f"api-{number}") for number in range(40)]
    for number in range(MANY):
        processes[0].cast(f"topic-{number}")
    ask(processes[0])
    one = make(asked)
    asks = [ask(process) for process in processes]
    all_of_them = make(asked)
    assert all_of_them == one + 39, "each further answer is one step"
    assert all([m.kind for m in each.answers] == [Kind.ANSWER] for each in asks)
    assert asks[0].answers[0].body == asks[39].answers[0].body


def test_who_asks_while_a_view_is_made_gets_a_newer_one(asked: Network) -> None:
    first, second = asked.process("first"), asked.process("second")
    for number in range(MANY):
        first.cast(f"topic-{number}")
    early = ask(first, "overview")
    make(asked, 20)
    third = asked.process("third")
    late = ask(second, "overview")
    make(asked)
    assert "third" not in {row["identity"] for row in early.answers[0].body["processes"]}
    assert third.identity in {row["identity"] for row in late.answers[0].body["processes"]}


def test_links_take_turns_whatever_each_has_asked_for(asked: Network) -> None:
    greedy, modest = asked.process("greedy"), asked.process("modest")
    many = [ask(greedy, what) for what in (*VIEWS, *VIEWS)]
    one = ask(modest, "calls")
    while not one.answers:
        make(asked, 1)
    assert sum(bool(each.answers) for each in many) <= 2
    make(asked)
    assert all(each.answers[0].kind is Kind.ANSWER for each in many)


def test_questions_of_one_link_are_bounded(asked: Network) -> None:
    api = asked.process("api")
    asks = [ask(api, "summary") for _ in range(MAX_ASKED + 1)]
    assert asks[-1].answers[0].outcome is Outcome.OVERLOADED
    assert f"at most {MAX_ASKED} are allowed" in asks[-1].answers[0].body["text"]
    make(asked)
    assert all(each.answers[0].kind is Kind.ANSWER for each in asks[:-1])


def test_nothing_is_made_for_a_link_that_is_away_and_when_it_is_back_it_is(asked: Network) -> None:
    api = asked.process("api")
    waiting = [ask(api), ask(api, "summary")]
    api.lose()
    assert make(asked) <= 1
    api.connect()
    make(asked)
    assert [each.answers[0].kind for each in waiting] == [Kind.ANSWER] * 2


def test_a_link_that_goes_while_its_view_is_made_has_it_when_it_is_back(asked: Network) -> None:
    api = asked.process("api")
    for number in range(MANY):
        api.cast(f"topic-{number}")
    question = ask(api)
    make(asked, 5)
    api.lose()
    make(asked)
    assert not asked.link(api).outbox, "it may never come back"
    api.connect()
    make(asked)
    assert question.answers[0].kind is Kind.ANSWER


def test_what_a_link_asked_goes_with_it(asked: Network) -> None:
    api = asked.process("api")
    for what in VIEWS:
        ask(api, what)
    make(asked, 1)
    api.die()
    asked.advance(asked.router.settings.resume_seconds + 1)
    assert asked.router.links.by_identity("api") is None
    queries = asked.router.queries
    make(asked)
    assert not queries._asked and not queries._turns and not queries._takers and not queries._payload


def test_a_view_that_cannot_be_made_costs_those_only_who_wait_for_it(asked: Network) -> None:
    api, other = asked.process("api"), asked.process("other")
    bad, good = ask(api, "topics"), ask(other, "summary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(asked.router.views, "topics", lambda now: iter([1 / 0]))
        with pytest.raises(ZeroDivisionError):
            make(asked)
    make(asked)
    assert bad.answers[0].outcome is Outcome.OVERLOADED and "failed to make this view" in bad.answers[0].body["text"]
    assert good.answers[0].kind is Kind.ANSWER


def test_stuck_makes_no_more_rows_than_it_shows(net: Network) -> None:
    api, node = net.process("api"), net.process("node")
    node.register("compute", credit=MAX_ROWS + 100)
    for number in range(MAX_ROWS + 50):
        api.cast("compute", f"m-{number % 10}", flags=Flag.IDEMPOTENT)
    net.advance(20)
    answer = overview(net.router, net.now, "stuck")
    assert len(answer["stuck"]) == MAX_ROWS and answer["truncated"] == 50
    assert answer["stuck"] == sorted(answer["stuck"], key=lambda row: -row["seconds"])
