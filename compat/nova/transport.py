"""rpcmq under Nova's drivers: the clients of this process, and messages in the form that both sides know.

On rpcmq a message of Nova's is a call or cast like any other: its method in the header, its context and
args in the body, what else it has (version, namespace, ...) beside them. So services and callers that use
rpcmq itself understand it, and the other way round. What has no method or no args, such as a notification,
travels whole, as the args of :data:`WHOLE`.

All values travel as JSON, as they did with Nova: what JSON does not know is converted, or refused.
"""

from __future__ import annotations

import atexit
import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from time import monotonic
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from compat.nova import options, primitives
from rpcmq import Address, Client, Codec, Format
from rpcmq.adapters.calling import LegacyMessage
from rpcmq.adapters.serving import IncomingMessage, MessageConsumer, is_serving
from rpcmq.errors import PayloadRefused, RemoteError

__all__ = [
    "WHOLE", "Failure", "Incoming", "LegacyMessage", "NovaCodec", "client", "close", "declare", "from_wire", "to_wire",
]  # fmt: skip

#: Name of the method under which a message without method travels.
WHOLE = "nova.message"
#: The context's keys begin so where they stand among the others, as in Nova's own messages.
CONTEXT = "_context_"
_JSON = Format.JSON
_RESERVED = frozenset({"context", "keepalive"})
_NONE: dict[str, Any] = {}
#: For how long a declared topic is assumed to be known to the router (seconds); it forgets after minutes.
_DECLARE_AGAIN = 60.0


class Failure(Exception):
    """The method raised at the other end. ``failure`` is what Nova sends for that, in either form."""

    def __init__(self, failure: Any) -> None:
        super().__init__(failure)
        self.failure = failure


class NovaCodec(Codec):
    """Writes plain JSON; reads that, and what callers and services of rpcmq itself write."""

    __slots__ = ()

    def encode(self, value: object, accepted: int = 0) -> tuple[int, bytes]:
        """``value`` as JSON.

        Raises:
            TypeError, ValueError: some value in it has no JSON form; the text names its path.
        """
        return _JSON, primitives.dumps(value).encode()

    def decode(self, format: int, data: bytes | memoryview) -> Any:
        """The value that a payload encodes.

        Raises:
            PayloadRefused: it is malformed, too large or nested too deeply, or names what is not allowed.
        """
        if format == _JSON and len(data) <= self.max_bytes:
            try:
                return primitives.loads(bytes(data), self.max_depth)
            except ValueError:
                pass  # perhaps in rpcmq's own form
        # Says what is wrong with it, if it is not in the other form.
        return super().decode(format, data)

    def encode_exception(self, exc: BaseException, host: str = "") -> tuple[int, bytes]:
        """The record of ``exc``, with Nova's form of it inside."""
        from nova.rpc import common

        failure = common.failure_of((type(exc), exc, exc.__traceback__))
        if isinstance(exc, common.ClientException):
            exc = exc._exc_info[1]
        form, payload = super().encode_exception(exc, host)
        record = json.loads(payload) | {"nova": failure}
        return form, json.dumps(record).encode()

    def decode_exception(self, format: int, data: bytes | memoryview) -> BaseException:
        """Return a :class:`Failure`, whichever side raised."""
        try:
            record = self.decode_record(format, data)
        except PayloadRefused:
            record = None
        if isinstance(record, dict) and "nova" in record:
            return Failure(record["nova"])
        error = super().decode_exception(format, data)
        if isinstance(error, RemoteError):
            return Failure([error.exc_type.rpartition(".")[2], error.value, error.traceback.splitlines()])
        return Failure([type(error).__name__, str(error), []])


# --- clients -------------------------------------------------------------------------------------

_clients: dict[str, Client] = {}
#: The one for our own router. Which that is, is read when the client is made.
_own: Client | None = None


def client(conf: Any = None, server_params: Mapping[str, Any] | None = None) -> Client:
    """The client of this process for its router, or for the one on another server.

    Args:
        conf: where to read the options.
        server_params: ``hostname`` of another cell's server; its router listens on the same port as ours.
    """
    global _own
    if not server_params and _own is not None and not _own.closed:
        return _own
    url = _url(conf)
    if server_params and server_params.get("hostname"):
        own = urlsplit(url.partition(",")[0])
        url = str(server_params.get("rpcmq_router") or f"tcp://{server_params['hostname']}:{own.port}")
    found = _clients.get(url)
    if found is None or found.closed:
        found = _clients[url] = Client(url, codec=NovaCodec(), shell="gevent")
    if not server_params:
        _own = found
    return found


def _url(conf: Any) -> str:
    url = str(options.value("rpcmq_router", conf))
    if url == options.DEFAULT_ROUTER and "RPCMQ_ROUTER" not in os.environ and options.value("fake_rabbit", conf):
        return _embedded()
    return url


_embedded_router: tuple[str, ExitStack] | None = None


def _embedded() -> str:
    """The router within this process that ``fake_rabbit`` asks for, as it asked for a broker in memory."""
    global _embedded_router
    from rpcmq.testing import router

    if _embedded_router is None:
        stack = ExitStack()
        _embedded_router = stack.enter_context(router()).url, stack
        stack.callback(_close_all)
        atexit.register(stack.close)
    return _embedded_router[0]


def _close_all() -> None:
    global _own
    _own = None
    while _clients:
        _clients.popitem()[1].close(0.5)


def reset() -> None:
    """Close all clients, whatever they consume, and end the router within this process with all that it has.

    The next use starts anew.
    """
    global _embedded_router
    embedded, _embedded_router = _embedded_router, None
    _close_all()
    if embedded is not None:
        stack = embedded[1]
        atexit.unregister(stack.close)
        stack.close()


def close() -> None:
    """Close the clients that nothing is consumed by; the next use opens them again."""
    global _own
    for url, each in list(_clients.items()):
        if not is_serving(each):
            del _clients[url]
            if each is _own:
                _own = None
            each.close()


_declared: WeakKeyDictionary[Client, dict[Address, float]] = WeakKeyDictionary()


def declare(client: Client, address: Address) -> None:
    """Have the router queue messages to ``address``, though never consumed; repeated periodically.

    Raises:
        RouterUnreachable, CallError: the router is not there, or refuses.
    """
    declared = _declared.setdefault(client, {})
    if monotonic() - declared.get(address, -_DECLARE_AGAIN) >= _DECLARE_AGAIN:
        client.declare(address)
        declared[address] = monotonic()


# --- messages ------------------------------------------------------------------------------------


class Message(dict[str, Any]):
    """A message of which the context is kept apart."""

    __slots__ = ("context",)

    context: dict[str, Any]

    def flat(self) -> dict[str, Any]:
        """With the context among its own keys, as Nova sent it."""
        return {**self, **{CONTEXT + key: value for key, value in self.context.items()}}


def is_plain(message: Any) -> bool:
    """Return whether ``message`` is of the form that rpcmq's verbs take: method and args."""
    return (
        isinstance(message, dict)
        and isinstance(message.get("method"), str)
        and message["method"] != ""
        and isinstance(message.get("args", _NONE), dict)
        and _RESERVED.isdisjoint(message)
    )


def to_wire(message: Any) -> tuple[dict[str, Any] | None, LegacyMessage]:
    """Context and message as rpcmq's verbs take them."""
    if not is_plain(message):
        return None, LegacyMessage(method=WHOLE, args={"message": message})
    context = {key[len(CONTEXT) :]: value for key, value in message.items() if key.startswith(CONTEXT)}
    return context, LegacyMessage({key: value for key, value in message.items() if not key.startswith(CONTEXT)})


def from_wire(incoming: IncomingMessage) -> Any:
    """Return the message as sent; a call also has the ``_msg_id`` for its replies."""
    body = incoming.body
    if incoming.method == WHOLE:
        message = (body.get("args") or {}).get("message")
    else:
        context = body.pop("context", None)
        message = Message(body)
        message.context = context if isinstance(context, dict) else {}
        message["method"] = incoming.method
    if incoming.is_call and isinstance(message, dict):
        message["_msg_id"] = incoming.id
    return message


# --- consumers -----------------------------------------------------------------------------------


#: ``_msg_id`` -> the call that is being run here.
calls: dict[str, IncomingMessage] = {}


class Incoming:
    """Consumes an address: each message is given to ``handle``, in a greenlet of its own.

    Args:
        client: the connection.
        address: what is consumed.
        handle: called with the message. For a call it answers through ``calls[message["_msg_id"]]``, if
            not at once then later; what it raises is the answer, too.
        concurrency: how many run at once.
        group: the group of the topic that is consumed.

    Raises:
        RouterUnreachable, CallError: the router is not there, or refuses.
    """

    def __init__(self, client: Client, address: Address, handle: Any, concurrency: int = 64, group: str = "") -> None:
        self._handle = handle
        self._consumer = MessageConsumer(client, address, self._run, concurrency=concurrency, group=group)
        self._consumer.start()

    def leave(self) -> None:
        """Stop accepting messages; running handlers go on, and settle as usual."""
        self._consumer.leave()

    def stop(self, seconds: float) -> None:
        """Stop accepting messages, and wait up to ``seconds`` for running handlers, which then go on."""
        self._consumer.stop(seconds)

    def _run(self, incoming: IncomingMessage) -> None:
        message = from_wire(incoming)
        if not incoming.is_call:
            self._handle(message)
            return
        # Of what is no dict the sender never had an id.
        key = message["_msg_id"] if type(message) is Message else incoming.id
        calls[key] = incoming
        try:
            self._handle(message)
            incoming.wait()
        finally:
            del calls[key]
