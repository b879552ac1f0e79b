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


class _OneLine(logging.Filter):
    """Has the log say in one line what is dropped: oslo.messaging takes it for a fault, and logs a traceback."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, NobodyWaits):
            record.msg, record.args, record.exc_info = str(error), (), None
            record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
        return True


#: The loggers to which oslo.messaging says that a message could not be acknowledged.
for _name in ("oslo_messaging.rpc.server", "oslo_messaging.notify.listener"):
    logging.getLogger(_name).addFilter(_OneLine())


class Incoming(RpcIncomingMessage):
    """A call, cast or notification.

    Args:
        message: as rpcmq has delivered it.
        put_back: called with this object to have it delivered once more.
        acknowledged_first: it is acknowledged before it is run, and :meth:`reply` is called afterwards.

    Raises:
        ValueError: its sender does not use this driver.
    """

    #: Whether it was acknowledged, and its end is to come.
    _runs = False

    def __init__(
        self, message: IncomingMessage, put_back: Callable[[Incoming], None], acknowledged_first: bool = False
    ) -> None:
        context, content = context_and_message(message.body)
        super().__init__(context, content, message.id)
        self._message = message
        self._put_back = put_back
        self._acknowledged_first = acknowledged_first
        silence = message.longest_silence
        # The server sends heartbeats if it is 2 or more, and whole.
        self.client_timeout = None if silence is None else int(silence)

    def acknowledge(self) -> None:
        """Say that it is run here, so that nobody else is given it.

        What is run afterwards takes a place of this server until then: the router gives it no other one instead.

        Raises:
            NobodyWaits: it is not to be run, and the server drops it.
        """
        message = self._message
        if message.is_call:
            if message.cancelled:
                message.reply(None)
                raise NobodyWaits(f"the call of {message.method!r} was not begun: its caller has given up")
        elif not message.settle(self._acknowledged_first):
            raise NobodyWaits(f"the cast of {message.method!r} was not begun: its router may have given it elsewhere")
        self._runs = self._acknowledged_first

    def requeue(self) -> None:
        """Put it back: this listener or another one is given it once more."""
        self._message.set_aside()
        self._put_back(self)

    def give_back(self) -> bool:
        """Have the router give it to another listener, or to this one again; return whether it could be."""
        return self._message.give_back()

    def reply(self, reply: Any = None, failure: ExcInfo | None = None) -> None:
        """Answer a call with its result, or with what its method raised; nothing is done for a cast.

        What cannot be sent, because it cannot be encoded or is too large, becomes a failure, which the caller is told.
        """
        message, self._runs = self._message, False
        if not message.is_call:
            message.ran()
            return
        try:
            try:
                message.reply(succeeded(reply) if failure is None else failed(text_of_failure(failure)))
            except PayloadError as error:
                answer = "result" if failure is None else "exception"
                text = f"the {answer} of {message.method!r} cannot be sent: {error}"
                LOG.error("%s", text)
                message.reply(failed(text_of_failure((ValueError, ValueError(text), None))))
        except RpcError:
            LOG.exception("the answer to %r was not sent", message.method)

    def heartbeat(self) -> None:
        """Tell the caller that the method still runs."""
        try:
            self._message.show_life()
        except RpcError:
            LOG.exception("the heartbeat of %r was not sent", self._message.method)

    def __del__(self) -> None:
        """End what the server tells nobody the end of: its method has raised SystemExit, or a timeout of eventlet."""
        if self._runs:
            # Not here: this may be any thread, in anything that it does.
            self._message.home.post(_end_untold, self._message)


def _end_untold(message: IncomingMessage) -> None:
    if message.is_call:
        text = f"{message.method!r} has ended with neither a result nor an exception that its server tells of"
        message.reply(failed(text_of_failure((RuntimeError, RuntimeError(text), None))))
    else:
        message.ran()
