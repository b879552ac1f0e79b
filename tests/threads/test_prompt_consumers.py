"""Handlers that only hand a message over run in the thread of the sockets; all others beside it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from threading import get_ident
from typing import Any

import pytest

import rpcmq.threads
from rpcmq import Address
from rpcmq.adapters.serving import KEPT, IncomingMessage, MessageConsumer
from rpcmq.errors import LinkLost, PayloadError
from rpcmq.testing import eventually
from rpcmq.testing.processes import RouterProcess
from rpcmq.transport.thread_loop import ThreadLoop
from tests.client.endpoints import message

TOPIC = Address("prompt")


class Keeper:
    """Keeps what it is given, and notes whether that was in the thread of the sockets."""

    def __init__(self, client: rpcmq.threads.Client) -> None:
        self.client = client
        self.is_prompt = True
        self.kept: SimpleQueue[IncomingMessage] = SimpleQueue()
        self.in_loop: list[bool] = []
        self.with_lock: list[bool] = []
        self.go_on = threading.Event()

    def handle(self, message: IncomingMessage) -> Any:
        self.in_loop.append(not self.client.shell.can_wait)
        self.with_lock.append(self.client.shell.is_current)
        if message.method == "fail":
            raise ValueError("cannot be kept")
        if message.method == "let go":
            return None
        if not self.is_prompt:
            self.go_on.wait(20)
        self.kept.put(message)
        return KEPT

    def answer_next(self) -> None:
        message = self.kept.get(timeout=20)
        message.reply(message.body["args"]["value"])


@pytest.fixture(scope="module")
def daemon() -> Iterator[RouterProcess]:
    with RouterProcess() as process:
        yield process


@pytest.fixture
def client(daemon: RouterProcess) -> Iterator[rpcmq.threads.Client]:
    with rpcmq.threads.Client(daemon.url) as client:
        yield client


@pytest.fixture
def keeper(daemon: RouterProcess) -> Iterator[Keeper]:
    with rpcmq.threads.Client(daemon.url) as client:
        keeper = Keeper(client)
        options: dict[str, Any] = {"beats": False, "is_prompt": lambda: keeper.is_prompt}
        consumer = MessageConsumer(client, TOPIC, keeper.handle, **options)
        consumer.start(20)
        yield keeper
        keeper.go_on.set()
        assert consumer.stop(20)


def call(client: rpcmq.threads.Client, value: object, method: str = "echo") -> Any:
    return client.call(None, TOPIC, message(method, value=value), timeout=20)


def test_a_call_is_handed_over_there_and_answered_by_any_thread(client, keeper):
    threading.Thread(target=keeper.answer_next).start()
    assert call(client, 1) == 1 and keeper.in_loop == [True]


def test_threads_that_the_handler_wakes_do_not_find_the_lock_held(client, keeper):
    threading.Thread(target=keeper.answer_next).start()
    assert call(client, 1) == 1 and keeper.in_loop == [True] and keeper.with_lock == [False]


def test_a_cast_that_is_not_kept_has_ended_when_the_handler_returns(client, keeper):
    seen: SimpleQueue[IncomingMessage] = SimpleQueue()
    take = keeper.handle

    def handle(message: IncomingMessage) -> Any:
        seen.put(message)
        return take(message)

    with rpcmq.threads.Client(client.config.router) as own:
        consumer = MessageConsumer(own, Address("let go"), handle, beats=False, is_prompt=lambda: True)
        consumer.start(20)
        client.cast(None, Address("let go"), message("let go", value=1), confirm=True)
        given = seen.get(timeout=20)
        eventually(lambda: given.done)
        assert consumer.stop(20)


def test_who_leaves_has_been_given_all_that_was_delivered(client, daemon):
    with rpcmq.threads.Client(daemon.url) as own:
        keeper = Keeper(own)
        consumer = MessageConsumer(own, Address("left"), keeper.handle, beats=False, is_prompt=lambda: True)
        consumer.start(20)
        for n in range(60):
            client.cast(None, Address("left"), message("note", value=n))
        first = keeper.kept.get(timeout=20)
        consumer.leave()
        given = [first] + [keeper.kept.get_nowait() for _ in range(keeper.kept.qsize())]
        assert all(each.settle() for each in given)
        assert consumer.stop(20) and not keeper.kept.qsize()


def test_an_answer_that_is_alone_leaves_from_the_thread_that_gives_it(client, keeper, monkeypatch):
    rings, ring = list[int](), ThreadLoop.ring

    def counted(loop: ThreadLoop) -> None:
        rings.append(get_ident())
        ring(loop)

    with ThreadPoolExecutor(1) as answering:
        thread = answering.submit(get_ident).result(20)
        monkeypatch.setattr(ThreadLoop, "ring", counted)
        for n in range(20):
            answered = answering.submit(keeper.answer_next)
            assert call(client, n) == n
            answered.result(20)
    assert rings.count(thread) < 10


def test_answers_of_many_threads_reach_their_callers(client, keeper):
    with ThreadPoolExecutor(16) as pool:
        for _ in range(200):
            pool.submit(keeper.answer_next)
        assert list(ThreadPoolExecutor(16).map(lambda n: call(client, n), range(200))) == list(range(200))


def test_what_cannot_be_encoded_leaves_the_call_open(client, keeper):
    def answer_twice() -> None:
        message = keeper.kept.get(timeout=20)
        with pytest.raises(PayloadError):
            message.reply(threading.Lock())
        message.reply("told")
        message.reply("never told")

    answering = threading.Thread(target=answer_twice)
    answering.start()
    assert call(client, 1) == "told"
    answering.join(20)


def test_an_answer_after_the_client_was_closed_goes_nowhere(daemon, client):
    own = rpcmq.threads.Client(daemon.url)
    keeper = Keeper(own)
    MessageConsumer(own, Address("closed"), keeper.handle, beats=False, is_prompt=lambda: True).start(20)
    client.cast(None, Address("closed"), message("note", value=1), confirm=True)
    with ThreadPoolExecutor(1) as calling:
        ended = calling.submit(client.call, None, Address("closed"), message("echo", value=2), 20)
        cast, asked = keeper.kept.get(timeout=20), keeper.kept.get(timeout=20)
        own.close()
        asked.reply(1)
        cast.ran()
        with pytest.raises(LinkLost):
            ended.result(20)


def test_a_cast_is_handed_over_there_and_settled_by_any_thread(client, keeper):
    client.cast(None, TOPIC, message("note", value=1), confirm=True)
    kept = keeper.kept.get(timeout=20)
    assert kept.settle() and keeper.in_loop == [True]
    eventually(lambda: kept.done)


def test_a_large_message_is_decoded_beside_it(client, keeper):
    threading.Thread(target=keeper.answer_next).start()
    assert call(client, "x" * 100_000) == "x" * 100_000
    assert keeper.in_loop == [False]


def test_a_handler_that_waits_runs_beside_it_and_holds_nobody_up(client, keeper):
    keeper.is_prompt = False
    client.cast(None, TOPIC, message("note", value=1), confirm=True)
    eventually(lambda: keeper.in_loop == [False])
    keeper.is_prompt = True
    threading.Thread(target=keeper.answer_next).start()
    assert call(client, 2) == 2 and keeper.in_loop == [False, True]
    keeper.go_on.set()
    assert keeper.kept.get(timeout=20).settle()


def test_what_it_raises_goes_to_the_caller_and_the_next_one_is_taken(client, keeper):
    with pytest.raises(ValueError, match="cannot be kept"):
        call(client, 1, method="fail")
    threading.Thread(target=keeper.answer_next).start()
    assert call(client, 2) == 2 and keeper.in_loop == [True, True]
