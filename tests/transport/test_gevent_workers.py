"""Greenlets that run handlers keep nothing that they need no more."""

from __future__ import annotations

import weakref

import gevent

from rpcmq.transport.gevent_workers import GeventWorkers


class Request:
    """A request that is as large as it likes."""


def test_a_worker_that_waits_does_not_keep_the_last_request():
    handled: list[int] = []
    workers = GeventWorkers[Request](lambda request: handled.append(id(request)))
    request = Request()
    gone = weakref.ref(request)
    gevent.get_hub().loop.run_callback(workers.start, request)
    gevent.sleep(0)
    del request
    gevent.sleep(0.001)
    assert len(handled) == 1 and gone() is None


def test_close_ends_those_that_wait_and_goes_on():
    workers = GeventWorkers[int](lambda number: None)
    for number in range(3):
        gevent.get_hub().loop.run_callback(workers.start, number)
    gevent.sleep(0.001)
    assert len(workers._idle) == 1
    (waiting,) = workers._idle
    workers.close()
    assert waiting.dead and not workers._idle
