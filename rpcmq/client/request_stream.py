"""The stream that comes with a request, as its method reads it."""

from __future__ import annotations

from typing import Any, Self

from rpcmq.client.router_links import ServingLink
from rpcmq.client.streaming_calls import STREAM_MEMBER, WHOLE_MEMBER
from rpcmq.client.task_answers import TaskAnswers
from rpcmq.core.process.received_streams import ReceivedStream
from rpcmq.core.process.task import Task
from rpcmq.errors import CallerFailed, CallerGone, PayloadRefused
from rpcmq.payload.remote_exception import mark_not_run
from rpcmq.transport.home import Home, at_home_here
from rpcmq.wire import KIND_AT, Kind

__all__ = ["OVER", "RequestStream", "body_of", "stream_of"]

#: Longest wait before it is looked whether the caller is lost, which is not told when the router has restarted.
_LOOK_AGAIN = 1.0
#: Returned by :meth:`RequestStream.take` at the end.
OVER: Any = object()
_REQUEST_END = int(Kind.REQUEST_END)


def body_of(link: ServingLink, task: Task) -> dict[str, Any]:
    """The decoded payload of ``task``.

    Raises:
        PayloadRefused: it is not decoded, or no mapping; the caller learns that nothing was run.
    """
    try:
        body = link.process.payloads.request(task)
        if type(body) is not dict:
            raise PayloadRefused(f"the payload must be a mapping with context and args, not {type(body).__name__}")
    except PayloadRefused as error:
        mark_not_run(error)
        raise
    return body


class RequestStream:
    """Iterates over the items of a stream that the caller sends as an argument, as they come.

    The caller's iterable is begun when the first item is asked for, and is at most a few items ahead. Greenlets and
    threads that a method starts may read it, one at a time. It ends with the call.

    Args:
        link: the connection that it comes over.
        answers: of the consumer that has its task.
        name: of the argument.

    Attributes:
        name: as given.

    Raises:
        CallerFailed: while iterating: the caller's iterable has raised.
        CallerGone: while iterating: the caller has given up, has timed out, or is lost.
        PayloadRefused: while iterating: an item is not decoded, or not signed as it must be.
    """

    def __init__(self, link: ServingLink, answers: TaskAnswers, task: Task, stream: ReceivedStream, name: str) -> None:
        self._link = link
        self.shell = link.shell
        self._answers = answers
        self._task = task
        self._stream = stream
        self.name = name
        #: An exception that was raised before, and is from then on.
        self._failure: Exception | None = None

    def __repr__(self) -> str:
        return f"<rpcmq.RequestStream {self.name!r} of {self._task.method!r}, {self._stream.taken} items read>"

    @property
    def home(self) -> Home:
        """The home of the client."""
        return self._link.home

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        item = self._next()
        if item is OVER:
            raise StopIteration
        return item

    def close(self) -> None:
        """Want no more: the caller's iterable is closed, and the call goes on. From then on this has no items."""
        self._close()

    @at_home_here
    def _close(self) -> None:
        self.stop()

    def stop(self) -> None:
        """As :meth:`close`, in the client's loop."""
        process = self._link.process
        process.tasks.streams.stop(self._stream)
        process.schedule()

    @at_home_here
    def _next(self) -> Any:
        while True:
            message = self.take()
            if message is not None:
                return message if message is OVER else self.item_of(message)
            changed = self._answers.changed(self._task)
            changed.clear()
            changed.wait(_LOOK_AGAIN)

    def take(self) -> Any:
        """Return the next message, :data:`OVER` at the end, and None if there is none yet. Does not wait.

        Raises:
            RequestStreamError: there will be none.
        """
        stream, task, process = self._stream, self._task, self._link.process
        if self._failure is not None:
            raise self._failure
        ended = stream.ended
        if ended is not None and (not stream.items or not task.is_wanted):
            self._finish(ended)
            return OVER
        if stream.closed and not task.has_ended:
            return OVER
        if not task.is_wanted:
            process.tasks.streams.drop(task)
            raise self._failed(CallerGone(f"the stream {self.name!r} has ended: {self._why()}"))
        message = process.tasks.streams.take(stream)
        process.schedule()
        return message

    def _finish(self, ended: bytes) -> None:
        """Raise unless ``ended`` says that this was all."""
        if ended[KIND_AT] != _REQUEST_END:
            raise self._failed(CallerGone(f"the stream {self.name!r} has come with a gap, and is not what was sent"))
        if self._stream.closed:
            return
        try:
            error = self._link.process.payloads.sent_end(self._task, ended, self._stream.received + 1)
        except PayloadRefused as refused:
            raise self._failed(refused) from None
        if error is not None:
            text = f"the caller's iterable for {self.name!r} has raised {type(error).__name__}: {error}"
            failed = self._failed(CallerFailed(text))
            failed.__cause__ = error
            raise failed
        self._stream.closed = True

    def item_of(self, message: bytes) -> Any:
        """The value of an item.

        Raises:
            PayloadRefused: it is not decoded.
        """
        try:
            return self._link.process.payloads.sent_item(self._task, message, self._stream.taken)
        except PayloadRefused as refused:
            raise self._failed(refused) from None

    def _failed(self, error: Exception) -> Exception:
        self._failure = error
        return error

    def _why(self) -> str:
        if self._task.has_ended:
            return "its call has been answered"
        return "the caller has given up, has timed out or is gone"


def stream_of(
    link: ServingLink, answers: TaskAnswers, task: Task, body: dict[str, Any], new: type[RequestStream] = RequestStream
) -> RequestStream | None:
    """The stream that comes with ``task``, of which ``body`` says which argument it is; None: it has none.

    Raises:
        PayloadRefused: it does not say that.
    """
    stream = link.process.tasks.streams.of(task)
    if stream is None:
        return None
    name, args = body.pop(STREAM_MEMBER, None), body.get("args")
    stream.is_whole = bool(body.pop(WHOLE_MEMBER, False))
    if not isinstance(name, str) or not isinstance(args, dict) or name in args:
        raise mark_not_run(PayloadRefused("the request comes with a stream, and does not say which argument it is"))
    return new(link, answers, task, stream, name)
