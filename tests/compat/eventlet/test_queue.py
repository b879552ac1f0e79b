from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def queue(eventlet: Any) -> Any:
    return eventlet.queue


@pytest.mark.parametrize(
    ("kind", "out"),
    [
        ("Queue", [3, 1, 2]),
        ("LightQueue", [3, 1, 2]),
        ("LifoQueue", [2, 1, 3]),
        ("PriorityQueue", [1, 2, 3]),
    ],
)
def test_the_order_of_items(queue: Any, kind: str, out: list[int]):
    q = getattr(queue, kind)()
    for item in (3, 1, 2):
        q.put(item)
    assert q.qsize() == 3 and not q.empty() and not q.full()
    assert [q.get() for _ in out] == out
    assert q.empty()
    with pytest.raises(queue.Empty):
        q.get_nowait()


def test_get_waits_for_an_item(eventlet: Any, queue: Any):
    q = queue.Queue()
    threads = [eventlet.spawn(q.get) for _ in range(2)]
    eventlet.sleep(0)
    assert q.getting() == 2
    q.put("a")
    q.put("b")
    assert [thread.wait() for thread in threads] == ["a", "b"]
    assert q.getting() == 0


def test_put_waits_for_room(eventlet: Any, queue: Any):
    q = queue.Queue(2)
    done: list[int] = []

    def put() -> None:
        for i in range(4):
            q.put(i)
            done.append(i)

    eventlet.spawn(put)
    eventlet.sleep(0)
    assert done == [0, 1] and q.full() and q.putting() == 1
    with pytest.raises(queue.Full):
        q.put_nowait(9)
    with pytest.raises(queue.Full):
        q.put(9, timeout=0.001)
    assert [q.get() for _ in range(4)] == [0, 1, 2, 3]
    eventlet.sleep(0)
    assert done == [0, 1, 2, 3]


def test_a_maxsize_of_none_or_below_zero_is_no_limit(queue: Any):
    for size in (None, -1):
        q = queue.Queue(size)
        for i in range(5000):
            q.put_nowait(i)
        assert not q.full()


def test_a_maxsize_of_zero_hands_items_over(eventlet: Any, queue: Any):
    q = queue.LightQueue(0)
    order: list[str] = []

    def put() -> None:
        q.put("item")
        order.append("put")

    with pytest.raises(queue.Full):
        q.put_nowait("nobody waits")
    eventlet.spawn(put)
    eventlet.sleep(0)
    assert order == [] and q.full() and q.qsize() == 0
    assert q.get() == "item"
    eventlet.sleep(0)
    assert order == ["put"]
    getter = eventlet.spawn(q.get)
    eventlet.sleep(0)
    q.put("for one who waits", block=False)
    with pytest.raises(queue.Full):
        q.put("for a second who is not there", block=False)
    assert getter.wait() == "for one who waits"
    eventlet.spawn(put)
    eventlet.sleep(0)
    assert q.get_nowait() == "item"


def test_get_for_a_limited_time(eventlet: Any, queue: Any):
    q = queue.Queue()
    with pytest.raises(queue.Empty):
        q.get(timeout=0.001)
    assert q.getting() == 0
    q.put(1)
    assert q.get(timeout=0.001) == 1


def test_an_item_for_one_who_was_killed_goes_to_the_next(eventlet: Any, queue: Any):
    q = queue.Queue()
    first, second = eventlet.spawn(q.get), eventlet.spawn(q.get)
    eventlet.sleep(0)
    q.put("only one")
    first.kill()
    assert second.wait() == "only one"


def test_an_item_of_one_who_was_killed_is_not_put(eventlet: Any, queue: Any):
    q = queue.Queue(1)
    q.put(1)
    second = eventlet.spawn(q.put, 2)
    eventlet.sleep(0)
    second.kill()
    assert q.get() == 1
    eventlet.sleep(0)
    assert q.empty()


def test_join_waits_for_the_work(eventlet: Any, queue: Any):
    q = queue.Queue()
    done: list[int] = []

    def work() -> None:
        while True:
            item = q.get()
            eventlet.sleep(0)
            done.append(item)
            q.task_done()

    worker = eventlet.spawn(work)
    for _ in range(2):
        q.put(1)
        q.put(2)
        q.join()
    assert done == [1, 2, 1, 2]
    with pytest.raises(ValueError, match="too many"):
        q.task_done()
    worker.kill()


def test_resize_lets_in_those_who_wait(eventlet: Any, queue: Any):
    q = queue.Queue(1)
    q.put(1)
    putter = eventlet.spawn(q.put, 2)
    eventlet.sleep(0)
    q.resize(2)
    putter.wait()
    assert q.qsize() == 2


def test_what_cannot_be_compared_fails_at_who_puts_it(eventlet: Any, queue: Any):
    q = queue.PriorityQueue(1)
    q.put((1, object()))
    putter = eventlet.spawn(q.put, (1, object()))
    eventlet.sleep(0)
    q.resize(2)
    with pytest.raises(TypeError):
        putter.wait()
