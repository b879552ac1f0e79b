"""The processes of a drill: callers, services and subscribers that record all they do.

``python -m rpcmq.drill.load ROLE OPTIONS`` with OPTIONS as JSON (:class:`rpcmq.drill.common.Options`). SIGTERM ends it
in order.
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
from random import Random
from typing import Any

import gevent
from gevent.event import Event as Flag

import rpcmq
from rpcmq.client.request import current_request
from rpcmq.core.common.drops import DropNotices
from rpcmq.drill.common import INNER, MISSPELT, TOPIC, Options, listen, outcome_of, say, text_of, write_links
from rpcmq.drill.history import Recorder, What
from rpcmq.drill.names import traceparent_of
from rpcmq.drill.topology import Topology
from rpcmq.errors import RpcError

__all__ = ["ROLES", "main", "on_sigterm"]

#: Interval of a caller's progress lines (messages).
_REPORT_EACH = 500


class DrillFailure(Exception):
    """Raised by a handler that is asked to fail."""


class Service:
    """The endpoint.

    Attributes:
        inner: makes nested calls; None: there are none.
    """

    inner: rpcmq.Client | None = None

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def work(
        self, ctx: Any, id: str, topic: str, seconds: float, fails: bool, hogs: bool, text: str,
        echo: bool = False, nested: float = 0.0,
    ) -> str | list[str]:  # fmt: skip
        """Work for a while, and return the request's id.

        Args:
            echo: ``text`` is that of ``id``, and is returned as well.
            nested: timeout of a call that the handler makes; 0: it makes none.
        """
        request = current_request()
        attempt = request.attempt if request is not None else 0
        changed = {"changed": True} if echo and text != text_of(id, len(text)) else {}
        self._recorder.write(What.START, id, topic=topic, attempt=attempt, **changed)
        if nested and self.inner is not None:
            self._ask(self.inner, f"{id}-inner", nested)
        if hogs:
            time.sleep(seconds)
        elif seconds:
            gevent.sleep(seconds)
        self._recorder.write(What.FINISH, id, failed=fails)
        if fails:
            raise DrillFailure(id)
        return [id, text] if echo else id

    def _ask(self, inner: rpcmq.Client, id: str, timeout: float) -> None:
        args = {"id": id, "topic": INNER, "seconds": 0.0, "fails": False, "hogs": False, "text": ""}
        self._recorder.write(What.SUBMIT, id, verb="call", topic=INNER, timeout=timeout, nested=True)
        try:
            trace = traceparent_of(id)
            of = inner.call(None, INNER, {"method": "work", "args": args}, timeout, traceparent=trace)
        except RpcError as error:
            self._recorder.write(What.END, id, outcome=outcome_of(error), text=str(error)[:200])
        else:
            self._recorder.write(What.END, id, outcome="ok", of=of)


class _Caller:
    def __init__(self, options: Options, recorder: Recorder, client: rpcmq.Client) -> None:
        self._options = options
        self._topology = topology = Topology(**options.topology)
        self._recorder = recorder
        self._client = client
        self._rng = Random(options.seed)
        self._sent = 0
        #: Casts to topics that nobody has.
        self._misspelt = 0
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
                say(f"sent {self._sent}")
            self._send(f"{self._options.name}-{self._sent}")

    def _send(self, id: str) -> None:
        rng, topology = self._rng, self._topology
        (verb,) = rng.choices(self._verbs, self._weights)
        confirm = verb == "cast" and rng.random() < topology.confirmed
        idempotent = verb == "call" and rng.random() < topology.idempotent
        args: dict[str, Any] = {
            "id": id,
            "topic": TOPIC,
            "seconds": rng.choice(topology.handler_seconds),
            "fails": rng.random() < topology.failing,
            "hogs": rng.random() < topology.hogging,
            "text": "x" * rng.choice(topology.sizes),
        }
        fields = {"verb": verb, "topic": TOPIC, "idempotent": idempotent, "confirm": confirm}
        mandatory = verb == "call" and self._happens(topology.mandatory)
        if verb == "call":
            fields["timeout"] = topology.timeout
            if self._happens(topology.nested):
                args["nested"] = topology.timeout
        if topology.large:
            if self._happens(topology.large):
                fields["size"] = size = rng.choice(topology.large_sizes)
                args |= {"echo": True, "text": text_of(id, size)}
            elif not (args["seconds"] or args["hogs"] or args["fails"]):
                fields["quick"] = True
        if verb == "cast" and self._happens(topology.misspelt):
            fields |= {"topic": rng.choice(MISSPELT), "misspelt": True}
        self._recorder.write(What.SUBMIT, id, **fields)
        try:
            got = self._do(verb, fields["topic"], args, confirm, idempotent, mandatory)
        except RpcError as error:
            self._recorder.write(What.END, id, outcome=outcome_of(error), text=str(error)[:200])
            return
        self._misspelt += "misspelt" in fields
        if confirm:
            self._recorder.write(What.CONFIRM, id)
        if verb == "call" or confirm:
            of, *text = got if isinstance(got, list) else [got]
            changed = {"changed": True} if text and text[0] != args["text"] else {}
            self._recorder.write(What.END, id, outcome="ok", of=of, **changed)

    def _happens(self, share: float) -> bool:
        """Return whether an event of probability ``share`` occurs. 0 draws nothing: other draws of a seed stay."""
        return share > 0 and self._rng.random() < share

    def _do(self, verb: str, topic: str, args: dict[str, Any], confirm: bool, idempotent: bool, mandatory: bool) -> Any:
        client, timeout, message = self._client, self._topology.timeout, {"method": "work", "args": args}
        trace = traceparent_of(args["id"])
        if verb == "call":
            return client.call(
                None, topic, message, timeout, idempotent=idempotent, mandatory=mandatory, traceparent=trace
            )
        if verb == "cast":
            client.cast(None, topic, message, confirm=confirm, timeout=timeout, traceparent=trace)
        elif verb == "fanout":
            client.fanout_cast(None, topic, message, timeout=timeout, traceparent=trace)
        else:
            client.publish(None, f"{TOPIC}.event", args["id"])
        return None

    def close(self) -> None:
        """Hand over unacknowledged messages, and record the counts."""
        casts = self._client.process.casts
        deadline = time.monotonic() + self._options.settle_seconds
        # Drops of unconsumed casts are reported by the router later.
        while (casts.open or (self._topology.misspelt and len(casts.retained))) and time.monotonic() < deadline:
            self._client.process.uplink.ask_acknowledgement()
            self._client.process.schedule()
            gevent.sleep(0.01)
        if self._topology.misspelt:
            gevent.sleep(DropNotices.GATHER + 0.5)  # long enough to be told too often
            while self._told_of_drops() < self._misspelt and time.monotonic() < deadline:
                gevent.sleep(0.1)
        self._recorder.write(What.DONE, left=casts.open)
        for row in self._drops():
            self._recorder.write(What.DROPPED, row["topic"], **{n: row[n] for n in ("verb", "reason", "count")})
        _count(self._recorder, self._client)

    def _drops(self) -> list[dict[str, Any]]:
        return list(self._client.statistics()["dropped_topics"]) if self._topology.misspelt else []

    def _told_of_drops(self) -> int:
        return sum(row["count"] for row in self._drops() if row["topic"] in MISSPELT)


def _count(recorder: Recorder, client: rpcmq.Client) -> None:
    process = client.process
    late = process.calls.counters["late replies"] + process.tasks.counters["late answers"]
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


def _call(options: Options, recorder: Recorder) -> None:
    with rpcmq.Client(options.router, options.place, shell="gevent") as client:
        write_links(client, recorder)
        client.connect(30.0)
        caller = _Caller(options, recorder, client)
        on_sigterm(caller.stopping.set)
        say("ready")
        caller.run()
        caller.close()


def _serve(options: Options, recorder: Recorder) -> None:
    topology = Topology(**options.topology)
    endpoint = Service(recorder)
    service = rpcmq.Service(
        TOPIC,
        endpoint,
        host=options.place,
        router=options.router,
        identity=options.place,
        concurrency=topology.concurrency,
    )
    write_links(service.client, recorder)
    inner = None
    if topology.nested:
        endpoint.inner = service.client
        inner = rpcmq.Service(INNER, Service(recorder), host=options.place, client=service.client)
        inner.start(30.0)
    service.start(30.0)
    say("ready")
    # What it raises on purpose need not be written down a second time.
    logging.getLogger("rpcmq.service").setLevel(logging.CRITICAL)
    service.wait()
    if inner is not None:
        inner.stop()
    _count(recorder, service.client)


def _subscribe(options: Options, recorder: Recorder) -> None:
    stopping = Flag()
    on_sigterm(stopping.set)

    def handle(ctx: Any, topic: str, payload: Any) -> None:
        if options.slow_seconds:
            gevent.sleep(options.slow_seconds)

    with rpcmq.Client(options.router, options.place, shell="gevent") as client:
        subscription = client.subscribe(f"{TOPIC}.#", handle)
        say("ready")
        stopping.wait()
        recorder.write(What.COUNTED, **{"events": subscription.received, "events lost": subscription.lost})


def on_sigterm(action: Callable[[], None]) -> None:
    """Run ``action`` when this process is told to end."""
    gevent.signal_handler(signal.SIGTERM, action)


ROLES = {
    "caller": _call,
    "service": _serve,
    "subscriber": _subscribe,
}


def main(role: str, text: str) -> None:
    """Be a process of a drill."""
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s %(message)s")
    options = Options(**json.loads(text))
    if options.files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (options.files, options.files))
    with Recorder(options.history, options.name) as recorder:
        listen(recorder)
        ROLES[role](options, recorder)
    sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
    # What a greenlet still does is of no interest.
    os._exit(0)
