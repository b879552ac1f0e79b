"""Keeping hold of an exception while cleaning up."""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

import gevent

LOG = logging.getLogger(__name__)


class save_and_reraise_exception:
    """In an ``except`` block: do something, then raise the exception again, unless ``reraise`` was made false.

    An exception raised meanwhile goes on instead, and the first one is logged.
    """

    def __init__(self) -> None:
        self.reraise = True
        self.type_: type[BaseException] | None = None
        self.value: BaseException | None = None
        self.tb: TracebackType | None = None

    def __enter__(self) -> save_and_reraise_exception:
        self.type_, self.value, self.tb = sys.exc_info()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if kind is not None:
            LOG.error("Original exception being dropped", exc_info=self.value)
            return
        if self.reraise and self.value is not None:
            raise self.value.with_traceback(self.tb)


def forever_retry_uncaught_exceptions(infunc: Callable[..., Any]) -> Callable[..., Any]:
    """Call it again after whatever it raises, a second later; the same error is logged once a minute."""

    @functools.wraps(infunc)
    def retry(*args: Any, **kwargs: Any) -> Any:
        last, said = "", 0.0
        while True:
            try:
                return infunc(*args, **kwargs)
            except Exception as error:
                if str(error) != last or time.monotonic() - said > 60:
                    LOG.exception("Unexpected exception occurred; retrying")
                    last, said = str(error), time.monotonic()
                gevent.sleep(1)

    return retry
