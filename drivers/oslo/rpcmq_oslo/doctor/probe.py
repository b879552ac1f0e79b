"""A server and a client of oslo.messaging over the service's own settings, on a topic that nobody else uses."""

from __future__ import annotations

import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, Final

import oslo_messaging
from oslo_messaging import MessagingException, ServerListenError

from rpcmq_oslo.doctor.findings import FAIL, OK, Finding, advice_for
from rpcmq_oslo.doctor.settings import Bus

__all__ = ["TOPIC", "probed"]

#: The topic of the probe; a key with few rights needs them for ``rpcmq-doctor.#``, and ``rpcmq-doctor:info``.
TOPIC: Final = "rpcmq-doctor"
#: Steps, each of which has the timeout, and some for the way.
_STEPS: Final = 8


def probed(bus: Bus, timeout: float) -> Iterator[Finding]:
    """Yield whether each kind of message arrives; waits no longer than eight times ``timeout``."""
    found: queue.SimpleQueue[Finding | None] = queue.SimpleQueue()
    probe = _Probe(bus, timeout, found.put)

    def run() -> None:
        try:
            probe.run()
        except Exception as error:
            # Of the making, or of the end: whatever it is, an operator wants to know.
            found.put((FAIL, probe.step, f"{type(error).__name__}: {error}", "report it, with the router's log"))
        finally:
            found.put(None)

    # To listen waits for a router as long as it takes: then this thread is left behind.
    threading.Thread(target=run, daemon=True, name="rpcmq-doctor-probe").start()
    deadline = time.monotonic() + _STEPS * timeout
    while True:
        try:
            finding = found.get(timeout=max(0.001, deadline - time.monotonic()))
        except queue.Empty:
            text = f"not done within {_STEPS * timeout:g} s: the routers have gone meanwhile"
            yield FAIL, probe.step, text, "run it again, with a larger --timeout"
            return
        if finding is None:
            return
        yield finding


class _Endpoint:
    """The methods of the probe called ``name``; what a cast or notification has brought is in ``came``."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.came: queue.SimpleQueue[str] = queue.SimpleQueue()

    def echo(self, ctxt: Any, text: str) -> str:
        """Return ``text``."""
        return text

    def keep(self, ctxt: Any, text: str) -> None:
        """Keep ``text``, which was cast."""
        self.came.put(text)

    def info(self, ctxt: Any, publisher_id: Any, event_type: Any, payload: Any, metadata: Any) -> Any:
        """Keep the payload of a notification; that of another probe, which shares the topic, is put back for it."""
        if payload != self.name:
            return oslo_messaging.NotificationResult.REQUEUE
        self.came.put(payload)
        return oslo_messaging.NotificationResult.HANDLED

    def await_text(self, text: str, seconds: float) -> None:
        """Wait until ``text`` has come; that of another probe at the same time is passed over.

        Raises:
            TimeoutError: it has not.
        """
        deadline = time.monotonic() + seconds
        while True:
            try:
                if self.came.get(timeout=max(0.001, deadline - time.monotonic())) == text:
                    return
            except queue.Empty:
                raise TimeoutError(f"it was taken by the router, and has not come within {seconds:g} s") from None


def _end(server: Any) -> None:
    server.stop()
    server.wait()


class _Probe:
    def __init__(self, bus: Bus, timeout: float, tell: Callable[[Finding], None]) -> None:
        self.bus = bus
        self.timeout = timeout
        self.tell = tell
        #: The step that is being tried.
        self.step = "server"
        # That of this probe alone: another one at the same time has its own.
        self.name = uuid.uuid4().hex
        self.endpoint = _Endpoint(self.name)
        self.ends = ExitStack()
        bus.conf.set_override("control_exchange", bus.exchange)

    def run(self) -> None:
        """Try each kind of message; those after one that fails are tried as well."""
        with ExitStack() as self.ends:
            self.run_steps()

    def run_steps(self) -> None:
        """Do it; what is to be released is left to the end, which takes a second that no message took."""
        transport = oslo_messaging.get_rpc_transport(self.bus.conf, self.bus.url)
        self.ends.callback(transport.cleanup)
        target = oslo_messaging.Target(topic=TOPIC, server=self.name)
        server = oslo_messaging.get_rpc_server(transport, target, [self.endpoint], executor="threading")
        self.ends.callback(_end, server)
        where = f"listens to {TOPIC} in exchange {self.bus.exchange}"
        if self.attempt("server", where, lambda: server.start(override_pool_size=1)):
            client = oslo_messaging.get_rpc_client(transport, target, timeout=self.timeout, retry=0)
            self.attempt("call", "answered", lambda: client.call({}, "echo", text="a call"))
            self.attempt("cast", "arrived", lambda: self.cast(client, "a cast"))
            everybody = client.prepare(fanout=True)
            self.attempt("fanout", "arrived", lambda: self.cast(everybody, "a fanout"))
            self.attempt("notification", "arrived", self.notify)

    def cast(self, client: Any, text: str) -> None:
        """Cast, and wait until it has come."""
        client.cast({}, "keep", text=f"{text} of {self.name}")
        self.endpoint.await_text(f"{text} of {self.name}", self.timeout)

    def notify(self) -> None:
        """Notify, and wait until the notification has come."""
        transport = oslo_messaging.get_notification_transport(self.bus.conf, self.bus.url)
        self.ends.callback(transport.cleanup)
        listener = oslo_messaging.get_notification_listener(
            transport, [oslo_messaging.Target(topic=TOPIC)], [self.endpoint], executor="threading", allow_requeue=True
        )
        event = {
            "message_id": self.name,
            "publisher_id": TOPIC,
            "event_type": "doctor.probe",
            "priority": "INFO",
            "payload": self.name,
            "timestamp": "",
        }
        self.ends.callback(_end, listener)
        listener.start(override_pool_size=1)
        # A notifier would log what goes wrong, and raise nothing.
        target = oslo_messaging.Target(topic=f"{TOPIC}.info")
        transport._send_notification(target, {}, event, version=2.0, retry=0)
        self.endpoint.await_text(self.name, self.timeout)

    def attempt(self, step: str, done: str, try_it: Callable[[], object]) -> bool:
        """Tell whether ``try_it`` succeeds, with the reason and what to do where it does not."""
        self.step = step
        began = time.monotonic()
        try:
            try_it()
        except Exception as error:
            reason = error.ex if isinstance(error, ServerListenError) else error
            known = isinstance(reason, (MessagingException, TimeoutError))
            text = str(reason) if known else f"{type(reason).__name__}: {reason}"
            self.tell((FAIL, step, text, advice_for(text, "see the router's log, and rpcmq ls --stuck")))
            return False
        self.tell((OK, step, f"{done}, {1000 * (time.monotonic() - began):.1f} ms", ""))
        return True
