"""Tells the router how the queue server is: a line of JSON each second."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

import gevent
from gevent.os import make_nonblocking, nb_write

__all__ = ["StatusReport"]

#: Pause between two lines (seconds).
_PAUSE = 1.0
#: Bytes of the figures of queues in a line; a router takes no longer line than twice that.
_MOST_BYTES = 512 * 1024
#: Bytes written at once, which come whole or not at all.
_PIECE = 4096


class StatusReport:
    """Writes lines to the pipe ``file``, until it is closed. A pipe that nobody reads is waited for.

    Args:
        about: returns what is said of the whole.
        figures: returns what is said of each queue.
    """

    def __init__(
        self, file: int, about: Callable[[], Mapping[str, Any]], figures: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._file = file
        self._about, self._figures = about, figures
        make_nonblocking(file)
        self._greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        while True:
            line = self.line()
            for start in range(0, len(line), _PIECE):
                nb_write(self._file, line[start : start + _PIECE])
            gevent.sleep(_PAUSE)

    def line(self) -> bytes:
        """Return the line that says how it is now."""
        queues: dict[str, Any] = {}
        size, left_out = 0, 0
        for name, figures in self._figures().items():
            size += len(json.dumps({name: figures}))
            if size <= _MOST_BYTES:
                queues[name] = figures
            else:
                left_out += 1
        about = {"pid": os.getpid(), **self._about(), "queues": queues, "queues_left_out": left_out}
        return json.dumps(about).encode() + b"\n"

    def close(self) -> None:
        """Say how it is at last, if the pipe has room, and stop."""
        self._greenlet.kill()
        try:
            os.write(self._file, self.line())
        except BlockingIOError:
            pass  # nobody reads it
        os.close(self._file)
