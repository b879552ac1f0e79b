"""Bodies on their way to and from a MongoDB server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from bson import ObjectId
from gridfs import GridIn, GridOut

from rpcmq.proxy.caching.entry import StoredResponse
from rpcmq.proxy.store.contract import STEP_BYTES
from rpcmq.proxy.store.mongo_server import MongoServer, ServerFailed

__all__ = ["GridBody", "MongoWriter", "Publisher"]


class Publisher(Protocol):
    """The part of a store that its writers call."""

    def publish(self, entry: StoredResponse, body: bytes | None, file: object) -> bool:
        """Make a response visible, whose body is ``body``, or in ``file``; return whether it is.

        Raises:
            ServerFailed: the server did not do it.
        """


class GridBody:
    """A body in GridFS."""

    def __init__(self, server: MongoServer, file: GridOut) -> None:
        self._server = server
        self._file = file

    def read(self, start: int, stop: int) -> Iterator[bytes]:
        """Yield the bytes from ``start`` to ``stop``.

        Raises:
            OSError: the server does not have them any more, or fails.
        """
        position = start
        while position < stop:
            try:
                with self._server.asked():
                    self._file.seek(position)
                    data = self._file.read(min(STEP_BYTES, stop - position))
            except ServerFailed as error:
                raise OSError(f"a stored body could not be read: {error}") from error
            if not data:
                raise OSError(f"a stored body ends at byte {position}, before byte {stop}")
            yield data
            position += len(data)

    def close(self) -> None:
        """Do nothing: the connection is not its own."""


class MongoWriter:
    """Keeps a small body until it is whole, and writes a large one to GridFS as it comes."""

    def __init__(self, publisher: Publisher, server: MongoServer, entry: StoredResponse) -> None:
        self._publisher = publisher
        self._server = server
        self._entry = entry
        self._waiting: list[bytes] = []
        self._waiting_size = 0
        self._size = 0
        self._file: GridIn | None = None
        self._is_done = False

    def write(self, chunk: bytes) -> bool:
        """Append ``chunk``."""
        if self._is_done:
            return False
        self._waiting.append(chunk)
        self._waiting_size += len(chunk)
        self._size += len(chunk)
        return self._waiting_size <= STEP_BYTES or self._guarded(self._flush)

    def commit(self) -> StoredResponse | None:
        """Make the body visible."""
        entry = self._entry.with_body_size(self._size)
        if self._is_done or self._entry.body_size not in (-1, self._size):
            self.abort()
            return None
        return entry if self._guarded(lambda: self._finish(entry)) else None

    def abort(self) -> None:
        """Forget the body."""
        if self._is_done:
            return
        self._is_done = True
        self._waiting.clear()
        if self._file is not None:
            try:
                with self._server.asked():
                    self._file.abort()
            except ServerFailed:
                # The maintenance removes bodies that belong to nothing.
                return

    def _guarded(self, step: Callable[[], bool]) -> bool:
        try:
            if step():
                return True
        except ServerFailed:
            # It is counted; the body goes to the client only.
            pass
        self.abort()
        return False

    def _flush(self) -> bool:
        data, self._waiting, self._waiting_size = b"".join(self._waiting), [], 0
        with self._server.asked():
            if self._file is None:
                self._file = self._server.bodies.open_upload_stream_with_id(ObjectId(), self._entry.variant)
            for start in range(0, len(data), STEP_BYTES):
                self._file.write(data[start : start + STEP_BYTES])
        return True

    def _finish(self, entry: StoredResponse) -> bool:
        if self._file is None:
            is_there = self._publisher.publish(entry, b"".join(self._waiting), None)
        else:
            self._flush()
            with self._server.asked():
                self._file.close()
            file, self._file = self._file, None
            # From here on it is the response's, or the maintenance's.
            is_there = self._publisher.publish(entry, None, file._id)
        self._is_done = True
        return is_there
