"""Observers see calls and casts while there are any, leave the hooks of others alone, and break nothing."""

from __future__ import annotations

from typing import Any

from rpcmq.core.router.model import Delivery, Request
from rpcmq.errors import Outcome
from rpcmq.testing.network import Network
from rpcmq.wire import KIND_AT, Kind


class Notes:
    def __init__(self, fails: bool = False) -> None:
        self.seen: list[Any] = []
        self._fails = fails

    def _note(self, *what: Any) -> None:
        self.seen.append(what)
        if self._fails:
            raise RuntimeError("on purpose")

    def delivered(self, now: float, delivery: Delivery) -> None:
        self._note("delivered", delivery.consumer.link.identity)

    def answered(self, now: float, delivery: Delivery, message: bytes) -> None:
        self._note("answered", Kind(message[KIND_AT]))

    def ended(self, now: float, request: Request, outcome: int) -> None:
        self._note("ended", Outcome(outcome))


def exchange(net: Network) -> None:
    """A call that is answered, a cast that is settled, and a call that times out."""
    api, worker = net.process("api"), net.process("worker")
    worker.register("compute", credit=10)
    api.request("compute")
    worker.reply(worker.take(Kind.REQUEST))
    api.cast("compute")
    worker.settle(worker.take(Kind.CAST))
    api.request("compute", ttl=1)
    net.advance(2)
    api.stop()
    worker.stop()


ALL = [
    ("delivered", "worker"), ("answered", Kind.REPLY), ("delivered", "worker"), ("ended", Outcome.OK),
    ("delivered", "worker"), ("ended", Outcome.TIMEOUT),
]  # fmt: skip


def test_an_observer_sees_each_delivery_and_each_end_until_it_is_removed() -> None:
    net, notes = Network(), Notes()
    observers = net.router.roundrobin.observers
    observers.add(notes)
    observers.add(notes)
    exchange(net)
    assert notes.seen == ALL
    observers.remove(notes)
    observers.remove(notes)
    exchange(net)
    assert notes.seen == ALL


def test_one_that_fails_is_reported_and_the_others_and_the_messages_go_on() -> None:
    net, notes, failing = Network(), Notes(), Notes(fails=True)
    for each in (failing, notes):
        net.router.roundrobin.observers.add(each)
    exchange(net)
    assert notes.seen == failing.seen == ALL
    assert net.router.refused["internal error"] == len(ALL)
    net.router.dispatch.check()


def test_hooks_that_were_there_are_called_too_and_come_back() -> None:
    net, notes, delivered = Network(), Notes(), list[Delivery]()
    deliveries, observers = net.router.dispatch.deliveries, net.router.roundrobin.observers
    deliveries.on_delivered = hook = delivered.append
    observers.add(notes)
    exchange(net)
    assert len(delivered) == 3 and notes.seen == ALL
    observers.remove(notes)
    assert deliveries.on_delivered is hook


def test_a_mesh_goes_on_owing_answers_when_nobody_observes_any_more() -> None:
    net, notes = Network(), Notes()
    requests, observers = net.router.dispatch.requests, net.router.roundrobin.observers
    requests.owes_answers = requests.watches_answers = True
    observers.add(notes)
    observers.remove(notes)
    assert requests.watches_answers and requests.on_answered is None
