"""Exceptions that are the caller's fault: they are sent, and are no news for the log."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, cast

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
"""The result of ``sys.exc_info()`` while an exception is handled."""


class ClientException(Exception):
    """Made while an exception is handled that is the caller's fault: that one is sent, and not logged here."""

    def __init__(self) -> None:
        self._exc_info = cast(ExcInfo, sys.exc_info())


def catch_client_exception(
    exceptions: Iterable[type[BaseException]], func: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    """``func(*args, **kwargs)``.

    Raises:
        ClientException: it raised one of exactly these classes.
    """
    try:
        return func(*args, **kwargs)
    except Exception as error:
        if type(error) in exceptions:
            raise ClientException from error
        raise


def client_exceptions(*exceptions: type[BaseException]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates a method whose ``exceptions`` tell the caller something and are no news for the log."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def method(*args: Any, **kwargs: Any) -> Any:
            return catch_client_exception(exceptions, func, *args, **kwargs)

        return method

    return decorate
