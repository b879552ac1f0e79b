"""The processes of a drill: callers, services and subscribers that write down all they do.

``python -m rpcmq.drill.load ROLE OPTIONS`` with OPTIONS as JSON: see :class:`Options`. SIGTERM ends it in order.
"""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

import gevent
from gevent.event import Event as Flag

import rpcmq
from rpcmq.client.request import current_request
from rpcmq.drill.history import ANSWERS, SILENT, Recorder, What
from rpcmq.drill.names import traceparent_of
from rpcmq.drill.topology import Topology
from rpcmq.errors import CallTimeout, LinkLost, NoConsumer, Overloaded, RemoteError, RpcError

__all__ = ["TOPIC", "Options", "main", "outcome_of"]

TOPIC = "drill"
#: Part of a line of a process's log -> what it says of the router.
_SAID = {"has been silent for": SILENT, "answers again": ANSWERS}
#: A caller says so often how far it is (messages).
_REPORT_EACH = 500
#: How long the last casts may take to be taken by the router (seconds).
_SETTLE_SECONDS = 20.0
_OUTCOMES: dict[type[BaseException], str] = {
    CallTimeout: "timeout",
    NoConsumer: "no_consumer",
    Overloaded: "overloaded",
    LinkLost: "link_lost",
    RemoteError: "remote_error",
}


@dataclass(frozen=True)
class Options:
    """What one process is told.

    Attributes:
        name: in the history; another for each life.
        place: its identity at the router, the same for each life.
        history: file of its history.
        count: messages that a caller sends; 0: until it is ended.
        files: most files that it may open; 0: as many as it finds.
        slow_seconds: that a subscriber takes for each event.
    """

    router: str
    name: str
    place: str
    history: str
    seed: int
    topology: dict[str, Any]
    count: int = 0
    files: int = 0
    slow_seconds: float = 0.0

    def to_json(self) -> str:
        """As an argument of the command line."""
        return json.dumps(asdict(self))


class DrillFailure(Exception):
    """What a handler raises that is asked to."""


def outcome_of(error: BaseException) -> str:
    """The name of the outcome that ``error`` stands for."""
    # An exception that was rebuilt is a remote one, too.
    if isinstance(error.__cause__, RemoteError):
        return "remote_error"
    return next((name for kind, name in _OUTCOMES.items() if isinstance(error, kind)), type(error).__name__)


class Service:
    """The endpoint."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def work(self, ctx: Any, id: str, topic: str, seconds: float, fails: bool, hogs: bool, text: str) -> str:
        """Takes its time, and says what it was for."""
        request = current_request()
        attempt = request.attempt if request is not None else 0
        self._recorder.write(What.START, id, topic=topic, attempt=attempt)
        if hogs:
            time.sleep(seconds)
        elif seconds:
            gevent.sleep(seconds)
        self._recorder.write(What.FINISH, id, failed=fails)
        if fails:
            raise DrillFailure(id)
        return id


class _Caller:
    def __init__(self, options: Options, recorder: Recorder, client: rpcmq.Client) -> None:
        self._options = options
        self._topology = topology = Topology(**options.topology)
        self._recorder = recorder
        self._client = client
        self._rng = Random(options.seed)
        self._sent = 0
        self.stopping = Flag()
        self._verbs, self._weights = zip(*topology.verbs.items(), strict=True)
        share = topology.rate / topology.callers
        #: Seconds between two messages of one worker.
        self._pause = topology.workers / share if share else 0.0

    def run(self) -> None:
        """Send until all is sent, or until it is stopped."""
        workers = [gevent.spawn(self._work, number) for number in range(self._topology.workers)]
        gevent.joinall(workers, raise_error=True)

    def _work(self, number: int) -> None:
        due = time.monotonic() + self._pause * number / self._topology.workers
        while not self.stopping.is_set() and (not self._options.count or self._sent < self._options.count):
            if self._pause:
                self.stopping.wait(max(0.0, due - time.monotonic()))
                due = max(due + self._pause, time.monotonic() - 1.0)
            self._sent += 1
            if self._sent % _REPORT_EACH == 0:
                _say(f"sent {self._sent}")
            self._send(f"{self._options.name}-{self._sent}")

    def _send(self, id: str) -> None:
        rng, topology = self._rng, self._topology
        (verb,) = rng.choices(self._verbs, self._weights)
        confirm = verb == "cast" and rng.random() < topology.confirmed
        idempotent = verb == "call" and rng.random() < topology.idempotent
        seconds = rng.choice(topology.handler_seconds)
        message = {
            "method": "work",
            "args": {
                "id": id,
                "topic": TOPIC,
                "seconds": seconds,
                "fails": rng.random() < topology.failing,
                "hogs": rng.random() < topology.hogging,
                "text": "x" * rng.choice(topology.sizes),
            },
        }
        fields = {"verb": verb, "topic": TOPIC, "idempotent": idempotent, "confirm": confirm}
        if verb == "call":
            fields["timeout"] = topology.timeout
        self._recorder.write(What.SUBMIT, id, **fields)
        of, trace = None, traceparent_of(id)
        try:
            if verb == "call":
                of = self._client.call(None, TOPIC, message, topology.timeout, idempotent=idempotent, traceparent=trace)
            elif verb == "cast":
                self._client.cast(None, TOPIC, message, confirm=confirm, timeout=topology.timeout, traceparent=trace)
            elif verb == "fanout":
                self._client.fanout_cast(None, TOPIC, message, timeout=topology.timeout, traceparent=trace)
            else:
                self._client.publish(None, f"{TOPIC}.event", id)
        except RpcError as error:
            self._recorder.write(What.END, id, outcome=outcome_of(error), text=str(error)[:200])
            return
        if confirm:
            self._recorder.write(What.CONFIRM, id)
        if verb == "call" or confirm:
            self._recorder.write(What.END, id, outcome="ok", of=of)

    def close(self) -> None:
        """Hand over what is left, and say how it went."""
        caller = self._client.process.caller
        deadline = time.monotonic() + _SETTLE_SECONDS
        while caller.casts_open and time.monotonic() < deadline:
            self._client.process.uplink.ask_acknowledgement()
            self._client.process.schedule()
            gevent.sleep(0.01)
        self._recorder.write(What.DONE, left=caller.casts_open)
        _count(self._recorder, self._client)


def _count(recorder: Recorder, client: rpcmq.Client) -> None:
    process = client.process
    late = process.caller.counters["late replies"] + process.serving.counters["late answers"]
    usage = resource.getrusage(resource.RUSAGE_SELF)
    recorder.write(
        What.COUNTED,
        **{
            "late answers": late,
            "lost wakeups": process.connection.lost_wakeups,
            "reconnects": process.connection.reconnects,
            "cpu": round(usage.ru_utime + usage.ru_stime, 3),
        },
    )


def _write_links(client: rpcmq.Client, recorder: Recorder) -> None:
    """Have each session with the router written down."""
    connection, uplink = client.process.connection, client.process.uplink
    on_ready = connection.on_ready

    def ready() -> None:
        away = {"away": round(time.monotonic() - uplink.lost_at, 6)} if uplink.lost_at else {}
        resumed = bool(uplink.router.get("resumed"))
        recorder.write(What.LINKED, resumed=resumed, link=uplink.origin.hex(), **away)
        on_ready()

    connection.on_ready = ready  # type: ignore[method-assign]


class _Ear(logging.Handler):
    """Has what a process says of its router written down."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__(logging.WARNING)
        self._recorder = recorder

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        for part, what in _SAID.items():
            if part in text:
                self._recorder.write(What.SAYS, what)


def _call(options: Options, recorder: Recorder) -> None:
    with rpcmq.Client(options.router, options.place, shell="gevent") as client:
        _write_links(client, recorder)
        client.connect(30.0)
        caller = _Caller(options, recorder, client)
        _on_sigterm(caller.stopping.set)
        _say("ready")
        caller.run()
        caller.close()


def _serve(options: Options, recorder: Recorder) -> None:
    topology = Topology(**options.topology)
    service = rpcmq.Service(
        TOPIC,
        Service(recorder),
        host=options.place,
        router=options.router,
        identity=options.place,
        concurrency=topology.concurrency,
    )
    _write_links(service.client, recorder)
    service.start(30.0)
    _say("ready")
    # What it raises on purpose need not be written down a second time.
    logging.getLogger("rpcmq.service").setLevel(logging.CRITICAL)
    service.wait()
    _count(recorder, service.client)


def _subscribe(options: Options, recorder: Recorder) -> None:
    stopping = Flag()
    _on_sigterm(stopping.set)
    latency: list[float] = []

    def handle(ctx: Any, topic: str, payload: Any) -> None:
        if isinstance(payload, float):
            latency.append(time.monotonic() - payload)
        if options.slow_seconds:
            gevent.sleep(options.slow_seconds)

    with rpcmq.Client(options.router, options.place, shell="gevent") as client:
        subscription = client.subscribe(f"{TOPIC}.#", handle)
        _say("ready")
        stopping.wait()
        latency.sort()
        recorder.write(
            What.COUNTED,
            **{
                "events": subscription.received,
                "events lost": subscription.lost,
                "p99": round(latency[int(len(latency) * 0.99)], 6) if latency else None,
            },
        )


def _publish(options: Options, recorder: Recorder) -> None:
    """Events at an even rate, each with the time at which it was sent."""
    stopping = Flag()
    _on_sigterm(stopping.set)
    rate = Topology(**options.topology).rate
    with rpcmq.Client(options.router, options.place, shell="gevent") as client:
        client.connect(30.0)
        _say("ready")
        began = time.monotonic()
        sent = 0
        while not stopping.is_set():
            for _ in range(max(0, int((time.monotonic() - began) * rate) - sent)):
                client.publish(None, f"{TOPIC}.event", time.monotonic())
                sent += 1
            gevent.sleep(0.005)
        recorder.write(What.COUNTED, published=sent, seconds=round(time.monotonic() - began, 3))


def _come_and_go(options: Options, recorder: Recorder) -> None:
    """So many clients, one after the other: each calls, subscribes, and leaves, every third without a goodbye."""
    for number in range(options.count):
        with rpcmq.Client(options.router, f"{options.place}-{number}", shell="gevent") as client:
            id = f"{options.name}-{number}"
            args = {"id": id, "topic": TOPIC, "seconds": 0.0, "fails": False, "hogs": False, "text": ""}
            recorder.write(What.SUBMIT, id, verb="call", topic=TOPIC, timeout=30.0)
            of = client.call(None, TOPIC, {"method": "work", "args": args}, 30.0, traceparent=traceparent_of(id))
            recorder.write(What.END, id, outcome="ok", of=of)
            if number % 4 == 0:
                client.subscribe(f"{TOPIC}.{number}.#", lambda ctx, topic, payload: None)
            if number % 3 == 0:
                # As if the process had died: the connection is gone, and nothing more is said.
                client.process.connection._drop_socket()
                client.close(0.0)
        if number % _REPORT_EACH == 0:
            _say(f"sent {number}")
    recorder.write(What.DONE, left=0)


def _say(text: str) -> None:
    """To whoever started this process."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _on_sigterm(action: Callable[[], None]) -> None:
    gevent.signal_handler(signal.SIGTERM, action)


ROLES = {
    "caller": _call,
    "service": _serve,
    "subscriber": _subscribe,
    "publisher": _publish,
    "churn": _come_and_go,
}


def main(role: str, text: str) -> None:
    """Be a process of a drill."""
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s %(message)s")
    options = Options(**json.loads(text))
    if options.files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (options.files, options.files))
    with Recorder(options.history, options.name) as recorder:
        logger = logging.getLogger("rpcmq.client")
        logger.setLevel(logging.WARNING)
        logger.addHandler(_Ear(recorder))
        ROLES[role](options, recorder)
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
    # What a greenlet still does is of no interest.
    os._exit(0)
