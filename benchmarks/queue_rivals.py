"""The durable queues that are compared: how each is started, and its producers and workers."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from benchmarks import queue_ends
from benchmarks.children import Child, child, program, router
from benchmarks.queue_cost import Pids, alone, tree
from benchmarks.queue_peers_ends import (
    celery_producer,
    pika_producer,
    pika_worker,
    procrastinate_fill,
    procrastinate_producer,
    procrastinate_worker,
)
from benchmarks.queue_servers import QueueServer, missing, postgres, rabbitmq, redis

__all__ = ["OURS", "RIVALS", "Queue", "Rival"]


@dataclass(frozen=True)
class Queue:
    """A queue whose servers run.

    Attributes:
        servers: by name.
        producer, worker: processes that are ready, for as long as the block lasts; a worker runs so many items at once.
        fill: puts so many items.
        url: of the router, where there is one.
    """

    servers: Mapping[str, Pids]
    producer: Callable[[], AbstractContextManager[Child]]
    worker: Callable[[int], AbstractContextManager[Child]]
    fill: Callable[[int], None] = lambda items: None
    url: str = ""


@dataclass(frozen=True)
class Rival:
    """A kind of queue.

    Attributes:
        missing: why it can't be measured here; empty if it can.
        start: runs its servers, for as long as the block lasts; is given the pipe in which workers say what they have
            worked.
        widest: more items than that are not kept under way.
        only: where there is no other figure: of "puts", or "cycles".
        is_drained: items wait when its worker starts, and nobody puts any meanwhile.
    """

    name: str
    missing: Callable[[], str]
    start: Callable[[str], AbstractContextManager[Queue]]
    widest: int = 1024
    only: str = ""
    is_drained: bool = False


@contextmanager
def _ready(function: Callable[..., None], **arguments: object) -> Iterator[Child]:
    with child(function, **arguments) as started:
        started.heard()
        yield started


@contextmanager
def _pika(pipe: str) -> Iterator[Queue]:
    with rabbitmq() as server:
        ends = {"url": server.url, "pipe": pipe}
        yield Queue(
            {"broker": tree(server.pid)},
            lambda: _ready(pika_producer, **ends),
            lambda width: _ready(pika_worker, width=width, **ends),
        )


@contextmanager
def _celery(start: Callable[[], AbstractContextManager[QueueServer]], pipe: str) -> Iterator[Queue]:
    from benchmarks.queue_celery_names import BROKER, PIPE, READY

    with start() as server:
        env = {BROKER: server.url, PIPE: pipe}

        @contextmanager
        def worker(_: int) -> Iterator[Child]:
            command = [sys.executable, "-m", "celery", "--quiet", "-A", "benchmarks.queue_celery", "worker"]
            quiet = ["--loglevel", "WARNING", "--without-gossip", "--without-mingle", "--pool", "prefork"]
            processes = ["--concurrency", str(len(os.sched_getaffinity(0)))]
            with program("celery worker", [*command, *quiet, *processes], env) as started:
                started.line(READY)
                yield started

        yield Queue({"broker": tree(server.pid)}, lambda: _ready(celery_producer, broker=server.url, pipe=pipe), worker)


@contextmanager
def _procrastinate(pipe: str) -> Iterator[Queue]:
    with postgres() as server:

        def fill(items: int) -> None:
            with child(procrastinate_fill, url=server.url, jobs=items) as filling:
                filling.heard()

        fill(0)
        ends = {"url": server.url, "pipe": pipe}
        yield Queue(
            {"broker": tree(server.pid)},
            lambda: _ready(procrastinate_producer, **ends),
            lambda width: _ready(procrastinate_worker, width=width, **ends),
            fill,
        )


@contextmanager
def _rpcmq(pipe: str, together: int = 1) -> Iterator[Queue]:
    with (
        tempfile.TemporaryDirectory(prefix="rpcmq-bench-", ignore_cleanup_errors=True) as folder,
        _rpcmq_over(folder, pipe, together) as queue,
    ):
        yield queue


@contextmanager
def _rpcmq_postgres(pipe: str) -> Iterator[Queue]:
    with postgres() as server, _rpcmq_over(server.url, pipe, 1) as queue:
        yield replace(queue, servers={"broker": tree(server.pid), **queue.servers})


@contextmanager
def _rpcmq_over(store: str, pipe: str, together: int) -> Iterator[Queue]:
    with router() as (routing, url):
        command = [sys.executable, "-m", "rpcmq.queue_server", "--router", url, "--owner", "bench", "--store", store]
        with program("queue server", command) as serving:
            serving.line("are served")
            ends = {"url": url, "pipe": pipe}

            def fill(items: int) -> None:
                with child(queue_ends.fill, url=url, items=items) as filling:
                    filling.heard()

            yield Queue(
                {"router": alone(routing.pid), "queue": alone(serving.pid), "store": lambda: tree(serving.pid)()[1:]},
                lambda: _ready(queue_ends.producer, together=together, **ends),
                lambda width: _ready(queue_ends.worker, width=width, **ends),
                fill,
                url,
            )


OURS = Rival("rpcmq", lambda: missing("", "apsw"), _rpcmq)
RIVALS = (
    OURS,
    Rival("rpcmq, put_many(100)", lambda: missing("", "apsw"), partial(_rpcmq, together=100), 64, "puts"),
    Rival("rpcmq, PostgreSQL", lambda: missing("postgresql", "psycopg"), _rpcmq_postgres),
    Rival(
        "rpcmq, PostgreSQL, draining",
        lambda: missing("postgresql", "psycopg"),
        _rpcmq_postgres,
        widest=64,
        only="cycles",
        is_drained=True,
    ),
    Rival("RabbitMQ, pika", lambda: missing("rabbitmq-server", "pika"), _pika),
    # One process cannot have more than that under way: its puts wait in threads.
    Rival("Celery, RabbitMQ", lambda: missing("rabbitmq-server", "celery"), partial(_celery, rabbitmq), widest=64),
    Rival("Celery, Redis", lambda: missing("redis-server", "celery", "redis"), partial(_celery, redis), widest=64),
    Rival("Procrastinate", lambda: missing("postgresql", "procrastinate"), _procrastinate, widest=64),
    Rival(
        "Procrastinate, draining",
        lambda: missing("postgresql", "procrastinate"),
        _procrastinate,
        widest=64,
        only="cycles",
        is_drained=True,
    ),
)
