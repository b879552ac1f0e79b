"""The result of a call that has ended: what the method returned, or the exception to raise."""

from __future__ import annotations

from typing import Any

from rpcmq.client.payloads import Payloads
from rpcmq.core.process.call import Call
from rpcmq.core.process.sent_streams import StreamingCall
from rpcmq.errors import PayloadRefused, RemoteError
from rpcmq.payload.remote_exception import add_hop
from rpcmq.wire import KIND_AT, Kind, method_of

__all__ = ["check_end", "decoded", "progress_of", "result_of"]

_FAULT, _END = int(Kind.FAULT), int(Kind.END)


def decoded(payloads: Payloads, call: Call, message: bytes) -> Any:
    """Decode the value in ``message``.

    Raises:
        RemoteError: it is not allowed here, or malformed.
    """
    try:
        return payloads.answer(call, message)
    except PayloadRefused as error:
        text = f"the method ran, but the reply from {call.address!r} was not decoded: {error}"
        raise RemoteError("PayloadRefused", text) from error


def progress_of(payloads: Payloads, call: Call, message: bytes) -> Any:
    """Decode the progress report in ``message``.

    Raises:
        RemoteError: it is not allowed here, or malformed. The method runs: the service has not refused the request.
    """
    try:
        return payloads.answer(call, message)
    except PayloadRefused as error:
        text = f"the method runs, but its progress was not decoded, of a call to {call.address!r}: {error}"
        raise RemoteError("PayloadRefused", text) from error


def check_end(payloads: Payloads, call: Call, message: bytes) -> None:
    """Check ``message``, the END of a stream.

    Raises:
        RemoteError: it is not signed as required.
    """
    try:
        payloads.check_end(call, message)
    except PayloadRefused as error:
        raise _undecoded(call, error) from error


def result_of(payloads: Payloads, call: Call) -> Any:
    """Return the result of an ended call; for a stream, its last item.

    Raises:
        CallError: it ended without an answer.
        RemoteError: the method raised; a registered exception class is raised as itself.
        NestedCallError: the method raised the CallError of a call that it made.
        BaseException: what the iterable has raised that its caller sends as a stream.
    """
    if call.error is not None:
        if isinstance(call, StreamingCall) and call.raised is not None:
            raise call.raised
        if call.message:  # it was started
            add_hop(call.error, call.address, method_of(call.message))
        raise call.error
    message = call.answer
    assert message is not None
    kind = message[KIND_AT]
    if kind == _FAULT:
        try:
            failure = payloads.failure(call, message)
        except PayloadRefused as error:
            raise _undecoded(call, error) from error
        add_hop(failure, call.address, method_of(call.message))
        raise failure
    if kind == _END:
        check_end(payloads, call, message)
        return decoded(payloads, call, call.items[-1]) if call.items else None
    return decoded(payloads, call, message)


def _undecoded(call: Call, error: PayloadRefused) -> RemoteError:
    return RemoteError("PayloadRefused", f"the reply from {call.address!r} was not decoded: {error}")
