"""Messages that a listener was given: acknowledged, answered, given a heartbeat, put back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from oslo_messaging import MessagingException
from oslo_messaging._drivers.base import RpcIncomingMessage

from rpcmq.adapters.serving import IncomingMessage
from rpcmq.errors import PayloadError, RpcError
from rpcmq_oslo.failures import ExcInfo, text_of_failure
from rpcmq_oslo.messages import context_and_message, failed, succeeded

__all__ = ["Incoming", "NobodyWaits"]

LOG = logging.getLogger(__name__)


class NobodyWaits(MessagingException):
    """The message is not this process's to run any more: its caller has given up, or another listener may have it."""


class Incoming(RpcIncomingMessage):
    """A call, cast or notification.

    Args:
        message: as rpcmq has delivered it.
        put_back: called with this object to have it delivered once more.

    Raises:
        ValueError: its sender does not use this driver.
    """

    def __init__(self, message: IncomingMessage, put_back: Callable[[Incoming], None]) -> None:
        context, content = context_and_message(message.body)
        super().__init__(context, content, message.id)
        self._message = message
        self._put_back = put_back
        silence = message.longest_silence
        # The server sends heartbeats if it is 2 or more, and whole.
        self.client_timeout = None if silence is None else int(silence)

    def acknowledge(self) -> None:
        """Say that it is run here, so that nobody else is given it.

        Raises:
            NobodyWaits: it is not to be run, and the server drops it.
        """
        message = self._message
        if message.is_call:
            if message.cancelled:
                message.reply(None)
                raise NobodyWaits(f"the call of {message.method!r} was not begun: its caller has given up")
        elif not message.settle():
            raise NobodyWaits(f"the cast of {message.method!r} was not begun: its router may have given it elsewhere")

    def requeue(self) -> None:
        """Put it back: it is delivered once more."""
        self._put_back(self)

    def reply(self, reply: Any = None, failure: ExcInfo | None = None) -> None:
        """Answer a call with its result, or with what its method raised; nothing is done for a cast.

        A result that cannot be encoded becomes a failure, which the caller is told.
        """
        message = self._message
        if not message.is_call:
            return
        try:
            if failure is not None:
                message.reply(failed(text_of_failure(failure)))
                return
            try:
                message.reply(succeeded(reply))
            except PayloadError as error:
                LOG.error("the result of %r cannot be sent: %s", message.method, error)
                told = ValueError(f"the result of {message.method!r} cannot be sent: {error}")
                message.reply(failed(text_of_failure((ValueError, told, None))))
        except RpcError:
            LOG.exception("the answer to %r was not sent", message.method)

    def heartbeat(self) -> None:
        """Tell the caller that the method still runs."""
        try:
            self._message.show_life()
        except RpcError:
            LOG.exception("the heartbeat of %r was not sent", self._message.method)
