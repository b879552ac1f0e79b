"""A store in a process of its own, so that no queue server waits for a disk.

``python -m rpcmq.store.process FD OWNER EPOCH [heir]`` serves it; the variable :data:`STORE_VARIABLE` says where it is.

Beside a loop that never pauses, a thread that commits hardly gets the interpreter. The process reads requests
from the socket ``FD`` and answers each. What has come while it was writing is the next commit, so that the more comes,
the more items share a sync.

A store that fails is opened again until that succeeds, and told once more what it had not confirmed. Whoever asks is
told that it waits, and for what; nothing is answered meanwhile but that. It ends when the other end of the socket does.
"""

from __future__ import annotations

import gc
import json
import os
import select
import shlex
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TypeVar

from rpcmq.store.contract import Change, Put, Store, StoreDamaged, StoreError, StoreFailed
from rpcmq.store.frames import (
    Frames,
    decode_changes,
    decode_values,
    encode_found,
    encode_items,
    encode_recovered,
    encode_values,
    encode_verdicts,
    frame,
)
from rpcmq.store.location import STORE_VARIABLE, is_database
from rpcmq.store.shared import Others, Shared

__all__ = [
    "ALIVE",
    "APPLY",
    "CANNOT",
    "FIND",
    "ITEMS",
    "KNOWN",
    "NEXT_DUE",
    "OTHERS",
    "READ",
    "READY",
    "READ_DEAD",
    "READ_DUE",
    "READ_INCOMING",
    "RECOUNT",
    "RESULT",
    "TAKEN",
    "WAITING",
    "main",
]

#: Requests, whose answers have the same letter.
APPLY, READ, READ_DUE, READ_DEAD, READ_INCOMING, NEXT_DUE, RECOUNT = b"A", b"R", b"D", b"X", b"I", b"N", b"C"
FIND, KNOWN, OTHERS, RESULT = b"F", b"K", b"H", b"G"
#: A request that is not answered: whoever asks is there. Without one the owner is not said to live.
ALIVE = b"B"
ITEMS = (READ, READ_DUE, READ_DEAD, READ_INCOMING)
#: Notices without a ticket: the store is open, fails for now, cannot be used, was another owner's meanwhile.
READY, WAITING, CANNOT, TAKEN = b"O", b"W", b"E", b"T"
#: Changes and bytes of one commit.
_MOST_CHANGES, _MOST_BYTES = 4096, 16 << 20
#: Bytes of one read. Memory for much more is had from the kernel, and given back, each time.
_CHUNK = 64 << 10
#: Pause before a store that has failed is opened again (seconds).
_PAUSE = 0.2
#: An idle store is to be heard so often (seconds).
_BEAT = 2.0
#: Whoever asks is believed to be gone, or stopped, after such a silence (seconds).
_SILENCE = 6.0

Request = tuple[int, bytes, bytes]
T = TypeVar("T")


def open_store(where: str, owner: str, is_heir: bool = False) -> Store:
    """Open the store ``where``: a PostgreSQL url, or the directory of a file.

    Args:
        is_heir: the owner is gone, and another router opens its items.

    Raises:
        StoreError, StoreFailed: as the store says.
    """
    if is_database(where):
        from rpcmq.store.postgres import PostgresStore

        return PostgresStore(where, owner, is_heir)
    from rpcmq.store.sqlite import SqliteStore

    try:
        Path(where).mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreFailed(f"queue store {where}: the directory cannot be made: {error.strerror}") from None
    return SqliteStore(_file_of(where))


def _file_of(where: str) -> Path:
    return Path(where) / "queue.db"


class _Gone(Exception):
    """The other end has ended."""


class _Taken(Exception):
    """Another owner has had the items meanwhile, or has them, or those that are there are others."""


class _Server:
    """Serves one store to one queue server.

    Args:
        epoch: of the last opening by an earlier process of the same queue server; 0: this is its first.
    """

    def __init__(self, peer: socket.socket, where: str, owner: str, epoch: int, is_heir: bool) -> None:
        self._peer = peer
        self._where, self._owner, self._epoch, self._is_heir = where, owner, epoch, is_heir
        self._heard = monotonic()
        self._frames = Frames()
        self._requests: deque[Request] = deque()
        self._used = monotonic()
        self._store = self._open()

    def _open(self) -> Store:
        while True:
            try:
                self._check_file()
                store = open_store(self._where, self._owner, self._is_heir)
            except StoreFailed as error:
                if self._is_heir:
                    raise _Taken(str(error)) from error
                self._say(0, WAITING, encode_values("s", str(error)))
                self._receive(_PAUSE)
            else:
                self._check_epoch(store)
                self._say(0, READY, encode_recovered(store.recovered))
                return store

    def _check_file(self) -> None:
        """Raise if the file that whoever asks knows is gone: a new one in its place would have none of its items.

        So it is where a disk is not mounted for a while. The first opening makes the file.
        """
        if self._epoch and not is_database(self._where) and not _file_of(self._where).exists():
            raise StoreFailed(
                f"queue store {self._where}: its file is gone: mount its disk, or put it back; whoever starts the "
                "router again begins with an empty one"
            )

    def _check_epoch(self, store: Store) -> None:
        """Raise if whoever asks knows the items as they were before another owner had them, or of another file."""
        before, self._epoch = self._epoch, store.recovered.epoch
        if not before or self._epoch == before + 1:
            return
        if is_database(self._where):
            store.close()
            raise _Taken("another router had taken over the items")
        # An opening that has failed may have been counted.
        if self._epoch <= before:
            store.close()
            raise _Taken(f"queue store {self._where}: its file is another one than before")

    def run(self) -> None:
        """Serve until the other end has gone."""
        try:
            while True:
                if self._requests:
                    self._receive(0.0)
                else:
                    self._receive(_BEAT)
                    self._beat()
                self._serve()
        except _Gone:
            self._store.close()

    def _receive(self, seconds: float) -> None:
        """Take the requests that have come, or come within so many seconds."""
        length = _CHUNK
        while length == _CHUNK and select.select([self._peer], [], [], seconds)[0]:
            try:
                data = self._peer.recv(_CHUNK)
            except ConnectionError:
                data = b""
            if not data:
                raise _Gone
            self._heard = monotonic()
            for ticket, letter, content in self._frames.add(data):
                if letter != ALIVE:
                    self._requests.append((ticket, letter, bytes(content)))
            length, seconds = len(data), 0.0

    def _serve(self) -> None:
        """Answer the first request, with all changes that follow each other."""
        if not self._requests:
            return
        self._used = monotonic()
        if self._requests[0][1] != APPLY:
            ticket, letter, content = self._requests.popleft()
            answer = self._insisting(lambda: self._read(letter, content))
            self._say(ticket, letter, answer)
            return
        tickets: list[tuple[int, int]] = []
        changes: list[Change] = []
        size = 0
        while self._requests and self._requests[0][1] == APPLY and len(changes) < _MOST_CHANGES and size < _MOST_BYTES:
            ticket, _, content = self._requests.popleft()
            some = decode_changes(content)
            tickets.append((ticket, len(some)))
            changes += some
            size += len(content)
        verdicts = self._insisting(lambda: self._store.apply(changes))
        answers = []
        for ticket, count in tickets:
            answers.append(frame(ticket, APPLY, encode_verdicts(verdicts[:count])))
            del verdicts[:count]
        self._send(b"".join(answers))

    def _read(self, letter: bytes, content: bytes) -> bytes:
        store = self._store
        match letter:
            case b"R":
                return encode_items(store.read(*decode_values("Liii", content)))
            case b"D":
                return encode_items(store.read_due(*decode_values("LiPii", content)))
            case b"X":
                return encode_items(store.read_dead(*decode_values("sPii", content)))
            case b"I":
                return encode_items(store.read_incoming(*decode_values("ii", content)))
            case b"N":
                return encode_values("i", store.next_due(*decode_values("LP", content)))
            case b"F":
                return encode_found(store.find(*decode_values("Li", content)))
            case b"G":
                return store.result(*decode_values("Li", content))
            case b"K":
                return encode_verdicts(store.known([each for each in decode_changes(content) if isinstance(each, Put)]))
            case b"C":
                return encode_recovered(store.recount())
            case b"H":
                others = store.others() if isinstance(store, Shared) else Others()
                return encode_values("is", others.is_wanted, json.dumps(others.gone))
        raise ValueError(f"request {letter!r}")

    def _insisting(self, step: Callable[[], T]) -> T:
        """Do ``step``, again on a store that was opened anew for as long as that fails.

        Raises:
            StoreError: it cannot be done, because the store is damaged: what comes after it is not done, either.
        """
        was_damaged = False
        while True:
            try:
                return step()
            except StoreFailed as error:
                if was_damaged and isinstance(error, StoreDamaged):
                    raise StoreError(str(error)) from error
                was_damaged = isinstance(error, StoreDamaged)
                self._say(0, WAITING, encode_values("s", str(error)))
                self._store = self._open()

    def _beat(self) -> None:
        """Have an idle store say that it is used."""
        now = monotonic()
        if not self._requests and now - self._used >= _BEAT and now - self._heard < _SILENCE:
            self._used = now
            if isinstance(self._store, Shared):
                self._insisting(self._store.beat)

    def _say(self, ticket: int, letter: bytes, content: bytes) -> None:
        self._send(frame(ticket, letter, content))

    def _send(self, data: bytes) -> None:
        try:
            self._peer.sendall(data)
        except ConnectionError:
            raise _Gone from None


def _with_remedy(error: StoreError, where: str) -> str:
    """The text of the error; of a file that is damaged, with the command that saves what can be read of it."""
    if is_database(where) or "restore" not in str(error):
        return str(error)
    return f"{error}, or save the rest of it: `rpcmq queue salvage {shlex.quote(where)} --to NEW`"


def main(arguments: list[str]) -> int:
    """Serve the store of the command line; return the exit code: 2 if it cannot be used any more, after saying why."""
    # Its queue server says when it is over: a Ctrl-C, or a service manager that ends all processes, is for that.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Batches make no reference cycles, but so many objects that the collector would look for them all the time.
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    descriptor, owner, epoch, *more = arguments
    where = os.environ[STORE_VARIABLE]
    peer = socket.socket(fileno=int(descriptor))
    # Whoever has made the pair may have made both ends non-blocking, as gevent does.
    peer.setblocking(True)
    try:
        _Server(peer, where, owner, int(epoch), more == ["heir"]).run()
    except _Gone:
        return 0
    except (_Taken, StoreError) as error:
        letter, text = (TAKEN, str(error)) if isinstance(error, _Taken) else (CANNOT, _with_remedy(error, where))
        peer.sendall(frame(0, letter, encode_values("s", text)))
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
