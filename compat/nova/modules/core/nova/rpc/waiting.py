"""Waiting for replies: the iterator of a multicall, and rpcmq's errors as those of Nova."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn, Self

from compat.nova import transport
from rpcmq.errors import CallTimeout, LinkLost, NoConsumer, RpcError

from nova.rpc import common

__all__ = ["MulticallWaiter", "nova_errors", "raise_as_nova"]


class MulticallWaiter:
    """The replies to a multicall, once: iterate over it.

    Each wait raises ``Timeout`` when no reply comes in time, and the remote error when the method raised.
    """

    def __init__(self, conf: Any, stream: Iterator[Any], topic: str, method: Any) -> None:
        self._conf = conf
        self._stream = stream
        self._topic = topic
        self._method = method

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        with nova_errors(self._conf, self._topic, self._method):
            return next(self._stream)

    def done(self) -> None:
        """Take no more."""
        close: Any = getattr(self._stream, "close", None)
        if close is not None:
            close()


class nova_errors:
    """Raises rpcmq's errors, and those from the other end, as Nova's."""

    __slots__ = ("_conf", "_method", "_topic")

    def __init__(self, conf: Any, topic: str, method: Any) -> None:
        self._conf = conf
        self._topic = topic
        self._method = method

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, transport.Failure | RpcError):
            raise_as_nova(error, self._conf, self._topic, self._method)


def raise_as_nova(error: transport.Failure | RpcError, conf: Any, topic: str, method: Any) -> NoReturn:
    """Raise what Nova raises for ``error``."""
    if isinstance(error, transport.Failure):
        raise common.exception_from(conf, error.failure) from None
    if isinstance(error, CallTimeout | LinkLost | NoConsumer):
        raise common.Timeout(str(error), topic, method) from error
    raise common.RPCException(str(error)) from error
