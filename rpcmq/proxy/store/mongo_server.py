"""The connection of a store with a MongoDB server, which may be slow, or away."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

import gridfs
from bson.errors import BSONError
from pymongo import ASCENDING, DESCENDING, IndexModel, MongoClient, ReturnDocument
from pymongo.errors import PyMongoError
from pymongo.write_concern import WriteConcern

from rpcmq.proxy.store.counters import Counters

__all__ = ["DURABLE", "PURGE_SECONDS", "MongoServer", "ServerFailed"]

PURGE_SECONDS = 600
"""Seconds for which a purge counts for responses that are on their way; a response that takes longer is not stored."""

DURABLE = WriteConcern(w="majority", j=True)
"""For what must not be lost with a server: it answers once most of a replica set have it on disk."""

#: Seconds for which a server that has failed is left alone: the first time, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 15.0
#: Time before the latest purge from which on purges are read again, and most that are read at once.
_OVERLAP, _MOST_PURGES = timedelta(seconds=30), 4096
#: Seconds that one request waits for a server, for a connection, and for an answer.
_SELECTION, _CONNECT, _ANSWER = 2.0, 2.0, 2.0

Document = dict[str, Any]


class ServerFailed(Exception):
    """The server did not do what it was to, or is left alone because of that."""


class MongoServer:
    """The collections of a cache in one database.

    A request of a client must not wait again and again for a server that is away: after a failure it is left alone for
    half a second, and for twice as long each further time, up to 15 seconds.

    Args:
        uri: of the server, as ``mongodb://host:27017``.
        database: the name of the database, which should have nothing else in it.
        counters: in which each failure counts.

    Raises:
        pymongo.errors.PyMongoError: ``uri`` is none, or ``database`` is no name.
        ValueError: an option in ``uri`` has a value that it cannot have.
    """

    def __init__(self, uri: str, database: str, counters: Counters) -> None:
        self._client: MongoClient[Document] = MongoClient(
            uri,
            connect=False,
            appname="rpcmq",
            maxPoolSize=16,
            serverSelectionTimeoutMS=int(_SELECTION * 1000),
            connectTimeoutMS=int(_CONNECT * 1000),
            socketTimeoutMS=int(_ANSWER * 1000),
            waitQueueTimeoutMS=int(_SELECTION * 1000),
            # A second attempt would have a client wait for as long again.
            retryReads=False,
            retryWrites=False,
        )
        self._counters = counters
        self._pause = _FIRST_PAUSE
        self._away_until = 0.0
        self._has_indexes = False
        self.database = self._client[database]
        self.responses = self.database["responses"]
        self.purges = self.database["purges"]
        self.usage = self.database["usage"]
        self.bodies = gridfs.GridFSBucket(self.database, "bodies")

    @contextmanager
    def asked(self, *, leaves_alone: bool = True) -> Iterator[None]:
        """Run a block that asks the server.

        Args:
            leaves_alone: False: also while it is left alone because it has failed a moment ago.

        Raises:
            ServerFailed: it failed, or is left alone.
        """
        if leaves_alone and time.monotonic() < self._away_until:
            raise ServerFailed("the server has failed a moment ago")
        try:
            if not self._has_indexes:
                self._make_indexes()
            yield
        except (PyMongoError, BSONError, gridfs.NoFile, OverflowError, UnicodeError) as error:
            self._counters.failed += 1
            if isinstance(error, PyMongoError):
                self._away_until = time.monotonic() + self._pause
                self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            raise ServerFailed(str(error)) from error
        self._pause, self._away_until = _FIRST_PAUSE, 0.0

    def purges_since(self, made: datetime | None) -> list[Document]:
        """Return the purges that were written down since a little before ``made``, the latest ones last; within
        :meth:`asked`.

        Args:
            made: a time by the server's clock; None: that of the latest one.
        """
        if made is None:
            latest = self.purges.find_one({}, sort=[("made", DESCENDING)])
            if latest is None:
                return []
            made = latest["made"]
        # A server that takes the place of another one has a clock of its own.
        wanted = {"made": {"$gte": made - _OVERLAP}}
        return list(self.purges.find(wanted, {"_id": False}).sort("made", DESCENDING).limit(_MOST_PURGES))[::-1]

    def account(self, size: int, entries: int) -> tuple[int, int]:
        """Add to the bytes and the number of stored responses, and return what they are now; within :meth:`asked`."""
        found = self.usage.find_one_and_update(
            {"_id": "usage"},
            {"$inc": {"size": size, "entries": entries}},
            upsert=True,
            return_document=ReturnDocument.AFTER,
        )
        return _usage(found)

    def recount(self) -> tuple[int, int]:
        """Count the stored responses and their bytes anew, and return both; within :meth:`asked`."""
        grouped = self.responses.aggregate(
            [{"$group": {"_id": None, "size": {"$sum": "$size"}, "entries": {"$sum": 1}}}]
        )
        size, entries = _usage(next(iter(grouped), None))
        self.usage.update_one({"_id": "usage"}, {"$set": {"size": size, "entries": entries}}, upsert=True)
        return size, entries

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _make_indexes(self) -> None:
        self.responses.create_indexes(
            [
                IndexModel([("key", ASCENDING)]),
                IndexModel([("tags", ASCENDING)]),
                IndexModel([("used_at", ASCENDING)]),
                IndexModel([("file", ASCENDING)], sparse=True),
                IndexModel([("expires", ASCENDING)], expireAfterSeconds=0),
            ]
        )
        self.purges.create_indexes(
            [IndexModel([("at", ASCENDING)]), IndexModel([("made", ASCENDING)], expireAfterSeconds=2 * PURGE_SECONDS)]
        )
        self._has_indexes = True


def _usage(found: Mapping[str, Any] | None) -> tuple[int, int]:
    return (0, 0) if found is None else (max(0, int(found.get("size", 0))), max(0, int(found.get("entries", 0))))
