"""Items are put into a queue, and worked at, by real processes: over gevent, over plain threads, and over asyncio."""

from __future__ import annotations

from time import monotonic
from typing import Any

import pytest

from rpcmq.errors import PutRefused
from rpcmq.testing import eventually
from tests.from_threads import each_shell_at_length as client_shell  # noqa: F401
from tests.queue_server.billing import Billing, message

pytestmark = pytest.mark.usefixtures("queue_server")


def charge(invoice: Any) -> dict[str, Any]:
    return message("charge", invoice=invoice)


def test_an_item_that_was_put_is_worked_at(client, work):
    billing = Billing()
    work(billing)
    receipt = client.put({"user": "ann"}, "billing", charge(17), id="invoice-17")
    assert (receipt.queue, receipt.owner, receipt.id) == ("billing", "here", "invoice-17")
    assert receipt.is_new
    eventually(lambda: billing.charged == [17])
    assert billing.contexts == [{"user": "ann"}]


def test_an_item_waits_for_its_worker(client, work):
    client.put(None, "billing", charge(1))
    billing = Billing()
    work(billing)
    eventually(lambda: billing.charged == [1])


def test_a_handler_knows_its_item(client, work):
    billing = Billing()
    work(billing)
    client.put(None, "billing", charge(1), id="invoice-1")
    made = client.put(None, "billing", charge(2))
    eventually(lambda: len(billing.items) == 2)
    first, second = sorted(billing.items, key=lambda item: item.id, reverse=True)
    assert (first.queue, first.owner, first.id, first.attempt) == ("billing", "here", "invoice-1", 1)
    assert second.id == made.id
    assert first.fence != second.fence
    assert 0 <= first.age < 60
    assert first.remaining() > 0
    first.check()


def test_the_log_of_a_worker_names_the_item_that_failed(client, work, caplog):
    billing = Billing()
    worker = work(billing)
    client.declare_queue("billing", attempts=3, backoff=0.0)
    client.put(None, "billing", message("fail", invoice=7, times=2), id="invoice-7")
    eventually(lambda: billing.charged == [7])

    def lines() -> list[Any]:
        return [each for each in caplog.records if each.name == "rpcmq.service"]

    eventually(lambda: len(lines()) == 2)
    assert [each.getMessage() for each in lines()] == [
        f"item invoice-7 of queue billing, attempt {attempt}, fail failed: LookupError: no invoice 7 "
        "(from rpcmq.queue:here)"
        for attempt in (1, 2)
    ]
    assert [each.levelname for each in lines()] == ["WARNING", "WARNING"]
    event = lines()[0].__dict__
    assert event["event"] == "item failed"
    assert event["fields"] == {
        "topic": str(worker.address), "method": "fail", "error": "LookupError", "text": "no invoice 7", "suppressed": 0,
        "caller": "rpcmq.queue:here", "queue": "billing", "item": "invoice-7", "attempt": 1,
            "is_dead": False,
    }  # fmt: skip


def test_many_items_are_put_at_once(client, work):
    billing = Billing()
    work(billing)
    receipts = client.put_many(None, "billing", [charge(n) for n in range(250)])
    assert len({receipt.id for receipt in receipts}) == 250
    eventually(lambda: len(billing.charged) == 250)
    assert sorted(billing.charged) == list(range(250))
    assert client.put_many(None, "billing", []) == []


def test_of_many_items_those_are_put_whose_unique_keys_are_free(client, work):
    client.put(None, "billing", charge(0), unique="a")
    receipts = client.put_many(None, "billing", [charge(n) for n in range(1, 5)], uniques=["a", "b", "b", None])
    assert [receipt.is_new for receipt in receipts] == [False, True, False, True]
    billing = Billing()
    work(billing)
    eventually(lambda: len(billing.charged) == 3)
    assert sorted(billing.charged) == [0, 2, 4]


def test_the_same_id_puts_nothing_again(client, work):
    billing = Billing()
    first = client.put(None, "billing", charge(1), id="a")
    again = client.put(None, "billing", charge(1), id="a")
    assert (first.is_new, again.is_new) == (True, False)
    work(billing)
    client.put(None, "billing", charge(2), id="b")
    eventually(lambda: 2 in billing.charged)
    assert client.put(None, "billing", charge(1), id="a").is_new is False
    assert sorted(billing.charged) == [1, 2]


def test_an_id_that_another_item_has_is_refused(client, work):
    client.put(None, "billing", charge(1), id="a")
    with pytest.raises(PutRefused, match=r"items of other content with the id 'a': choose another id"):
        client.put(None, "billing", charge(2), id="a")
    with pytest.raises(PutRefused, match="'a'"):
        client.put_many(None, "billing", [charge(3), charge(4)], ids=["a", "b"])
    billing = Billing()
    work(billing)
    eventually(lambda: 1 in billing.charged)
    assert 2 not in billing.charged
    assert 3 not in billing.charged


def test_an_item_is_delayed(client, work):
    billing = Billing()
    work(billing)
    begun = monotonic()
    client.put(None, "billing", charge("later"), delay=3)
    client.put(None, "billing", charge("now"))
    eventually(lambda: len(billing.charged) == 2, 60)
    assert billing.charged == ["now", "later"]
    assert monotonic() - begun >= 2.9


def test_the_higher_priority_goes_first(client, work):
    billing = Billing()
    work(billing, concurrency=1)
    client.put(None, "billing", message("wait", invoice=0))
    assert billing.started.wait(20)
    client.put_many(None, "billing", [message("in_series", key=0, invoice=n) for n in range(200)])
    client.put(None, "billing", message("in_series", key=0, invoice="less so"), priority=5)
    client.put(None, "billing", message("in_series", key=0, invoice="urgent"), priority=9)
    billing.go_on.set()
    eventually(lambda: len(billing.charged) == 203)
    # Before it are those alone that were on their way to workers.
    assert billing.charged.index((0, "urgent")) < billing.charged.index((0, "less so")) < 150


def test_an_item_that_has_expired_is_not_given(client, work):
    client.put(None, "billing", charge("stale"), expires=0.001)
    client.put(None, "billing", charge("fresh"), expires=3600)
    billing = Billing()
    work(billing)
    eventually(lambda: billing.charged)
    assert billing.charged == ["fresh"]


def test_an_item_that_expires_on_its_way_to_a_worker_is_not_begun(client, work):
    billing = Billing()
    work(billing, concurrency=1)
    client.put(None, "billing", message("wait", invoice=0))
    assert billing.started.wait(60)
    stale = client.put(None, "billing", charge("stale"), expires=0.5)
    put_at = monotonic()
    client.put(None, "billing", charge("fresh"), expires=3600)
    client.put(None, "billing", charge("later"), expires=3_000_000)
    eventually(lambda: monotonic() > put_at + 0.6, 60)
    billing.go_on.set()
    eventually(lambda: stale.state().name == "dead", 60)
    assert "nobody wanted it any more" in stale.state().text
    eventually(lambda: len(billing.charged) == 3, 60)
    assert "stale" not in billing.charged and {item.attempt for item in billing.items} == {1}


def test_items_with_one_key_run_in_series(client, work):
    billing = Billing()
    work(billing)
    for n in range(10):
        for key in ("x", "y"):
            client.put(None, "billing", message("in_series", key=key, invoice=n), key=key)
    eventually(lambda: len(billing.charged) == 20)
    assert billing.most == {"x": 1, "y": 1}
    for key in ("x", "y"):
        assert [invoice for of, invoice in billing.charged if of == key] == list(range(10))


def test_an_item_that_fails_is_tried_again(client, work):
    billing = Billing()
    work(billing)
    client.put(None, "billing", message("fail", invoice=1, times=1))
    eventually(lambda: billing.charged == [1])
    assert [item.attempt for item in billing.items] == [1, 2]
    assert billing.items[0].fence < billing.items[1].fence


def test_an_item_is_tried_again_when_its_handler_says_so(client, work):
    billing = Billing()
    work(billing)
    begun = monotonic()
    client.put(None, "billing", message("fail", invoice=1, times=3, seconds=0.05))
    eventually(lambda: billing.charged == [1])
    assert [item.attempt for item in billing.items] == [1, 2, 3, 4]
    assert monotonic() - begun >= 0.15


def test_an_item_that_is_rejected_is_not_tried_again(client, work):
    billing = Billing()
    work(billing)
    client.put(None, "billing", message("reject", invoice=1))
    client.put(None, "billing", message("fail", invoice=2, times=1))
    eventually(lambda: billing.charged == [2])
    assert billing.attempts[1] == 1


@pytest.mark.parametrize("how", ["SystemExit", "KeyboardInterrupt", "Timeout", "GreenletExit", "generator"])
def test_a_handler_that_ends_in_an_unusual_way_has_failed(client, work, how):
    billing = Billing()
    work(billing)
    client.put(None, "billing", message("end", invoice=how, how=how))
    eventually(lambda: billing.charged == [how])
    assert billing.attempts[how] == 2


def test_a_result_that_nobody_wants_need_not_be_encodable(client, work):
    billing = Billing()
    work(billing)
    client.put(None, "billing", message("end", invoice=1, how="unpicklable"))
    client.put(None, "billing", message("fail", invoice=2, times=1))
    eventually(lambda: billing.charged == [2])
    assert billing.attempts[1] == 1


def test_an_item_of_a_method_that_there_is_not_fails(client, work):
    billing = Billing()
    work(billing)
    client.put(None, "billing", message("refund", invoice=1))
    client.put(None, "billing", charge(2))
    eventually(lambda: billing.charged == [2])


# --- names -------------------------------------------------------------------------------------------


def test_a_queue_may_have_the_name_of_a_topic(client, work, serve):
    class Compute:
        def charge(self, ctx: Any, invoice: Any) -> str:
            return "called"

    billing = Billing()
    serve(Compute(), "billing")
    work(billing)
    assert client.call(None, "billing", charge(1)) == "called"
    client.put(None, "billing", charge(2))
    eventually(lambda: billing.charged == [2])
    assert client.call(None, "billing", charge(3)) == "called"
    assert billing.charged == [2]
