"""Timeouts that count from the moment they are made."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from gevent import get_hub
from greenlet import getcurrent

__all__ = ["Timeout", "with_timeout"]

_MISSING = object()


class Timeout(BaseException):
    """Raises itself, or ``exception``, in the green thread that made it, ``seconds`` from now.

    None for seconds means never. With False for the exception, a ``with`` block swallows it. Anything else
    (but None and True, which mean the timeout itself) is thrown: an exception or a class of them.
    """

    def __init__(self, seconds: float | None = None, exception: Any = None) -> None:
        super().__init__()
        self.seconds = seconds
        self.exception = exception
        self.timer: Any = None
        self.start()

    def start(self) -> None:
        """Count again, after a cancel. Raises AssertionError while it is pending."""
        assert not self.pending, f"{self!r} is already started; to restart it, cancel it first"
        if self.seconds is None:
            return
        thrown = self if self.exception is None or isinstance(self.exception, bool) else self.exception
        self.timer = get_hub().loop.timer(max(self.seconds, 0.0))
        self.timer.start(self._expire, getcurrent(), thrown, update=True)

    def _expire(self, greenlet: Any, thrown: Any) -> None:
        self.cancel()
        greenlet.throw(thrown)

    @property
    def pending(self) -> bool:
        """Tell whether it may still be raised."""
        return self.timer is not None

    def cancel(self) -> None:
        """Don't raise it any more. Harmless on one that is not pending."""
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.stop()
            timer.close()

    #: gevent's name, for code that knows both.
    close = cancel

    def __repr__(self) -> str:
        pending = " pending" if self.pending else ""
        exception = "" if self.exception is None else f" exception={self.exception!r}"
        return f"<{type(self).__name__} at {id(self):#x} seconds={self.seconds}{exception}{pending}>"

    def __str__(self) -> str:
        if self.seconds is None:
            return ""
        text = f"{self.seconds} second" + ("" if self.seconds == 1 else "s")
        if self.exception is None or self.exception is True:
            return text
        return f"{text} (silent)" if self.exception is False else f"{text} ({self.exception})"

    def __enter__(self) -> Self:
        if not self.pending:
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> bool:
        self.cancel()
        return value is self and self.exception is False


def with_timeout(seconds: float | None, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call ``function`` for at most ``seconds``.

    Then give ``timeout_value`` if that keyword is there, else raise Timeout.
    """
    value = kwargs.pop("timeout_value", _MISSING)
    timeout = Timeout(seconds)
    try:
        return function(*args, **kwargs)
    except Timeout as error:
        if error is not timeout or value is _MISSING:
            raise
        return value
    finally:
        timeout.cancel()
