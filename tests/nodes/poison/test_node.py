"""The node type poison in the virtual network: what kills is stopped, and nothing else is."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rpcmq.core.router.rights import Key, Right
from rpcmq.errors import CallCancelled, CallError, CallQuarantined, Outcome, error_for
from rpcmq.nodes.poison import Poison
from rpcmq.nodes.poison.node import POISON_KIND
from rpcmq.testing.network import Call, Network
from rpcmq.testing.nodes import engine_with, plan_of, plug_in_of
from rpcmq.testing.process import Message, Process
from rpcmq.wire import Flag, Kind

BOOM = b'{"a":0}'


class Town:
    """A router with the node, callers, and consumers with a name each."""

    def __init__(self, consumers: int = 4, **settings: Any) -> None:
        self.net = Network(engine=engine_with(plan_of(Poison, settings=settings)))
        self.api, self.ops = self.net.process("api"), self.net.process("ops")
        self.workers: dict[str, Process] = {}
        for number in range(consumers):
            self.start(f"w{number}")

    def start(self, name: str, host: str = "", pid: int = 1, **register: Any) -> Process:
        worker = self.net.process(name, host=host or name, pid=pid)
        worker.register("compute", **{"credit": 10, **register})
        self.workers[name] = worker
        return worker

    def call(self, payload: bytes = BOOM, **options: Any) -> Call:
        return self.api.request("compute", "divide", payload, **{"flags": Flag.IDEMPOTENT, "ttl": 600, **options})

    def holder(self, call: Call) -> str:
        """The consumer that has the call; empty: nobody has."""
        for name, worker in self.workers.items():
            if any(each.key == call.key for each in worker.inbox):
                return name
        return ""

    def kill(self, name: str, wait: float = 0.5) -> None:
        self.workers.pop(name).die()
        self.net.advance(wait)

    def kill_with(self, call: Call, times: int = 1) -> None:
        for _ in range(times):
            self.net.advance(0.01)
            name = self.holder(call)
            assert name, call.answers
            self.kill(name)

    def ask(self, process: Process | None = None, **members: Any) -> Message:
        (answer,) = (process or self.ops).send(POISON_KIND, json.dumps(members).encode(), ttl=60_000).answers
        return answer

    def calls(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(self.ask(do="show").payload)["calls"]
        return rows

    def states(self) -> list[str]:
        return [row["state"] for row in self.calls()]

    def log(self, event: str) -> list[str]:
        return [note.text for note in self.net.notes if note.event == f"poison: {event}"]

    @property
    def counts(self) -> dict[str, float]:
        return dict(plug_in_of(self.net.router, "poison").row(self.net.now)["metrics"])

    def is_hooked(self) -> bool:
        """Return whether the router calls anybody about calls and casts."""
        dispatch = self.net.router.dispatch
        return dispatch.deliveries.gate is not None or dispatch.deliveries.on_delivered is not None


def error_of(call: Call) -> CallError:
    end = call.end
    assert end.kind is Kind.ERROR, end
    return error_for(end.outcome, end.body["text"], end.body.get("details"))


def test_a_call_that_has_killed_two_consumers_ends_with_its_story() -> None:
    town = Town()
    call = town.call()
    first = town.holder(call)
    town.kill_with(call)
    second = town.holder(call)
    assert town.states() == ["suspect"] and not call.answers
    town.kill_with(call)
    error = error_of(call)
    assert isinstance(error, CallQuarantined) and isinstance(error, CallCancelled)
    assert call.end.outcome is Outcome.CANCELLED
    text = str(error)
    assert "'divide' of 'compute' with this payload has killed 2 consumers" in text and "it may have run" in text
    assert f"{first} at " in text and f"{second} at " in text
    fingerprint = error.details["quarantine"]
    assert f"rpcmq poison release {fingerprint[:12]}" in text
    assert [kill["consumer"] for kill in error.details["kills"]] == [first, second]
    assert error.details["started"] == "unknown" and len(town.workers) == 2
    (row,) = town.calls()
    assert row["state"] == "quarantined" and row["fingerprint"] == fingerprint and row["stopped"] == 1
    assert [kill["consumer"] for kill in row["kills"]] == [first, second]
    assert len(town.log("quarantined")) == 1


def test_a_call_that_a_consumer_has_had_for_long_is_judged_without_its_latest_kill() -> None:
    """So is one that takes long beside restarts by SIGKILL: a call that kills does so each time, about as fast."""
    town = Town(consumers=5)
    call = town.call(ttl=6000)
    town.net.advance(700)
    for states in ([], ["suspect"], ["suspect"], ["quarantined"]):
        town.kill(town.holder(call), wait=1)
        assert town.states() == states
    assert isinstance(error_of(call), CallQuarantined)


def test_other_calls_with_the_same_payload_are_stopped_and_those_with_another_are_not() -> None:
    town = Town()
    town.kill_with(town.call(), 2)
    for flags in (Flag.IDEMPOTENT, 0):
        again = town.call(flags=flags)
        assert isinstance(error_of(again), CallQuarantined) and error_of(again).details["started"] == "no"
    assert town.holder(town.call(b'{"a":1}')) and town.holder(town.call(format=2))
    assert town.holder(town.api.request("compute", "add", BOOM, ttl=60))
    assert [row["stopped"] for row in town.calls() if row["state"] == "quarantined"] == [3]


def test_a_call_that_its_caller_retries_is_known_by_its_payload() -> None:
    town = Town()
    for _ in range(2):
        call = town.call(flags=0)
        town.kill_with(call)
        assert call.end.outcome is Outcome.LINK_LOST
    assert isinstance(error_of(town.call(flags=0)), CallQuarantined)


def test_casts_are_stopped_and_their_sender_is_told() -> None:
    town = Town()
    cast = town.api.cast("compute", "divide", BOOM, flags=Flag.IDEMPOTENT)
    town.kill_with(cast, 2)
    assert town.states() == ["quarantined"]
    town.net.advance(2)
    late = town.api.cast("compute", "divide", BOOM)
    assert not town.holder(late) and late.answers[0].outcome is Outcome.CANCELLED
    confirmed = town.api.cast("compute", "divide", BOOM, flags=Flag.CONFIRM)
    assert isinstance(error_of_cast(confirmed), CallQuarantined)


def error_of_cast(cast: Call) -> CallError:
    (answer,) = cast.answers
    return error_for(answer.outcome, answer.body["text"], answer.body.get("details"))


def test_what_waits_in_a_queue_is_stopped_when_a_consumer_comes() -> None:
    town = Town(consumers=2)
    call = town.call()
    waiting = None
    town.kill_with(call)
    town.kill(town.holder(call), wait=0.4)
    waiting = town.call()  # nobody is there, and it is not quarantined yet
    assert not waiting.answers
    town.net.advance(0.1)
    assert town.states() == ["quarantined"]
    town.start("late")
    assert isinstance(error_of(waiting), CallQuarantined) and not town.workers["late"].got(Kind.REQUEST)


def test_a_doubtful_quarantine_ends_a_minute_after_the_last_death_and_one_more_brings_it_back() -> None:
    town = Town(consumers=30)
    town.net.advance(700)
    for name in list(town.workers)[:2]:
        town.kill(name, wait=2)
    call = town.call()
    town.kill_with(call, 2)
    assert [row["doubtful"] for row in town.calls()] == [True] and isinstance(error_of(call), CallQuarantined)
    town.net.advance(58)
    assert town.states() == ["quarantined"]
    town.net.advance(3)
    assert town.states() == ["suspect"] and "none dies any more" in town.log("lifted")[0]
    again = town.call()
    town.kill_with(again)
    assert town.states() == ["quarantined"] and isinstance(error_of(again), CallQuarantined)
    town.net.advance(300)
    assert [row["doubtful"] for row in town.calls()] == [False]


def test_release_lets_it_through_and_judges_it_anew() -> None:
    town = Town(consumers=5)
    town.kill_with(town.call(), 2)
    (row,) = town.calls()
    answer = json.loads(town.ask(do="release", fingerprint=row["fingerprint"][:6]).payload)
    assert [each["fingerprint"] for each in answer["calls"]] == [row["fingerprint"]]
    assert town.calls() == [] and not town.is_hooked()
    assert "ops has released 'divide' of 'compute', which had killed 2 consumers" in town.log("released")[0]
    town.net.advance(2)
    call = town.call()
    town.kill_with(call)
    assert town.states() == ["suspect"]
    town.kill_with(call)
    assert town.states() == ["quarantined"]
    town.ask(do="release")
    assert town.calls() == []


def test_an_answer_ends_all_suspicion() -> None:
    town = Town()
    call = town.call()
    town.kill_with(call)
    worker = town.workers[town.holder(call)]
    worker.reply(worker.take(Kind.REQUEST), b"1")
    assert call.end.payload == b"1" and town.calls() == [] and not town.is_hooked()
    town.net.advance(2)
    town.kill_with(town.call())
    cast = town.api.cast("compute", "divide", BOOM)
    worker = town.workers[town.holder(cast)]
    assert town.states() == ["suspect"]
    worker.settle(worker.take(Kind.CAST))
    assert town.calls() == []


def test_innocent_bystanders_are_delivered_again_and_answered() -> None:
    town = Town(consumers=6)
    call = town.call()
    others = [town.call(b"%d" % number) for number in range(12)]
    town.kill_with(call)
    for other in others:
        name = town.holder(other)
        if name and name != town.holder(call):
            worker = town.workers[name]
            worker.reply(next(each for each in worker.inbox if each.key == other.key), b"ok")
    town.kill_with(call)
    assert isinstance(error_of(call), CallQuarantined)
    assert town.states().count("quarantined") == 1
    assert all(not other.answers or other.end.kind is Kind.REPLY for other in others)


def test_calls_that_always_died_together_are_not_told_apart() -> None:
    town = Town(consumers=2)
    town.kill("w1")
    town.net.advance(2)
    one, two = town.call(b"1"), town.call(b"2")
    town.kill("w0", wait=2)
    town.start("w2")
    town.net.advance(0.01)
    assert town.holder(one) == town.holder(two) == "w2"
    town.kill("w2")
    assert set(town.states()) == {"suspect"} and not one.answers and not two.answers


@pytest.mark.parametrize("how", ["goodbye", "kicked", "back in time", "back late", "unregistered", "silent"])
def test_whoever_leaves_or_comes_back_is_no_death(how: str) -> None:
    town = Town(consumers=6)
    call = town.call()
    for _ in range(3):
        name = town.holder(call)
        worker = town.workers.pop(name)
        if how == "goodbye":
            worker.stop()
        elif how == "kicked":
            town.ops.send(Kind.QUERY, json.dumps({"what": "control.kick", "identity": name}).encode(), format=1)
            worker.die()
        elif how == "unregistered":
            worker.unregister(0)
            worker.die()
        elif how == "silent":
            worker.pause()
            town.net.advance(13)
            worker.die()
        else:
            worker.lose()
            town.net.advance(0.3 if how == "back in time" else 2)
            worker.connect()
            worker.stop()
        town.net.advance(1)
    assert town.calls() == [] or town.states() == ["suspect"]
    assert town.counts["quarantined"] == 0
    assert "quarantined" not in town.states() and not any(each.kind is Kind.ERROR for each in call.answers)


def test_a_consumer_that_is_back_lifts_the_quarantine() -> None:
    town = Town()
    call = town.call()
    town.net.advance(1.5)
    worker = town.workers.pop(town.holder(call))
    worker.lose()
    town.net.advance(2)
    town.kill_with(call)
    assert town.states() == ["quarantined"]
    worker.connect()
    assert town.states() == ["suspect"]
    assert "a consumer that was taken for dead is back" in town.log("lifted")[0]
    assert town.holder(town.call())


def test_a_new_process_in_place_of_a_dead_one_does_not_hide_its_death() -> None:
    town = Town(consumers=1)
    call = town.call()
    for _ in range(2):
        town.net.advance(0.1)
        town.workers.pop("w0").die()
        town.net.advance(0.1)
        town.start("w0")
    assert isinstance(error_of(call), CallQuarantined)


def test_a_host_that_fails_kills_by_no_call() -> None:
    town = Town(consumers=0)
    for number in range(9):
        town.start(f"w{number}", host="node-7", pid=number)
    call = town.call()
    for _ in range(4):
        town.net.advance(5)
        first = town.holder(call)
        other = next(name for name in town.workers if name != first)
        town.workers.pop(other).die()
        town.net.advance(0.2)
        town.kill(first, wait=2)
    assert town.calls() == [] and town.counts["excused"] >= 4


def test_the_death_that_follows_a_call_at_once_is_a_kill() -> None:
    """The two are lost within a second: but the second one got the call when the first was dead."""
    town = Town(consumers=3)
    call = town.call()
    town.kill_with(call)
    town.kill(town.holder(call))
    assert isinstance(error_of(call), CallQuarantined)


def test_two_sessions_of_one_process_are_one_death() -> None:
    town = Town(consumers=0)
    for name in ("a", "b"):
        town.start(name, host="h1")
    call = town.call()
    holder = town.holder(call)
    town.workers.pop("b" if holder == "a" else "a").die()
    town.kill(holder)
    town.start("c", host="h2")
    assert town.states() == ["suspect"]
    town.kill_with(call)
    assert isinstance(error_of(call), CallQuarantined)


def test_a_death_long_after_the_call_was_given_is_no_kill() -> None:
    town = Town(within=10.0)
    call = town.call()
    for _ in range(3):
        town.net.advance(11)
        town.kill(town.holder(call))
    assert town.calls() == [] and not call.answers


def test_the_death_of_the_router_is_no_kill() -> None:
    town = Town()
    call = town.call()
    town.net.restart_router()
    for process in (town.api, town.ops, *town.workers.values()):
        process.connect()
    town.net.advance(3)
    assert town.calls() == [] and call.key


def test_suspicion_and_quarantine_end_by_themselves() -> None:
    town = Town(consumers=5, memory=60.0, lasts=600.0)
    town.kill_with(town.call())
    town.net.advance(61)
    assert town.calls() == [] and not town.is_hooked()
    town.kill_with(town.call(b"2", ttl=6000), 2)
    town.net.advance(599)
    assert town.states() == ["quarantined"]
    town.net.advance(2)
    assert town.calls() == [] and "lasts = 600 s are over" in town.log("lifted")[0]


def test_while_nothing_has_died_the_router_is_asked_nothing() -> None:
    town = Town()
    assert not town.is_hooked()
    steps = plug_in_of(town.net.router, "poison").steps
    town.call()
    assert plug_in_of(town.net.router, "poison").steps == steps


def test_fanouts_and_calls_that_nobody_waits_for_are_not_judged() -> None:
    town = Town()
    town.api.cast("compute", "divide", BOOM, flags=Flag.FANOUT)
    call = town.call(b"2")
    town.api.cancel(call)
    for name in list(town.workers):
        town.kill(name, wait=2)
    assert town.calls() == [] and town.counts["deaths"] == 4


def test_a_consumer_with_too_many_calls_says_nothing_of_them() -> None:
    town = Town(consumers=1)
    town.kill("w0")
    town.start("big", credit=2000)
    with town.net.together():
        for number in range(1001):
            town.call(b"%d" % number)
    town.kill("big")
    assert town.calls() == [] and town.counts["unjudged"] == 1


def test_a_full_quarantine_takes_no_more() -> None:
    town = Town(consumers=6, max_quarantined=1)
    town.kill_with(town.call(), 2)
    town.net.advance(2)
    other = town.call(b"2")
    town.kill_with(other, 2)
    assert sorted(town.states()) == ["quarantined", "suspect"] and not other.answers


def test_keys_need_the_right() -> None:
    net = Network(engine=engine_with(plan_of(Poison)))
    shows = Right(frozenset({"node"}), ("poison.show",))
    net.router.set_authorized_keys(net.now, [Key("shows", "S" * 40, (shows,)), Key("none", "N" * 40, ())])
    ops, stranger = net.process("shows", user="S" * 40), net.process("none", user="N" * 40)

    def outcome(process: Process, verb: str) -> object:
        (answer,) = process.send(POISON_KIND, json.dumps({"do": verb}).encode(), ttl=60_000).answers
        return answer.kind if answer.kind is Kind.ANSWER else answer.outcome

    assert [outcome(ops, verb) for verb in ("show", "release")] == [Kind.ANSWER, Outcome.DENIED]
    assert [outcome(stranger, verb) for verb in ("show", "release")] == [Outcome.DENIED] * 2


def test_the_story_names_the_keys_of_those_that_died() -> None:
    town = Town(consumers=0)
    anything = (Right(frozenset({"admin", "call", "node", "serve"}), ("#",)),)
    keys = [Key("agent", "A" * 40, anything), Key("rogue", "R" * 40, anything)]
    town.net.router.set_authorized_keys(town.net.now, keys)
    town.api, town.ops = town.net.process("agent", user="A" * 40), town.net.process("agent:2", user="A" * 40)
    for name in ("rogue:1", "rogue:2"):
        town.workers[name] = town.net.process(name, host=name, pid=1, user="R" * 40)
        town.workers[name].register("compute", credit=10)
    town.kill_with(town.call(), 2)
    (row,) = town.calls()
    assert row["state"] == "quarantined" and [kill["key"] for kill in row["kills"]] == ["rogue", "rogue"]


def test_nonsense_is_refused() -> None:
    town = Town()
    for payload, text in [
        (b"\xff", "a JSON object"), (b"[]", "a JSON object"), (b"{}", "do: expected one of show, release"),
        (b'{"do":"show","fingerprint":"x"}', "hexadecimal"), (b'{"do":"show","fingerprint":7}', "hexadecimal"),
        (b" " * 5000, "at most 4096"), (b'{"do":"release","fingerprint":"ab"}', "no call with a fingerprint ab"),
        (b"[" * 4000, "a JSON object"), (b'{"do":"release","revoked":1}', "revoked: expected true or false"),
    ]:  # fmt: skip
        (answer,) = town.ops.send(POISON_KIND, payload, ttl=60_000).answers
        assert answer.kind is Kind.ERROR and text in answer.body["text"], answer.body
    assert not plug_in_of(town.net.router, "poison").out


def test_a_node_that_is_taken_out_lets_everything_through() -> None:
    town = Town()
    town.kill_with(town.call(), 2)
    plug_in_of(town.net.router, "poison").stop(town.net.now, "a test")
    assert not town.is_hooked() and town.holder(town.call())
