"""Writes the dispatch log to spool files in a separate thread, so that a slow disk delays no messages.

Whatever goes wrong there (no room, no directory, a broken disk) costs records, never the router: what
cannot be written is dropped and counted, and a second later the next file is tried.
``rpcmq.log_format`` has the format and the rules for names and locks.
"""

from __future__ import annotations

import fcntl
import logging
import os
from time import monotonic, time
from typing import Any

from gevent.monkey import get_original

from rpcmq.core.router.dispatch_log import Chunk
from rpcmq.errors import ConfigError
from rpcmq.log_format import LOG_MODE, PART, SEAL, SEALED, VERSION, BlockKind, Head, file_name, framed, pack_head
from rpcmq.server.log import log_event

__all__ = ["Spool"]

log = logging.getLogger("rpcmq.router")

#: Chunks that may wait while the disk does not answer.
MAX_WAITING = 64
#: Pause after a failure before the next file is tried (seconds).
_RETRY = 1.0
#: Interval between checks whether the file was removed (seconds).
_LOOK = 1.0
#: Interval between warnings (seconds).
_SILENCE = 60.0

# The unpatched originals: waiting for a disk must block an OS thread.
_SimpleQueue = get_original("queue", "SimpleQueue")
_allocate_lock = get_original("_thread", "allocate_lock")
_start_new_thread = get_original("_thread", "start_new_thread")


class Spool:
    """The sink of a router's dispatch log: files in ``directory``/spool.

    Args:
        directory: is made if it is not there.
        router_id, router_name, boot: name the router and its life in the files.

    Raises:
        ConfigError: files cannot be made there, for a reason that will not pass by itself.
    """

    def __init__(self, directory: str, router_id: int, router_name: str, boot: int) -> None:
        self.directory = os.path.join(directory, "spool")
        _check(directory, self.directory)
        self._router = (router_id, router_name, boot)
        self._pid = os.getpid()
        #: The current problem, empty if writing works; and the last one.
        self.problem = self._last_problem = ""
        self._failed_segment = 0
        self._try_again = 0.0
        #: Records dropped by the loop, dropped by the thread, and written.
        self._refused = self._lost = self._written = 0
        self._files = 0
        self._file: _File | None = None
        self._chunks: Any = _SimpleQueue()
        self._ended: Any = _allocate_lock()
        self._ended.acquire()
        #: The number of dropped records last reported, and when.
        self._told, self._told_at = 0, -_SILENCE
        self._is_bad = False
        _start_new_thread(self._run, ())

    # --- in the loop -------------------------------------------------------------------------

    @property
    def dropped(self) -> int:
        """Records that were not written."""
        return self._refused + self._lost

    def write(self, chunk: Chunk) -> bool:
        """Accept ``chunk``; return False if it was dropped, and its segment must end."""
        if self._chunks.qsize() >= MAX_WAITING:
            self._trouble(chunk.segment, f"{self.directory} does not answer, {MAX_WAITING} writes wait")
        if chunk.segment <= self._failed_segment or monotonic() < self._try_again:
            self._refused += chunk.record_count
            return False
        # The checksums are made here: each call of the system that the thread makes takes the interpreter from the
        # loop once more, which costs more than they do.
        self._chunks.put((chunk, chunk.blocks()))
        return True

    def statistics(self) -> dict[str, Any]:
        """Directory, counts of records written and dropped, and the last problem."""
        return {
            "directory": self.directory,
            "files": self._files,
            "records": self._written,
            "dropped": self.dropped,
            "waiting": self._chunks.qsize(),
            "problem": self.problem,
        }

    def report(self, now: float) -> None:
        """Warn of records that were dropped, at most once a minute, and tell when that is over."""
        dropped = self.dropped
        if dropped > self._told and now - self._told_at >= _SILENCE:
            self._told, self._told_at, self._is_bad = dropped, now, True
            text = f"dispatch log: {self._last_problem}; {dropped} records were dropped so far"
            log_event(log, logging.WARNING, "dispatch log", text, dropped=dropped, problem=self._last_problem)
        elif self._is_bad and not self.problem:
            self._is_bad = False
            text = f"dispatch log: written again; {dropped} records were dropped"
            log_event(log, logging.INFO, "dispatch log", text, dropped=dropped, problem="")

    def close(self, seconds: float) -> None:
        """Wait until accepted chunks are written, for at most ``seconds``."""
        if self._pid == os.getpid():  # in a fork the thread is the parent's
            self._chunks.put(None)
            if self._ended.acquire(timeout=seconds):
                self._ended.release()

    # --- in the thread -----------------------------------------------------------------------

    def _run(self) -> None:
        while (waiting := self._chunks.get()) is not None:
            self._write(*waiting)
        if self._file is not None:
            self._abandon(self._file)
        self._ended.release()

    def _write(self, chunk: Chunk, pieces: list[bytes]) -> None:
        before = self._written
        if chunk.segment > self._failed_segment:
            try:
                self._append(chunk, pieces)
            except Exception as error:
                # Whatever it is, the next file may do, and the warning shows it.
                reason = f"{error.strerror}: {self.directory}" if isinstance(error, OSError) else repr(error)
                self._trouble(chunk.segment, reason)
                if self._file is not None:
                    self._abandon(self._file)
            else:
                self.problem = ""
        self._lost += chunk.record_count - (self._written - before)

    def _append(self, chunk: Chunk, pieces: list[bytes]) -> None:
        file = self._file
        if file is None or file.segment != chunk.segment:
            if file is not None:
                self._abandon(file)
            self._file = file = self._new_file(chunk.segment)
        file.append(chunk, pieces)
        self._written += chunk.record_count
        if chunk.is_last:
            file.seal(self.dropped, chunk.is_final)
            file.close()
            self._file = None

    def _new_file(self, segment: int) -> _File:
        os.makedirs(self.directory, exist_ok=True)
        router_id, name, boot = self._router
        number = self._files + 1
        # The clocks are compared for each file, so that the wall clock may be set without ado.
        head = Head(VERSION, 0, router_id, number, boot, self.dropped, monotonic(), round(time() * 1e6), name)
        file = _File(self.directory, file_name(router_id, boot, number), pack_head(head), segment)
        self._files = number
        return file

    def _abandon(self, file: _File) -> None:
        """Stop using ``file``: seal its good part if possible; else the shipper will."""
        self._file = None
        try:
            if not file.is_gone:
                file.seal(self.dropped, False)
        except OSError:
            pass  # its records are written: the shipper reads a file without an end, too
        if file.is_gone:
            self._written -= file.records
        file.close()

    def _trouble(self, segment: int, problem: str) -> None:
        self.problem = self._last_problem = problem
        self._failed_segment = segment
        self._try_again = monotonic() + _RETRY


class _File:
    """A spool file that is being written. What writes may raise OSError.

    Args:
        segment: of the chunks that belong in it.
    """

    def __init__(self, directory: str, name: str, head: bytes, segment: int) -> None:
        self.segment = segment
        self.records = self._in_flight = self._names = 0
        self._path = os.path.join(directory, name)
        self._size = 0
        self._is_sealed = False
        self._next_look = 0.0
        hidden = os.path.join(directory, f".{name}")
        self._fd = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, LOG_MODE)
        try:
            os.fchmod(self._fd, LOG_MODE)  # whatever the umask is
            # Nobody sees it before it is locked and has its head.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._put([head])
            os.rename(hidden, self._path + PART)
        except OSError:
            self.close()
            os.unlink(hidden)
            raise

    @property
    def is_gone(self) -> bool:
        """Whether the file or its disk was removed, so that writes are lost."""
        try:
            return os.fstat(self._fd).st_nlink == 0
        except OSError:
            return True

    def append(self, chunk: Chunk, pieces: list[bytes]) -> None:
        """Write ``chunk``, which is ``pieces``, or nothing."""
        now = monotonic()
        if now >= self._next_look:
            self._next_look = now + _LOOK
            if self.is_gone:
                raise FileNotFoundError(None, "the file is gone")
        self._put(pieces)
        self.records += chunk.record_count
        self._in_flight += chunk.in_flight_count
        self._names += chunk.name_count

    def seal(self, dropped: int, is_final: bool) -> None:
        """Write the final block. May be retried."""
        if not self._is_sealed:
            counts = SEAL.pack(self.records, self._in_flight, self._names, dropped, is_final)
            self._put(framed(BlockKind.SEAL, 1, counts))
            self._is_sealed = True
        os.rename(self._path + PART, self._path + SEALED)

    def _put(self, pieces: list[bytes]) -> None:
        try:
            wanted = sum(map(len, pieces))
            put = os.writev(self._fd, pieces)
            if put < wanted:
                # Writing the rest raises the reason, if there is one.
                rest = memoryview(b"".join(pieces))[put:]
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
        except OSError:
            os.ftruncate(self._fd, self._size)
            os.lseek(self._fd, self._size, os.SEEK_SET)
            raise
        self._size += wanted

    def close(self) -> None:
        """Leave it as it is."""
        try:
            os.close(self._fd)
        except OSError:
            pass  # it is closed all the same


def _check(directory: str, spool: str) -> None:
    try:
        os.makedirs(spool, exist_ok=True)
        if not os.access(spool, os.W_OK | os.X_OK):
            raise PermissionError(None, "Permission denied")
    except (PermissionError, NotADirectoryError, FileExistsError) as error:
        raise ConfigError(f"dispatch_log.directory = {directory!r}: cannot write there: {error.strerror}") from None
    except OSError:
        pass  # no room, no answer: that may pass, and the router does its work without
