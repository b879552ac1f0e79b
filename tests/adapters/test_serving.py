"""The interface for adapters: messages are handed over whole, and answered now or later, from any thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import gevent
import pytest
from gevent import monkey

from rpcmq import Address, Client
from rpcmq.adapters.calling import LegacyMessage
from rpcmq.adapters.serving import KEPT, IncomingMessage, MessageConsumer, is_serving
from rpcmq.errors import CallTimeout, PayloadError, RemoteError, UsageError
from rpcmq.testing import eventually

WORK = Address("work")
Listen = Callable[..., MessageConsumer]
start_new_thread = monkey.get_original("_thread", "start_new_thread")


def body(method: str = "run", **args: Any) -> dict[str, Any]:
    return {"method": method, "args": args}


def keep_in(got: list[IncomingMessage]) -> Callable[[IncomingMessage], object]:
    """Make a handler that keeps all messages."""

    def handle(message: IncomingMessage) -> object:
        got.append(message)
        return KEPT

    return handle


@pytest.fixture
def listen(connect: Callable[..., Client]) -> Iterator[Listen]:
    """Consumes ``work`` with a client of its own."""
    made = []

    def listen(handle: Callable[[IncomingMessage], object], **options: Any) -> MessageConsumer:
        made.append(MessageConsumer(connect(), WORK, handle, **options))
        made[-1].start()
        return made[-1]

    yield listen
    for consumer in made:
        consumer.stop(10)


def test_a_message_is_whole(client: Client, listen: Listen) -> None:
    got: list[IncomingMessage] = []

    def handle(message: IncomingMessage) -> None:
        got.append(message)
        message.reply([message.method, message.body["args"], message.body["context"], message.body["shard"]])

    listen(handle)
    answer = client.call({"user": "alice"}, "work", LegacyMessage(method="run", args={"n": 1}, shard=7), 10)
    assert answer == ["run", {"n": 1}, {"user": "alice"}, 7]
    (message,) = got
    assert (message.topic, message.is_call, message.done) == (WORK, True, True)
    assert len(bytes.fromhex(message.id)) == 20


def test_a_call_is_answered_later_by_an_os_thread(client: Client, listen: Listen) -> None:
    jobs: queue.SimpleQueue[IncomingMessage] = queue.SimpleQueue()
    consumer = listen(jobs.put)
    asked = gevent.spawn(client.call, None, "work", body(n=20), 10)
    eventually(lambda: not jobs.empty())
    message = jobs.get()
    assert not message.done
    start_new_thread(lambda: message.reply(message.body["args"]["n"] + 1), ())
    assert asked.get(timeout=20) == 21
    assert message.done
    process = message._consumer._link.process
    assert consumer.stop(10) and not process.tasks.counters["late answers"]


def test_what_is_not_answered_yet_counts_as_running(client: Client, listen: Listen) -> None:
    got: list[IncomingMessage] = []
    consumer = listen(got.append, concurrency=2)
    asked = [gevent.spawn(client.call, None, "work", body(n=n), 10) for n in range(3)]
    eventually(lambda: len(got) == 2)
    assert not consumer.stop(0)
    for message in got:
        message.reply("done")
    assert [each.get(timeout=20) for each in asked[:2]] == ["done", "done"]
    assert is_serving(client) is False
    listen(lambda message: message.reply("another"))
    assert asked[2].get(timeout=20) == "another"


def test_a_call_that_nobody_answers_ends_with_its_caller(client: Client, listen: Listen) -> None:
    got: list[IncomingMessage] = []
    consumer = listen(got.append)
    with pytest.raises(CallTimeout):
        client.call(None, "work", body(), 0.2)
    eventually(lambda: got[0].cancelled and got[0].done)
    got[0].reply("too late")
    assert got[0].send_item("too late") is False
    assert consumer.stop(10)


def test_items_are_sent_as_the_caller_takes_them(client: Client, listen: Listen) -> None:
    def handle(message: IncomingMessage) -> None:
        for n in range(100):
            assert message.send_item(n)
        message.reply("last")

    listen(handle)
    assert list(client.multicall(None, "work", body(), 10)) == [*range(100), "last"]
    assert client.call(None, "work", body(), 10) == "last"


def test_a_stream_may_end_without_an_item(client: Client, listen: Listen) -> None:
    listen(lambda message: message.end())
    assert list(client.multicall(None, "work", body(), 10)) == []
    assert client.call(None, "work", body(), 10) is None


def test_whoever_waits_goes_on_when_another_answers(client: Client, listen: Listen) -> None:
    got, over = [], []

    def handle(message: IncomingMessage) -> None:
        got.append(message)
        message.wait()
        over.append(message.done)

    listen(handle)
    asked = gevent.spawn(client.call, None, "work", body(), 10)
    eventually(lambda: got)
    got[0].reply(5)
    assert asked.get(timeout=20) == 5
    eventually(lambda: over == [True])


def test_an_exception_goes_to_the_caller_raised_or_given(client: Client, listen: Listen) -> None:
    def handle(message: IncomingMessage) -> None:
        if message.method == "raise":
            raise LookupError("raised")
        message.fail(LookupError("given"))

    listen(handle)
    for method, text in (("raise", "raised"), ("give", "given")):
        with pytest.raises((LookupError, RemoteError), match=text):
            client.call(None, "work", body(method), 10)


def test_the_failure_of_a_call_that_its_caller_gave_up_is_logged(
    client: Client, listen: Listen, caplog: pytest.LogCaptureFixture
) -> None:
    got: list[IncomingMessage] = []
    listen(got.append)
    with pytest.raises(CallTimeout):
        client.call(None, "work", body(), 0.2)
    eventually(lambda: got[0].cancelled and got[0].done)
    got[0].fail(LookupError("nobody hears this"))
    eventually(lambda: "nobody hears this" in caplog.text)


def test_what_cannot_be_encoded_leaves_the_call_open(client: Client, listen: Listen) -> None:
    def handle(message: IncomingMessage) -> None:
        with pytest.raises(PayloadError):
            message.reply(threading.Lock())
        assert not message.done
        message.reply("then this")

    listen(handle)
    assert client.call(None, "work", body(), 10) == "then this"


def test_a_cast_is_acknowledged_when_the_handler_returns(client: Client, listen: Listen) -> None:
    got: list[IncomingMessage] = []

    def handle(message: IncomingMessage) -> None:
        got.append(message)
        assert not message.done
        # There is nobody to be answered.
        message.reply(1)
        message.fail(LookupError())
        message.end()
        assert message.send_item(1) is False

    listen(handle)
    client.cast(None, "work", body(), confirm=True)
    eventually(lambda: got and got[0].done)
    assert not got[0].is_call


def test_a_client_says_whether_it_serves(connect: Callable[..., Client]) -> None:
    client = connect()
    assert not is_serving(client)
    consumer = MessageConsumer(client, WORK, lambda message: None)
    consumer.start()
    assert is_serving(client)
    assert consumer.stop(10)
    assert not is_serving(client)


def test_a_wrong_argument_is_refused(client: Client) -> None:
    with pytest.raises(UsageError, match="concurrency must be 1 to 65535"):
        MessageConsumer(client, WORK, lambda message: None, concurrency=0)


def test_a_consumer_is_started_once(client: Client, listen: Listen) -> None:
    """A second registration would go on when it is stopped: nobody knew its tag any more."""
    consumer = listen(lambda message: message.reply(message.body["args"]))
    with pytest.raises(UsageError, match="work was started already"):
        consumer.start()
    assert consumer.stop(10)
    (topic,) = [row for row in client.query("topics")["topics"] if row["topic"] == "work"]
    assert topic["consumers"] == []


def test_a_handler_keeps_messages_for_which_nothing_waits(client: Client, listen: Listen) -> None:
    got: list[IncomingMessage] = []
    consumer = listen(keep_in(got), concurrency=2)
    asked = gevent.spawn(client.call, None, "work", body(n=1), 10)
    client.cast(None, "work", body(n=2), confirm=True)
    client.cast(None, "work", body(n=3), confirm=True)
    eventually(lambda: len(got) == 2)
    assert not consumer.stop(0)
    call, cast = sorted(got, key=lambda message: not message.is_call)
    assert not call.done and not cast.done
    assert not call.settle() and not call.done
    assert cast.settle() and cast.done
    start_new_thread(lambda: call.reply("one"), ())
    assert asked.get(timeout=20) == "one"
    assert consumer.stop(10)
    listen(got.append)
    eventually(lambda: [message.body["args"]["n"] for message in got[2:]] == [3])


def test_a_message_may_be_ended_before_its_handler_has_kept_it(client: Client, listen: Listen) -> None:
    def handle(message: IncomingMessage) -> Any:
        message.reply("early")
        message.settle()
        return KEPT

    consumer = listen(handle, concurrency=1)
    assert [client.call(None, "work", body(), 10) for _ in range(3)] == ["early"] * 3
    client.cast(None, "work", body(), confirm=True)
    assert client.call(None, "work", body(), 10) == "early"
    assert consumer.stop(10)


def test_a_kept_call_runs_on_when_its_caller_gives_up(client: Client, listen: Listen) -> None:
    got: list[IncomingMessage] = []
    consumer = listen(keep_in(got), concurrency=1)
    with pytest.raises(CallTimeout):
        client.call(None, "work", body(), 0.2)
    eventually(lambda: got[0].cancelled)
    assert not consumer.stop(0)
    got[0].reply("too late")
    assert consumer.stop(10)


def test_signs_of_life_may_be_left_to_the_handler(client: Client, listen: Listen) -> None:
    got: list[IncomingMessage] = []
    consumer = listen(keep_in(got), beats=False)
    with pytest.raises(CallTimeout, match=r"no sign of life for 0\.3 s"):
        client.call(None, "work", body(), 10, sign_of_life=0.3)
    assert got[0].longest_silence == 0.3
    got[0].show_life()
    asked = gevent.spawn(client.call, None, "work", body(), 10, sign_of_life=0.6)
    eventually(lambda: len(got) == 2)
    outlasted = monotonic() + 0.9

    def is_kept_up() -> bool:
        got[1].show_life()
        return monotonic() > outlasted

    eventually(is_kept_up)
    got[1].reply("alive")
    assert asked.get(timeout=20) == "alive"
    got[0].reply("too late")
    client.cast(None, "work", body(), confirm=True)
    eventually(lambda: len(got) == 3)
    assert got[2].longest_silence is None
    got[2].show_life()
    got[2].settle()
    assert consumer.stop(10)


def test_who_has_left_was_given_all_that_was_delivered(client: Client, listen: Listen) -> None:
    got: list[IncomingMessage] = []
    consumer = listen(keep_in(got), concurrency=400)
    for n in range(600):
        client.cast(None, "work", body(n=n))
    eventually(lambda: got)
    consumer.leave()
    given = len(got)
    for message in got:
        assert message.settle()
    assert consumer.stop(10) and len(got) == given
    others: list[IncomingMessage] = []
    listen(others.append)
    eventually(lambda: len(got) + len(others) == 600)
