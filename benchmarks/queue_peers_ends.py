"""Producers and workers of other queues, each as its documentation tells; they run in processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from benchmarks.children import commands, say
from benchmarks.queue_celery_names import BROKER, PIPE
from benchmarks.queue_work import (
    ARGUMENTS,
    ITEM,
    QUEUE,
    Outstanding,
    Worked,
    open_worked,
    run_in_threads,
    take_worked,
)
from benchmarks.workload import Meter

__all__ = [
    "celery_producer",
    "pika_producer",
    "pika_worker",
    "procrastinate_app",
    "procrastinate_fill",
    "procrastinate_producer",
    "procrastinate_worker",
]


def _produce(measure: Callable[[int, Meter, bool], None]) -> None:
    """For each command, measure with so many items under way."""
    say("ready")
    while True:
        command = commands().get()
        meter = Meter(command["seconds"])
        measure(command["width"], meter, command["is_worked"])
        say(meter.result())


# --- RabbitMQ ------------------------------------------------------------------------------------


def pika_producer(url: str, pipe: str) -> None:
    """Publishes persistent messages to a durable queue, and waits for the confirms of the broker."""
    _produce(lambda width, meter, is_worked: _Publisher(url, pipe, width, meter, is_worked).run())


class _Publisher:
    def __init__(self, url: str, pipe: str, width: int, meter: Meter, is_worked: bool) -> None:
        import pika

        self._width = width
        self._outstanding = Outstanding(meter, is_worked)
        self._goes_on = True
        self._worked = open_worked(pipe)
        #: Tags that are not confirmed, in their order, and the last one.
        self._unconfirmed: dict[int, None] = {}
        self._tag = 0
        self._persistent = pika.BasicProperties(delivery_mode=2)
        self._connection = pika.SelectConnection(
            pika.URLParameters(url),
            on_open_callback=lambda connection: connection.channel(on_open_callback=self._opened),
            on_close_callback=lambda connection, _: connection.ioloop.stop(),
        )

    def run(self) -> None:
        self._connection.ioloop.start()
        os.close(self._worked)

    def _opened(self, channel: Any) -> None:
        self._channel = channel
        channel.queue_declare(QUEUE, durable=True, callback=self._declared)

    def _declared(self, _: object) -> None:
        loop = self._connection.ioloop
        loop.add_handler(self._worked, lambda *_: self._on_worked(), loop.READ)
        self._channel.confirm_delivery(self._on_confirm, callback=lambda _: self._publish())

    def _on_confirm(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        if type(frame.method).__name__ != "Ack":
            raise RuntimeError(f"message {tag} was refused")
        if frame.method.multiple:
            confirmed = list(takewhile(lambda each: each <= tag, self._unconfirmed))
        else:
            confirmed = [tag]
        for each in confirmed:
            del self._unconfirmed[each]
        self._goes_on = self._outstanding.confirm(len(confirmed))
        self._publish()

    def _on_worked(self) -> None:
        self._goes_on = self._outstanding.work(take_worked(self._worked))
        self._publish()

    def _publish(self) -> None:
        while self._goes_on and len(self._outstanding) < self._width:
            self._outstanding.put()
            self._tag += 1
            self._unconfirmed[self._tag] = None
            self._channel.basic_publish("", QUEUE, json.dumps(ITEM).encode(), self._persistent)
        if not self._goes_on and not self._outstanding:
            self._connection.ioloop.remove_handler(self._worked)
            self._channel.queue_purge(QUEUE, callback=lambda _: self._connection.close())


def pika_worker(url: str, pipe: str, width: int) -> None:
    """Gets so many messages at once, and acknowledges each."""
    import pika

    worked = Worked(pipe)

    def work(channel: Any, delivery: Any, _: object, body: bytes) -> None:
        assert json.loads(body)["msg"]["args"] == ARGUMENTS
        channel.basic_ack(delivery.delivery_tag)
        worked.one()

    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.queue_declare(QUEUE, durable=True)
    channel.basic_qos(prefetch_count=width)
    channel.basic_consume(QUEUE, work)
    say("ready")
    channel.start_consuming()


# --- Celery --------------------------------------------------------------------------------------


def celery_producer(broker: str, pipe: str) -> None:
    """Applies tasks from threads; the worker is a program of Celery's own."""
    os.environ |= {BROKER: broker, PIPE: pipe}
    from benchmarks.queue_celery import app, charge

    file = open_worked(pipe)

    def measure(width: int, meter: Meter, is_worked: bool) -> None:
        run_in_threads(lambda: charge.apply_async(kwargs=ITEM), width, meter, file if is_worked else None)
        if not is_worked:
            app.control.purge()

    _produce(measure)


# --- Procrastinate -------------------------------------------------------------------------------


def procrastinate_app(connector: Any, worked: Worked | None = None) -> Any:
    """The app with its one task."""
    import procrastinate

    app = procrastinate.App(connector=connector)

    @app.task(name="charge", queue=QUEUE, pass_context=False)
    async def charge(ctx: dict[str, Any], msg: dict[str, Any]) -> None:
        assert msg["args"] == ARGUMENTS
        if worked is not None:
            worked.one()

    return app


def _synchronous_app(url: str) -> Any:
    import procrastinate

    app = procrastinate_app(procrastinate.SyncPsycopgConnector(conninfo=url, min_size=1, max_size=64))
    app.open()
    return app


def procrastinate_fill(url: str, jobs: int) -> None:
    """Defer so many jobs, with the tables made first if they are not there."""
    app = _synchronous_app(url)
    if not app.check_connection():
        app.schema_manager.apply_schema()
    if jobs:
        app.tasks["charge"].batch_defer(*[ITEM] * jobs)
    app.close()
    say("filled")


def procrastinate_producer(url: str, pipe: str) -> None:
    """Defers jobs from threads."""
    app = _synchronous_app(url)
    charge = app.tasks["charge"]
    file = open_worked(pipe)
    _produce(
        lambda width, meter, is_worked: run_in_threads(
            lambda: charge.defer(**ITEM), width, meter, file if is_worked else None
        )
    )


def procrastinate_worker(url: str, pipe: str, width: int) -> None:
    """Works so many jobs at once."""
    import procrastinate

    app = procrastinate_app(procrastinate.PsycopgConnector(conninfo=url, min_size=2), Worked(pipe))

    async def work() -> None:
        async with app.open_async():
            say("ready")
            await app.run_worker_async(queues=[QUEUE], concurrency=width, install_signal_handlers=False)

    asyncio.run(work())
