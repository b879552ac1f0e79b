"""Items that greenlets put at the same time go in one message, and each of them hears what became of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import gevent
import pytest
from gevent.event import Event

from rpcmq.client.queue.protocol import PutAnswer, Record, at_owner
from rpcmq.client.queue.shared_offers import SharedOffers
from rpcmq.client.queue.steps import Ask, Steps, take
from rpcmq.client.request import set_current_request
from rpcmq.errors import CallTimeout, LinkLost, PayloadError, RouterUnreachable
from rpcmq.payload import Format
from rpcmq.transport.gevent_shell import GeventShell
from rpcmq.wire import Address


def record(number: int, body: bytes = b"body") -> Record:
    return Record(b"", number, b"", 0, 0.0, 0.0, b"", "charge", int(Format.JSON), body)


class Owner:
    """A queue server whose answers come when the test says so: each number is ten times the counter of its item."""

    def __init__(self) -> None:
        self.go_on = Event()
        self.asked: list[list[int]] = []
        self.seconds: list[float] = []
        #: Called with the counters of the items of one message.
        self.answer: Any = lambda counters: PutAnswer("", [10 * counter for counter in counters], [])
        self.offers = SharedOffers(GeventShell().event)

    def call(self, topic: Address, msg: Mapping[str, Any], timeout: float, *, mandatory: bool) -> PutAnswer:
        self.asked.append(msg["counters"])
        self.seconds.append(timeout)
        self.go_on.wait()
        answer: PutAnswer = self.answer(msg["counters"])
        return answer

    def _send(self, records: Sequence[Record], seconds: float) -> Steps[PutAnswer]:
        message = {"counters": [record.counter for record in records]}
        answer: PutAnswer = yield Ask(at_owner("billing", "here"), message, seconds, True)
        return answer

    def put(self, record: Record, seconds: float = 60.0, queue: str = "billing") -> PutAnswer:
        return take(self.offers.offer(queue, "here", record, seconds, self._send), self.call)


@pytest.fixture
def owner() -> Iterator[Owner]:
    """An owner at which one put is under way, so that others go together."""
    owner = Owner()
    first = gevent.spawn(owner.put, record(1))
    gevent.idle()
    yield owner
    owner.go_on.set()
    first.get(timeout=10)


def spawn(owner: Owner, records: Sequence[Record], **options: Any) -> list[gevent.Greenlet[..., PutAnswer]]:
    """Put all of them in one turn of the loop; return once they have been sent."""
    putting = [gevent.spawn(owner.put, record, **options) for record in records]
    gevent.idle()
    return putting


def ends(owner: Owner, putting: Sequence[gevent.Greenlet[..., PutAnswer]]) -> list[Any]:
    """What became of each."""
    owner.go_on.set()
    gevent.joinall(putting, timeout=10)
    return [each.value if each.successful() else each.exception for each in putting]


def test_one_alone_is_sent_at_once() -> None:
    owner = Owner()
    owner.go_on.set()
    turns: list[int] = []
    gevent.spawn(turns.append, 1)
    assert owner.put(record(7)) == PutAnswer("", [70], [])
    assert turns == []


def test_those_that_come_in_one_turn_go_together_and_each_hears_its_own_number(owner):
    putting = spawn(owner, [record(number) for number in range(2, 8)])
    assert owner.asked == [[1], [2, 3, 4, 5, 6, 7]]
    assert ends(owner, putting) == [PutAnswer("", [10 * number], []) for number in range(2, 8)]
    # None is under way any more.
    assert owner.put(record(8)) == PutAnswer("", [80], [])


def test_a_message_has_at_most_a_quarter_of_those_under_way(owner):
    putting = spawn(owner, [record(number) for number in range(2, 101)])
    sizes = [len(each) for each in owner.asked[1:]]
    assert sum(sizes) == 99
    assert 8 < max(sizes) <= 25
    assert len(ends(owner, putting)) == 99
    owner.asked.clear()
    owner.go_on.clear()
    assert len(ends(owner, spawn(owner, [record(number) for number in range(2, 2002)]))) == 2000
    assert max(map(len, owner.asked)) == 256


def test_many_bytes_go_in_parts_and_a_large_item_alone(owner):
    putting = spawn(owner, [record(number, b"x" * 30_000) for number in range(2, 6)])
    putting += spawn(owner, [record(6, b"x" * 70_000), record(7)])
    assert owner.asked[1:] == [[2, 3, 4], [5], [6], [7]]
    assert len(ends(owner, putting)) == 6


def test_of_a_refusal_each_is_the_reason_or_not(owner):
    def answer(counters: list[int]) -> PutAnswer:
        if 3 in counters:
            return PutAnswer("an item is malformed", [], [])
        return PutAnswer("", counters, [])

    owner.answer = answer
    putting = spawn(owner, [record(2), record(3), record(4)])
    refused = PutAnswer("an item is malformed", [], [])
    assert ends(owner, putting) == [PutAnswer("", [2], []), refused, PutAnswer("", [4], [])]
    assert sorted(owner.asked) == [[1], [2], [2, 3, 4], [3], [4]]


def test_only_whose_id_another_item_has_hears_of_that(owner):
    owner.answer = lambda counters: PutAnswer("", counters, [1] if len(counters) > 1 else [])
    putting = spawn(owner, [record(2), record(3), record(4)])
    assert ends(owner, putting) == [PutAnswer("", [2], []), PutAnswer("", [3], [0]), PutAnswer("", [4], [])]


@pytest.mark.parametrize("error", [CallTimeout("late"), RouterUnreachable("away")])
def test_all_hear_that_nobody_has_answered(owner, error):
    def answer(counters: list[int]) -> PutAnswer:
        if len(counters) > 1:
            raise error
        return PutAnswer("", counters, [])

    owner.answer = answer
    assert ends(owner, spawn(owner, [record(2), record(3), record(4)])) == [error] * 3
    assert len(owner.asked) == 2


def test_what_is_too_large_together_goes_alone(owner):
    def answer(counters: list[int]) -> PutAnswer:
        if len(counters) > 1:
            raise PayloadError("too large")
        return PutAnswer("", counters, [])

    owner.answer = answer
    assert ends(owner, spawn(owner, [record(2), record(3)])) == [PutAnswer("", [2], []), PutAnswer("", [3], [])]


@pytest.mark.parametrize("is_sent", [False, True])
def test_where_the_one_that_sends_is_killed_the_others_ask_again(owner, is_sent):
    putting = [gevent.spawn(owner.put, record(number)) for number in (2, 3, 4)]
    if not is_sent:
        # In the turn in which it waits for the others.
        gevent.get_hub().loop.run_callback(putting[0].throw, gevent.GreenletExit)
    gevent.idle()
    putting[0].kill()
    gevent.joinall(putting, timeout=10)
    assert [type(each.exception) for each in putting[1:]] == [LinkLost, LinkLost]
    assert owner.asked == ([[1], [2, 3, 4]] if is_sent else [[1]])
    again = spawn(owner, [record(3), record(4)])
    assert ends(owner, again) == [PutAnswer("", [30], []), PutAnswer("", [40], [])]


def test_nobody_waits_for_longer_than_he_wants_to(owner):
    putting = [gevent.spawn(owner.put, record(2), 60.0), gevent.spawn(owner.put, record(3), 5.0)]
    putting.append(gevent.spawn(owner.put, record(4), 60.0))
    gevent.idle()
    assert owner.asked[1:] == [[2], [3, 4]]
    assert owner.seconds[1] > 50
    assert owner.seconds[2] <= 5
    assert len(ends(owner, putting)) == 3


def test_what_handlers_put_goes_apart_and_so_do_queues(owner):
    def in_handler(record: Record) -> Any:
        set_current_request(object(), lambda task, value: None)  # type: ignore[arg-type]
        return owner.put(record)

    putting: list[Any] = [gevent.spawn(owner.put, record(2)), gevent.spawn(in_handler, record(3))]
    putting += [gevent.spawn(owner.put, record(4), 60.0, "other"), gevent.spawn(owner.put, record(5))]
    gevent.idle()
    assert owner.asked[1:] == [[2, 5], [3], [4]]
    assert len(ends(owner, putting)) == 4
