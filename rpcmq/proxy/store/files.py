"""A store in a folder, which any number of processes share."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Container, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.caching.purge import Purge, PurgeKind
from rpcmq.proxy.store.contract import Purged, StoreStatistics
from rpcmq.proxy.store.counters import Counters
from rpcmq.proxy.store.disk import Disk
from rpcmq.proxy.store.eviction import Evictor
from rpcmq.proxy.store.file_format import DamagedFile, FileBody, read_file, replace_head
from rpcmq.proxy.store.file_writer import FileWriter
from rpcmq.proxy.store.folder import PAGE, PLAIN, Folder, files_in, is_stored, is_unfinished, room_of
from rpcmq.proxy.store.purge_log import PurgeLog

__all__ = ["FileStore"]

#: Seconds for which a purge of one URL is remembered for responses that are on their way.
_UNDER_WAY_SECONDS = 120.0
#: Seconds after which the use of a file is written down again, and after which a body that nobody goes on with is
#: removed.
_TOUCH_SECONDS, _UNFINISHED_SECONDS = 60.0, 3600.0
#: Attempts to write down a purge on a full disk, for each of which something has to go.
_ATTEMPTS = 16


class FileStore:
    """Stored responses as files.

    There is no index that could differ from the files: a look-up lists one folder and reads heads. Nothing is synced,
    so that a power cut may damage files; each head and each block of a body has a checksum, and a damaged file is
    removed.

    Args:
        path: the folder, which is made where it is missing; it should have nothing else in it.
        max_bytes: bound of the room that the files take, of all processes together.
        max_variants: most responses of one key.
        sweep_seconds: time between two readings of all heads, which correct the room that is thought to be taken.

    Raises:
        OSError: the folder cannot be made, or written.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_bytes: int,
        *,
        max_variants: int = 64,
        sweep_seconds: float = 3600.0,
        touch_seconds: float = _TOUCH_SECONDS,
    ) -> None:
        self._folder = Folder(path)
        self._max_bytes = max_bytes
        self._max_variants = max_variants
        self._sweep_seconds = sweep_seconds
        self._touch_seconds = touch_seconds
        self._counters = Counters()
        self._evictor = Evictor(self._folder, max_bytes, self._evicted)
        self._disk = Disk(self._folder, self._evictor, self._counters)
        self._log = PurgeLog(self._folder.purges)
        self._log.news()  # from now on
        self._is_maintaining = False

    def find(self, key: str) -> Sequence[StoredResponse]:
        """Return the stored responses of ``key``, the latest first."""
        found: list[StoredResponse] = []
        for path in self._places(key):
            try:
                entry = self._head(path)
            except OSError as error:
                # A disk that fails does not have it.
                self._disk.failed(error)
                continue
            if entry is not None and entry.key == key:
                found.append(entry)
        self._counters.looked_up(is_found=bool(found))
        if len(found) > 1:
            found.sort(key=lambda entry: entry.responded_at, reverse=True)
        return found

    def open(self, entry: StoredResponse) -> FileBody | None:
        """Open the body of ``entry``."""
        path = self._folder.place(entry.key, entry.variant)
        try:
            descriptor = os.open(path, os.O_RDONLY | PLAIN)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._disk.failed(error)
            return None
        try:
            layout, stored = read_file(descriptor)
            if stored.body_id == entry.body_id:
                self._touch(descriptor)
                body = FileBody(descriptor, layout, lambda: self._damaged(path))
                descriptor = -1
                return body
        except DamagedFile:
            self._damaged(path)
        except OSError as error:
            self._disk.failed(error)
        finally:
            if descriptor >= 0:
                os.close(descriptor)
        return None

    def create(self, entry: StoredResponse) -> FileWriter | None:
        """Begin to store the response of ``entry``."""
        if entry.body_size > self._max_bytes or not entry.variant.isalnum():
            return None
        if not self._disk.may_store():
            return None
        place = self._folder.place(entry.key, entry.variant)
        try:
            try:
                return FileWriter(self, self._disk, entry, *self._folder.create(place))
            except OSError as error:
                if not self._disk.push_out(error, PAGE, PAGE):
                    raise
            return FileWriter(self, self._disk, entry, *self._folder.create(place))
        except OSError as error:
            self._disk.refused(error)
            return None

    def refresh(self, entry: StoredResponse) -> bool:
        """Give the stored response with that body the head of ``entry``."""
        path = self._folder.place(entry.key, entry.variant)
        try:
            if not self._log.current().may_be_stored(entry):
                return False
            return self._replace_head(path, entry)
        except FileNotFoundError:
            return False
        except DamagedFile:
            self._damaged(path)
        except OSError as error:
            self._disk.failed(error)
        return False

    def remove(self, key: str) -> int:
        """Remove all stored responses of ``key``."""
        count = sum(map(self._unlink, self._places(key)))
        self._counters.removed += count
        return count

    def purge(self, purge: Purge, *, confirm: bool = False) -> Purged:
        """Remove, or make stale, what ``purge`` is about: at once, though files may go later."""
        count: int | None = None
        try:
            is_log_long = self._log_purge(purge)
            if purge.kind is PurgeKind.URL:
                count = self._purge_url(purge)
            if is_log_long:
                self._shorten_log()
        except OSError as error:
            self._disk.failed(error)
        return Purged(count, purge not in self._log.unwritten)

    def owed(self) -> Sequence[Purge]:
        """Return the purges that the disk has yet to take."""
        return self._log.unwritten

    def settle(self) -> None:
        """Try to write them down."""
        try:
            for purge in self._log.unwritten:
                self._log.add(purge)
        except OSError as error:
            self._disk.failed(error)

    def news(self, known: Container[Purge]) -> Sequence[Purge]:
        """Return what other processes have purged."""
        try:
            return [purge for purge in self._log.news() if purge not in known]
        except OSError as error:
            self._disk.failed(error)
            return ()

    def _log_purge(self, purge: Purge) -> bool:
        """Have ``purge`` count; return whether there are so many that a sweep is due."""
        for _ in range(_ATTEMPTS):
            try:
                return self._log.add(purge)
            except OSError as error:
                self._disk.failed(error)
                if error.errno != errno.ENOSPC or not self._evictor.make_room(self._max_bytes + PAGE):
                    break
        # Each process that is told of it looks it up in its own memory. The next maintenance removes the files.
        self._log.remember(purge)
        return False

    def maintain(self, now: float) -> Iterator[None]:
        """Sweep the folder where that is due, and make room."""
        if self._is_maintaining:
            return
        self._is_maintaining = True
        try:
            with self._folder.maintained() as is_held:
                if is_held:
                    self._evictor.make_room(self._folder.usage()[0])
                    if now - self._folder.swept_at >= self._sweep_seconds or self._has_unswept():
                        yield from self._sweep(now)
                    self._forget_purges(now - _UNDER_WAY_SECONDS)
        except OSError as error:
            self._disk.failed(error)
        finally:
            self._is_maintaining = False

    def statistics(self) -> StoreStatistics:
        """Return its counters, with the size of the folder for all processes."""
        try:
            size, entries = self._folder.usage()
        except OSError:
            size, entries = 0, 0
        return replace(self._counters.statistics(entries, size, self._max_bytes), is_storing=self._disk.is_storing)

    def close(self) -> None:
        """Let go of the folder."""
        self._folder.close()

    # For FileWriter.

    def reserve(self, size: int) -> bool:
        """Take ``size`` bytes of room, making some if need be; return whether there is so much."""
        try:
            return self._evictor.make_room(self._folder.account(size))
        except OSError as error:
            self._disk.failed(error)
            return size < 0

    def publish(self, entry: StoredResponse, tmp: Path) -> bool:
        """Put the whole file at ``tmp`` in its place; return whether it is there, which no purge forbids."""
        if not self._log.current().may_be_stored(entry):
            return False
        path = self._folder.place(entry.key, entry.variant)
        try:
            replaced = room_of(os.stat(path).st_size)
        except FileNotFoundError:
            replaced = 0
        os.rename(tmp, path)
        self._folder.account(-replaced, 0 if replaced else 1)
        self._counters.stored += 1
        self._disk.stored()
        if entry.selecting and not replaced:
            self._drop_variants(entry.key)
        return True

    def _head(self, path: Path) -> StoredResponse | None:
        """Return the head in the file at ``path``; None: there is none, or it is purged, and goes."""
        try:
            descriptor = os.open(path, os.O_RDONLY | PLAIN)
        except FileNotFoundError:
            return None
        try:
            _, entry = read_file(descriptor)
        except DamagedFile:
            self._damaged(path)
            return None
        finally:
            os.close(descriptor)
        kept = self._log.current().applied_to(entry)
        if kept is None and self._unlink(path):
            self._counters.removed += 1
        return kept

    def _replace_head(self, path: Path, entry: StoredResponse) -> bool:
        descriptor = os.open(path, os.O_RDWR | PLAIN)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if read_file(descriptor)[1].body_id != entry.body_id:
                return False
            if not replace_head(descriptor, entry):
                # It has grown by more than half: the body is fetched again.
                self._unlink(path)
                return False
            return True
        finally:
            os.close(descriptor)

    def _purge_url(self, purge: Purge) -> int:
        """Carry out a purge of one URL, which needs no sweep; return how many responses it was about."""
        paths = self._folder.places(purge.value)
        # The look-up removes those that are purged.
        kept = [entry for entry in self.find(purge.value) if entry.purged_at >= purge.at]
        for entry in kept:
            self._replace_head(self._folder.place(entry.key, entry.variant), entry)
        return len(kept) if purge.soft else len(paths) - len(self._folder.places(purge.value))

    def _has_unswept(self) -> bool:
        return any(purge.kind is not PurgeKind.URL for purge in self._log.current())

    def _shorten_log(self) -> None:
        if self._has_unswept():
            for _ in self._sweep(0.0):
                pass
        else:
            times = sorted(purge.at for purge in self._log.current())
            self._forget_purges(times[len(times) // 2])

    def _forget_purges(self, before: float) -> None:
        """Forget the purges of single URLs, which are done, but for responses that were asked for before them."""
        old = [purge for purge in self._log.current() if purge.kind is PurgeKind.URL and purge.at <= before]
        self._log.forget(old, self._folder.beside(self._folder.purges))

    def _places(self, key: str) -> list[Path]:
        try:
            return self._folder.places(key)
        except OSError as error:
            self._disk.failed(error)
            return []

    def _drop_variants(self, key: str) -> None:
        paths = self._folder.places(key)
        if len(paths) > self._max_variants:
            oldest = min(paths, key=lambda path: path.stat().st_mtime)
            self._counters.evicted += self._unlink(oldest)

    def _touch(self, descriptor: int) -> None:
        if self._now() - os.fstat(descriptor).st_mtime >= self._touch_seconds:
            os.utime(descriptor)

    @staticmethod
    def _now() -> float:
        # The file system's clock, with which times of files are compared.
        return time.time()

    def _damaged(self, path: Path) -> None:
        self._counters.corrupt += self._unlink(path)

    def _evicted(self) -> None:
        self._counters.evicted += 1

    def _unlink(self, path: Path) -> bool:
        """Remove a file; return whether it was there."""
        try:
            return self._folder.unlink(path) is not None
        except OSError as error:
            self._disk.failed(error)
            return False

    def _sweep(self, now: float) -> Iterator[None]:
        """Read all heads, remove what is purged, damaged, or useless at ``now``, and correct the room that is taken."""
        before, entries_before = self._folder.usage()
        purges = list(self._log.current())
        size = entries = 0
        for leaf in self._folder.leaves():
            for path in files_in(leaf):
                if is_unfinished(path.name):
                    size += self._swept_unfinished(path)
                    continue
                if not is_stored(path.name):
                    continue
                room = self._swept(path, now)
                size += room
                entries += room > 0
            yield
        self._folder.account(size - before, entries - entries_before)
        self._log.forget(purges, self._folder.beside(self._folder.purges))
        if now:
            self._folder.swept_at = now

    def _swept(self, path: Path, now: float) -> int:
        """Return the room that a file took; what is removed is taken from the account on its own."""
        room = 0
        try:
            room = room_of(os.stat(path).st_size)
            entry = self._head(path)
            if entry is not None and entry.useless_at <= now:
                self._counters.removed += self._unlink(path)
            elif entry is not None and entry.purged_at:
                self._replace_head(path, entry)
        except FileNotFoundError:
            # Another process has just removed it.
            return room
        except DamagedFile:
            self._damaged(path)
        except OSError as error:
            self._disk.failed(error)
        return room

    def _swept_unfinished(self, path: Path) -> int:
        try:
            status = os.stat(path)
            if self._now() - status.st_mtime < _UNFINISHED_SECONDS:
                return room_of(status.st_size)
            os.unlink(path)
        except FileNotFoundError:
            # Its writer has just done with it.
            return 0
        return 0
