"""A store in a MongoDB database, which any number of hosts share."""

from __future__ import annotations

import re
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import blake2b
from typing import Any

from pymongo import DESCENDING

from rpcmq.proxy.caching.entry import MalformedEntry, StoredResponse
from rpcmq.proxy.caching.purge import MalformedPurge, Purge, PurgeKind
from rpcmq.proxy.store.contract import Body, Purged, StoreStatistics
from rpcmq.proxy.store.counters import Counters
from rpcmq.proxy.store.memory import MemoryBody
from rpcmq.proxy.store.mongo_bodies import GridBody, MongoWriter
from rpcmq.proxy.store.mongo_server import DURABLE, PURGE_SECONDS, MongoServer, ServerFailed
from rpcmq.proxy.store.recent_purges import RecentPurges

__all__ = ["MongoStore"]

#: Responses that one step of eviction or maintenance removes, and seconds after which a use is written down again.
_STEP, _TOUCH_SECONDS = 50, 60.0
#: Seconds after which a body that no response has is removed: its writer has died.
_ORPHAN_SECONDS = 3600.0
_LATEST = datetime(9999, 1, 1, tzinfo=UTC)


class MongoStore:
    """Stored responses as documents: bodies of up to 256 KiB within them, larger ones in GridFS.

    The server removes what is too old (a TTL index). A failure of the server is a miss. It needs the extra
    ``rpcmq[proxy]``. In a process of gevent's it needs its ``patch_all``, or else each question to the server stops
    all others.

    Args:
        uri: of the server, as ``mongodb://host:27017``.
        database: the name of the database, which should have nothing else in it.
        max_bytes: bound of bodies and heads, of all hosts together.
        max_variants: most responses of one key.

    Raises:
        pymongo.errors.PyMongoError: ``uri`` is none, or ``database`` is no name.
        ValueError: an option in ``uri`` has a value that it cannot have.
    """

    def __init__(self, uri: str, database: str, max_bytes: int, *, max_variants: int = 64) -> None:
        self._counters = Counters()
        self._server = MongoServer(uri, database, self._counters)
        self._max_bytes = max_bytes
        self._max_variants = max_variants
        self._usage = (0, 0)
        #: All purges of late, for responses on their way here; and those that the server has not taken, which are
        #: obeyed until it has.
        self._heard, self._owed = RecentPurges(), RecentPurges()
        #: Time by the server's clock up to which the purges of others were read; None: they were not yet.
        self._read_until: datetime | None = None

    def find(self, key: str) -> Sequence[StoredResponse]:
        """Return the stored responses of ``key``, the latest first."""
        found: list[StoredResponse] = []
        try:
            with self._server.asked():
                cursor = self._server.responses.find({"key": key}, {"body": False}).sort("responded_at", DESCENDING)
                found = [each for document in cursor.limit(self._max_variants) if (each := self._entry(document))]
                found = [kept for each in found if (kept := self._owed_to(each))]
        except ServerFailed:
            # A server that fails has nothing.
            found = []
        self._counters.looked_up(is_found=bool(found))
        return found

    def open(self, entry: StoredResponse) -> Body | None:
        """Open the body of ``entry``. That of a large one ends with an error where it is removed meanwhile."""
        wanted = {"_id": _id(entry), "body_id": entry.body_id}
        try:
            with self._server.asked():
                document = self._server.responses.find_one(wanted, {"body": True, "file": True, "used_at": True})
                if document is None:
                    return None
                if time.time() - document["used_at"] >= _TOUCH_SECONDS:
                    self._server.responses.update_one(wanted, {"$set": {"used_at": time.time()}})
                if document.get("file") is None:
                    return MemoryBody(bytes(document["body"]))
                return GridBody(self._server, self._server.bodies.open_download_stream(document["file"]))
        except (ServerFailed, KeyError, TypeError):
            return None

    def create(self, entry: StoredResponse) -> MongoWriter | None:
        """Begin to store the response of ``entry``."""
        return None if entry.body_size > self._max_bytes else MongoWriter(self, self._server, entry)

    def refresh(self, entry: StoredResponse) -> bool:
        """Give the stored response with that body the head of ``entry``."""
        wanted = {"_id": _id(entry), "body_id": entry.body_id}
        if not self._heard.may_be_stored(entry):
            return False
        try:
            with self._server.asked():
                done = self._server.responses.update_one(wanted, {"$set": _head(entry)})
                return done.matched_count == 1 and not self._was_purged(entry)
        except ServerFailed:
            return False

    def remove(self, key: str) -> int:
        """Remove all stored responses of ``key``."""
        try:
            return self._removed({"key": key})
        except ServerFailed:
            return 0

    def purge(self, purge: Purge, *, confirm: bool = False) -> Purged:
        """Remove, or make stale, what ``purge`` is about; where the server is away, as soon as it is back."""
        # An operator's order does not wait because the request before it has failed. Where the server is owed one
        # already it is away, and further ones would wait for it one after the other.
        leaves_alone = bool(self._owed)
        # It counts here from now on, though the server may take its time.
        self._heard.add(purge)
        self._owed.add(purge)
        try:
            count = self._carry_out(purge, leaves_alone=leaves_alone, confirm=confirm)
        except ServerFailed:
            return Purged(None, is_recorded=False)
        self._owed.discard(purge)
        return Purged(count)

    def owed(self) -> Sequence[Purge]:
        """Return the purges that the server has yet to take; one for all stands for those that were too many."""
        if forgotten_at := self._owed.forgotten_at:
            return (Purge(PurgeKind.ALL, "", forgotten_at), *(each for each in self._owed if each.at > forgotten_at))
        return tuple(self._owed)

    def settle(self) -> None:
        """Try to have the server take the purges that it is owed."""
        forgotten_at = self._owed.forgotten_at
        try:
            # It is not left alone: until it has them it is of no use.
            for purge in self.owed():
                self._carry_out(purge, leaves_alone=False, confirm=True)
                self._owed.discard(purge)
        except ServerFailed:
            return
        if forgotten_at and self._owed.forgotten_at == forgotten_at:  # else there have been too many again meanwhile
            self._owed = RecentPurges(each for each in self._owed if each.at > forgotten_at)

    def news(self, known: Container[Purge]) -> Sequence[Purge]:
        """Return what other front ends have purged, as it is written down at the server."""
        try:
            with self._server.asked():
                documents = list(self._server.purges_since(self._read_until))
        except ServerFailed:
            return ()
        if documents:
            self._read_until = documents[-1]["made"]
        purges = [purge for document in documents if (purge := _purge_in(document)) is not None]
        news = [purge for purge in purges if purge not in known and purge not in self._heard]
        for purge in news:
            self._heard.add(purge)
        return news

    def _carry_out(self, purge: Purge, *, leaves_alone: bool, confirm: bool) -> int:
        wanted: dict[str, Any] = {"requested_at": {"$lte": purge.at}}
        match purge.kind:
            case PurgeKind.URL:
                wanted["key"] = purge.value
            case PurgeKind.PREFIX:
                wanted["key"] = {"$regex": f"^{re.escape(purge.value)}"}
            case PurgeKind.TAG:
                wanted["tags"] = purge.value
        # By the server's clock: others read what has come since they did so before.
        record, made = purge.to_dict(), {"$currentDate": {"made": True}}
        with self._server.asked(leaves_alone=leaves_alone):
            # First this, which a response that is on its way asks for when it is stored. Each front end writes it.
            self._server.purges.update_one(record, made, upsert=True)
            if purge.soft:
                count = self._server.responses.update_many(wanted, {"$max": {"purged_at": purge.at}}).matched_count
        if not purge.soft:
            count = self._removed(wanted)
        if confirm:
            with self._server.asked():
                # With this the server has journaled what went before, too: nothing that is purged is there again after
                # it was killed.
                self._server.purges.with_options(write_concern=DURABLE).update_one(record, made, upsert=True)
        return count

    def _owed_to(self, entry: StoredResponse) -> StoredResponse | None:
        """Return ``entry`` by the purges that the server has not taken; None: it is purged."""
        return self._owed.applied_to(entry) if entry.requested_at > self._owed.forgotten_at else None

    def maintain(self, now: float) -> Iterator[None]:
        """Remove what is too old, and bodies that belong to nothing; count anew, and make room."""
        try:
            while True:
                with self._server.asked():
                    if not self._remove({"expires": {"$lte": _date(now)}}):
                        break
                yield
            yield from self._remove_orphans(now)
            with self._server.asked():
                self._usage = self._server.recount()
                self._make_room()
        except ServerFailed:
            # It is counted; the next maintenance goes on.
            return

    def statistics(self) -> StoreStatistics:
        """Return its counters, and the size as of the last change that this process made, or the last maintenance."""
        size, entries = self._usage
        return self._counters.statistics(entries, size, self._max_bytes)

    def close(self) -> None:
        """Close the connections."""
        self._server.close()

    def publish(self, entry: StoredResponse, body: bytes | None, file: object) -> bool:
        """Make a response visible, whose body is ``body``, or in ``file``; return whether it is, which no purge
        forbids.

        Raises:
            ServerFailed: the server did not do it.
        """
        if not self._heard.may_be_stored(entry):
            return False
        with self._server.asked():
            size = entry.body_size + entry.head_size
            document = {**_head(entry), "key": entry.key, "size": size, "file": file, "used_at": time.time()}
            document |= {"body": body, "body_id": entry.body_id}
            before = self._server.responses.find_one_and_replace(
                {"_id": _id(entry)}, document, projection={"size": True, "file": True}, upsert=True
            )
            if before is not None:
                self._forget_file(before)
            self._usage = self._server.account(size - (before["size"] if before else 0), 0 if before else 1)
            if self._was_purged(entry):
                return False
            self._counters.stored += 1
            if before is None:
                self._drop_variants(entry.key)
            self._make_room()
            return True

    def _was_purged(self, entry: StoredResponse) -> bool:
        """Return whether a purge came since the request of ``entry`` was sent; if so, it is removed again."""
        # Of longer ago the server has forgotten the purges.
        if time.time() - entry.requested_at <= PURGE_SECONDS:
            about = [
                {"kind": PurgeKind.URL.value, "value": entry.key},
                {"kind": PurgeKind.TAG.value, "value": {"$in": list(entry.tags)}},
                {"kind": {"$in": [PurgeKind.ALL.value, PurgeKind.PREFIX.value]}},
            ]
            wanted = {"at": {"$gte": entry.requested_at}, "$or": about}
            since = self._server.purges.find(wanted, {"_id": False, "made": False})
            if not any(_is_about(document, entry) for document in since):
                return False
        self._remove({"_id": _id(entry), "body_id": entry.body_id})
        return True

    def _make_room(self) -> None:
        while self._usage[0] > self._max_bytes:
            removed = self._remove({}, oldest=True)
            self._counters.evicted += removed
            if not removed:
                return

    def _drop_variants(self, key: str) -> None:
        if self._server.responses.count_documents({"key": key}, limit=self._max_variants + 1) > self._max_variants:
            oldest = self._server.responses.find_one({"key": key}, {"_id": True}, sort=[("responded_at", 1)])
            if oldest is not None:
                self._counters.evicted += self._remove({"_id": oldest["_id"]})

    def _removed(self, wanted: Mapping[str, Any]) -> int:
        """Remove all responses that are ``wanted``, and return how many.

        Raises:
            ServerFailed: the server does not go on.
        """
        count = 0
        while True:
            with self._server.asked():
                removed = self._remove(wanted)
            self._counters.removed += removed
            count += removed
            if not removed:
                return count

    def _remove(self, wanted: Mapping[str, Any], *, oldest: bool = False) -> int:
        """Remove some of the responses that are ``wanted``, and return how many."""
        cursor = self._server.responses.find(wanted, {"size": True, "file": True})
        documents = list((cursor.sort("used_at", 1) if oldest else cursor).limit(_STEP if not oldest else 4))
        if not documents:
            return 0
        self._server.responses.delete_many({"_id": {"$in": [each["_id"] for each in documents]}})
        for document in documents:
            self._forget_file(document)
        self._usage = self._server.account(-sum(each["size"] for each in documents), -len(documents))
        return len(documents)

    def _forget_file(self, document: Mapping[str, Any]) -> None:
        if document.get("file") is not None:
            self._server.bodies.delete(document["file"])

    def _remove_orphans(self, now: float) -> Iterator[None]:
        """Remove bodies whose response is gone: the server's TTL index knows nothing of them."""
        made = {"uploadDate": {"$lte": _date(now - _ORPHAN_SECONDS)}}
        files = self._server.database["bodies.files"]
        last: object = None
        while True:
            with self._server.asked():
                page = {**made, "_id": {"$gt": last}} if last is not None else made
                names = [each["_id"] for each in files.find(page, {"_id": True}).sort("_id", 1).limit(_STEP)]
                if not names:
                    return
                used = self._server.responses.distinct("file", {"file": {"$in": names}})
                for name in set(names) - set(used):
                    self._server.bodies.delete(name)
                last = names[-1]
            yield

    def _entry(self, document: Mapping[str, Any]) -> StoredResponse | None:
        try:
            head = {**document["head"], "purged_at": document["purged_at"]}
            return StoredResponse.from_dict(head)
        except (KeyError, TypeError, MalformedEntry):
            self._counters.corrupt += 1
            return None


def _id(entry: StoredResponse) -> str:
    digest = blake2b(entry.key.encode(errors="surrogatepass"), digest_size=20).hexdigest()
    return f"{digest}-{entry.variant}"


def _head(entry: StoredResponse) -> dict[str, Any]:
    return {
        "head": entry.to_dict(),
        "tags": list(entry.tags),
        "requested_at": entry.requested_at,
        "responded_at": entry.responded_at,
        "purged_at": entry.purged_at,
        "expires": _date(entry.useless_at),
    }


def _date(second: float) -> datetime:
    try:
        return datetime.fromtimestamp(second, UTC)
    except (ValueError, OverflowError, OSError):
        return _LATEST


def _is_about(document: Mapping[str, Any], entry: StoredResponse) -> bool:
    purge = _purge_in(document)
    return purge is not None and purge.is_about(entry)


def _purge_in(document: Mapping[str, Any]) -> Purge | None:
    try:
        return Purge.from_dict(document)
    except MalformedPurge:
        return None
