"""The disk under a folder of stored responses: whether it takes any, and what is done and said where it does not."""

from __future__ import annotations

import errno
import logging
from time import monotonic

from rpcmq.client.limited_log import RateLimitedLog
from rpcmq.proxy.store.counters import Counters
from rpcmq.proxy.store.eviction import Evictor
from rpcmq.proxy.store.folder import Folder

__all__ = ["Disk"]

_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
#: Errors after which it takes nothing for a while, whatever it is given.
_LASTING = _FULL | {errno.EROFS, errno.EIO}
#: Seconds after such an error until something is stored again, if that can be.
_PAUSE_SECONDS = 1.0
#: The part of what is stored that one response may push out, on a disk that is full of other data.
_MOST_PUSHED = 1 / 2

_log = logging.getLogger("rpcmq.proxy")


class Disk:
    """Keeps a store going on a disk that is full of other data, is read-only, or fails.

    Args:
        folder: of the store.
        evictor: removes what is stored there.
        counters: of the store.
    """

    def __init__(self, folder: Folder, evictor: Evictor, counters: Counters) -> None:
        self._folder = folder
        self._evictor = evictor
        self._counters = counters
        self._limited = RateLimitedLog(_log)
        self._paused_until = 0.0
        #: Whether the last response that was to be stored could be, as far as the disk is concerned.
        self.is_storing = True

    def may_store(self) -> bool:
        """Return whether it is worth while to begin to store a response."""
        return self.is_storing or monotonic() >= self._paused_until

    def failed(self, error: OSError) -> None:
        """Count an operation that was a miss, or a body that was not stored, and say why."""
        self._counters.failed += 1
        self._limited.warning(error.errno, f"the cache in {self._folder.path}: the disk failed: {_text(error)}")

    def refused(self, error: OSError) -> None:
        """Note that a response could not be stored."""
        if error.errno not in _LASTING:
            self.failed(error)
            return
        self._counters.failed += 1
        self._paused_until = monotonic() + _PAUSE_SECONDS
        if self.is_storing:
            self.is_storing = False
            why = "is full of other data" if error.errno in _FULL else f"does not take it: {_text(error)}"
            _log.warning("the cache in %s stores nothing for now, the disk %s", self._folder.path, why)

    def stored(self) -> None:
        """Note that a response was stored."""
        if not self.is_storing:
            self.is_storing = True
            _log.warning("the cache in %s stores responses again", self._folder.path)

    def push_out(self, error: OSError, size: int, room: int) -> bool:
        """Have stored responses make room where ``error`` says that the disk is full; return whether any did.

        Args:
            size: bytes that the disk has not taken.
            room: bytes that the response takes for which this is done, these included.

        Raises:
            OSError: the disk does not let it.
        """
        used, _ = self._folder.usage()
        if error.errno not in _FULL or room > used * _MOST_PUSHED or not self._evictor.remove(size):
            return False
        self._counters.disk_full += 1
        text = f"the disk of the cache in {self._folder.path} is full, with {used} bytes of it: they give way"
        self._limited.warning("full", text)
        return True


def _text(error: OSError) -> str:
    return error.strerror or str(error)
