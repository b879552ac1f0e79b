"""A rate-limited logger for errors that peers can cause without bound."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from time import monotonic

from rpcmq.core.common.log_limit import LineLimit

__all__ = ["RateLimitedLog"]


class RateLimitedLog:
    """Writes errors and warnings to ``log``."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._limit: LineLimit[Hashable] = LineLimit()

    def error(self, kind: Hashable, text: str, raised: BaseException | None = None) -> None:
        """Log ``text``, with the traceback of ``raised``, unless there were enough lines of this ``kind`` lately."""
        self._write(logging.ERROR, kind, text, raised)

    def warning(self, kind: Hashable, text: str) -> None:
        """Like :meth:`error`, as a warning."""
        self._write(logging.WARNING, kind, text, None)

    def _write(self, level: int, kind: Hashable, text: str, raised: BaseException | None) -> None:
        suppressed = self._limit.passes(monotonic(), kind)
        if suppressed is not None:
            more = f"; {suppressed} more like it were not logged" if suppressed else ""
            self._log.log(level, "%s%s", text, more, exc_info=raised)
