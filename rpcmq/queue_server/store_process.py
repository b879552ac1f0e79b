"""The store as a child of the queue server: asked and answered by messages, started again when it dies."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from time import monotonic
from typing import Any

import gevent
from gevent import socket, subprocess
from gevent.event import Event

from rpcmq.core.queue.port import Items
from rpcmq.queue_server.file_watch import FileWatch
from rpcmq.queue_server.gathered_changes import GatheredChanges
from rpcmq.server.log import log_event
from rpcmq.store.contract import Change, Found, Incoming, Lane, Position, Put, Recovered, StoreError, Verdict
from rpcmq.store.frames import (
    Frames,
    decode_found,
    decode_items,
    decode_recovered,
    decode_values,
    decode_verdicts,
    encode_changes,
    encode_values,
    frame,
)
from rpcmq.store.location import STORE_VARIABLE, is_database, shown
from rpcmq.store.process import (
    ALIVE,
    APPLY,
    CANNOT,
    FIND,
    ITEMS,
    KNOWN,
    NEXT_DUE,
    OTHERS,
    READ,
    READ_DEAD,
    READ_DUE,
    READ_INCOMING,
    READY,
    RECOUNT,
    RESULT,
    TAKEN,
    WAITING,
)
from rpcmq.store.shared import Others

__all__ = ["StoreProcess"]

log = logging.getLogger("rpcmq.queue")

#: Bytes of one read.
_CHUNK = 64 << 10
#: Pause before a process that has died is started again (seconds).
_PAUSE = 0.2
#: The process hears so often that it is still needed (seconds).
_BEAT = 2.0
#: A store that answers nothing for so long is called silent (seconds).
_SILENCE = 10.0
#: Seconds that it gets to close the store when the queue server ends.
_LAST = 5.0


class StoreProcess:
    """The store ``where`` in a child process. To be used in the hub; only :meth:`wait` and :meth:`close` wait.

    Each request is kept until it is answered. A process that has died is started again, and told once more whatever it
    has not answered, which the contract of stores allows. Answers come in the order of the requests.

    Args:
        where: a PostgreSQL url, or the directory of a file, which is made if it is not there.
        owner: the name of the router.
        is_heir: that router is gone, and another one opens its items.

    Attributes:
        waits_for: the reason for which nothing is answered at present; empty: nothing is the matter.
        restarts: number of times that the process has died.
        faults: number of answers that could not be used, because whoever waited for them raised: an error in rpcmq.
        was_taken: another router has, or has had, the items since they were read: what is known of them is outdated.
    """

    def __init__(self, where: str, owner: str, is_heir: bool = False) -> None:
        self._where, self._owner, self._is_heir = where, owner, is_heir
        #: Of the last opening; 0: there was none.
        self._epoch = 0
        self._shown = shown(where)
        #: The time of the last answer, or of the first request since then.
        self._moved = monotonic()
        self._tickets = 0
        #: By ticket, in their order: letter, content, and who waits for the answer.
        self._open: dict[int, tuple[bytes, bytes, Callable[[Any], object]]] = {}
        self._gathered = GatheredChanges()
        #: The last changes that were sent were one.
        self._goes_alone = False
        self._unsent: list[bytes] = []
        self._has_unsent = Event()
        #: The socket of the process, if nobody is sending, and it takes more.
        self._idle_peer: socket.socket | None = None
        self._has_opened = Event()
        self._recovered: Recovered | None = None
        self._refusal = ""
        self.was_taken = False
        self.waits_for = ""
        #: Called when the store was opened again; what was not answered then is answered after that.
        self.on_reopened: Callable[[], object] = lambda: None
        self.restarts = self.faults = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._peer: socket.socket | None = None
        self._file = FileWatch(None if is_database(where) else Path(where) / "queue.db", self._renew)
        self._keeper = gevent.spawn(self._run)

    @property
    def has_lock(self) -> bool:
        """Whether the owner's name is locked, for all queue servers that share the store."""
        return is_database(self._where)

    # --- requests ----------------------------------------------------------------------------

    def apply(self, changes: Sequence[Change], then: Callable[[list[Verdict]], object]) -> None:
        """Make ``changes`` durable, and call ``then`` with the verdicts when they are."""
        self._gathered.add(changes, then)
        is_full = self._gathered.is_full
        if self._idle_peer is not None and (is_full or (self._goes_alone and not self._open)):
            # One change waits for no others of this turn of the loop; of many the first ones are written meanwhile.
            self._send_now(self._idle_peer)
            return
        if is_full:
            self._ask_gathered()
        self._has_unsent.set()

    def read(self, lane: Lane, after: int, most: int, most_bytes: int, then: Callable[[Items], object]) -> None:
        """Read items that are ready; see :meth:`rpcmq.store.contract.Store.read`."""
        self._ask(READ, encode_values("Liii", lane, after, most, most_bytes), then)

    def read_due(
        self, lane: Lane, now: int, after: Position, most: int, most_bytes: int, then: Callable[[Items], object]
    ) -> None:
        """Read items that are due; see :meth:`rpcmq.store.contract.Store.read_due`."""
        self._ask(READ_DUE, encode_values("LiPii", lane, now, after, most, most_bytes), then)

    def read_dead(
        self, queue: str, after: Position, most: int, most_bytes: int, then: Callable[[Items], object]
    ) -> None:
        """Read dead items; see :meth:`rpcmq.store.contract.Store.read_dead`."""
        self._ask(READ_DEAD, encode_values("sPii", queue, after, most, most_bytes), then)

    def read_incoming(self, most: int, most_bytes: int, then: Callable[[Sequence[Incoming]], object]) -> None:
        """Read incoming items; see :meth:`rpcmq.store.contract.Store.read_incoming`."""
        self._ask(READ_INCOMING, encode_values("ii", most, most_bytes), then)

    def next_due(self, lane: Lane, after: Position, then: Callable[[int], object]) -> None:
        """Ask for the time of the next postponed item; see :meth:`rpcmq.store.contract.Store.next_due`."""
        self._ask(NEXT_DUE, encode_values("LP", lane, after), lambda content: then(decode_values("i", content)[0]))

    def find(self, lane: Lane, number: int, then: Callable[[Found | None], object]) -> None:
        """Look for one item; see :meth:`rpcmq.store.contract.Store.find`."""
        self._ask(FIND, encode_values("Li", lane, number), lambda content: then(decode_found(content)))

    def result(self, lane: Lane, number: int, then: Callable[[bytes], object]) -> None:
        """Ask for a result; see :meth:`rpcmq.store.contract.Store.result`."""
        self._ask(RESULT, encode_values("Li", lane, number), then)

    def known(self, puts: Sequence[Put], then: Callable[[list[Verdict]], object]) -> None:
        """Ask which items were put before; see :meth:`rpcmq.store.contract.Store.known`."""
        self._ask(KNOWN, encode_changes(puts), lambda content: then(decode_verdicts(content)))

    def recount(self, then: Callable[[Recovered], object]) -> None:
        """Ask for the numbers of items; see :meth:`rpcmq.store.contract.Store.recount`."""
        self._ask(RECOUNT, b"", lambda content: then(decode_recovered(content)))

    def others(self, then: Callable[[Others], object]) -> None:
        """Ask for the other owners in the store; alone in it, there are none."""

        def take(content: bytes) -> None:
            is_wanted, gone = decode_values("is", content)
            then(Others(bool(is_wanted), tuple(json.loads(gone))))

        self._ask(OTHERS, b"", take)

    def _ask_gathered(self) -> None:
        gathered, self._gathered = self._gathered, GatheredChanges()
        if gathered:
            self._goes_alone = gathered.is_one
            self._ask_now(APPLY, gathered.content, lambda content: gathered.answer(content, self._failed))

    def _ask(self, letter: bytes, content: bytes, then: Callable[[Any], object]) -> None:
        self._ask_gathered()  # those that came before it
        self._ask_now(letter, content, then)
        self._has_unsent.set()

    def _ask_now(self, letter: bytes, content: bytes, then: Callable[[Any], object]) -> None:
        if not self._open:
            self._moved = monotonic()
        self._tickets += 1
        self._open[self._tickets] = letter, content, then
        self._unsent.append(frame(self._tickets, letter, content))

    def _send_now(self, peer: socket.socket) -> None:
        """Send what is gathered to the process, as much as it can be given at once."""
        self._ask_gathered()
        unsent, sent = b"".join(self._unsent), 0
        with suppress(OSError):  # it has no room, or has died: the sender waits for the one, and is told of the other
            sent = peer.send(unsent, 0, 0.0)  # type: ignore[call-arg]  # its stub has no timeout
        self._unsent = [unsent[sent:]]
        if sent < len(unsent):
            self._idle_peer = None  # until the rest was sent
            self._has_unsent.set()

    @property
    def unanswered(self) -> int:
        """Number of requests that are not answered yet."""
        return len(self._open) + bool(self._gathered)

    @property
    def problem(self) -> str:
        """The reason for which nothing is answered, for people to read: :attr:`waits_for`, or that it says nothing.

        So it is with a database that is frozen, cut off, or waits for its replica.
        """
        if not self.waits_for and self._open and monotonic() - self._moved > _SILENCE:
            return f"it has answered nothing for more than {_SILENCE:g} s"
        return self.waits_for

    @property
    def lost(self) -> str:
        """The reason for which nothing more is to be put: its file has gone; empty: it is there."""
        return self._file.lost

    def state(self) -> dict[str, Any]:
        """The state of the store, for people to see."""
        return {
            "where": self._shown,
            "waits_for": self.problem,
            "unanswered": self.unanswered,
            "restarts": self.restarts,
            "faults": self.faults,
        }

    # --- the process -------------------------------------------------------------------------

    @property
    def refusal(self) -> str:
        """The reason for which the store cannot be used any more; empty: it can."""
        return self._refusal

    def wait(self, seconds: float | None = None) -> Recovered:
        """Wait until the store was opened first; for at most ``seconds``, or as long as it takes.

        Returns:
            Its content then.

        Raises:
            StoreError: it cannot be used, or was not opened within so many seconds; the text says why.
        """
        self._has_opened.wait(seconds)
        if self._recovered is None:
            reason = self.waits_for or "it has not answered"
            raise StoreError(self._refusal or f"queue store {self._shown}: not opened within {seconds:g} s: {reason}")
        return self._recovered

    def _run(self) -> None:
        while self._run_process():
            gevent.sleep(_PAUSE)
        self.waits_for = self._refusal
        log_event(log, logging.ERROR, "store refused", self._refusal)
        self._has_opened.set()

    def _run_process(self) -> bool:
        """Run the process until it ends; return whether another one is to be started."""
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "rpcmq.store.process", str(theirs.fileno()), self._owner, str(self._epoch)]
        if self._is_heir:
            command.append("heir")
        try:
            environment = os.environ | {STORE_VARIABLE: self._where}
            process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment)
        except OSError as error:
            ours.close()
            self.waits_for = f"its process cannot be started: {error.strerror}"
            return True
        finally:
            theirs.close()
        self._process, self._peer = process, ours
        self._unsent = [frame(ticket, letter, content) for ticket, (letter, content, _) in self._open.items()]
        self._has_unsent.set()
        sender, beats = gevent.spawn(self._send, ours), gevent.spawn(self._beat)
        with closing(ours):  # also where whoever closes the store ends this greenlet while it waits for the two
            try:
                self._receive(ours)
            finally:
                self._idle_peer = self._peer = None
                beats.kill()
                sender.kill()
        code = process.wait()
        if self._refusal:
            return False
        if code == 0:
            return True  # it was told to close the store: see _renew()
        self.restarts += 1
        self.waits_for = f"its process has ended with exit code {code}"
        log_event(log, logging.ERROR, "store ended", f"queue store {self._shown}: {self.waits_for}", exit_code=code)
        return True

    def _renew(self) -> None:
        """Have the process close the store in order, and another one open it; what is not answered is asked again."""
        if self._peer is not None:
            self._peer.shutdown(socket.SHUT_WR)

    def _beat(self) -> None:
        # A queue server that is stopped must not be the owner for as long as its store's process lives.
        while True:
            gevent.sleep(_BEAT)
            self._unsent.append(frame(0, ALIVE, b""))
            self._has_unsent.set()

    def _send(self, peer: socket.socket) -> None:
        while True:
            self._idle_peer = peer
            self._has_unsent.wait()
            self._idle_peer = None
            self._has_unsent.clear()
            self._ask_gathered()
            unsent, self._unsent = self._unsent, []
            try:
                peer.sendall(b"".join(unsent))
            except OSError:
                return  # the other end has died: what is open is sent to the next one

    def _receive(self, peer: socket.socket) -> None:
        frames, hub = Frames(), gevent.get_hub()
        with closing(hub.loop.io(peer.fileno(), 1)) as readable:
            while True:
                # Not first to read, and to wait where there is nothing: that would keep what follows from an answer.
                hub.wait(readable)
                try:
                    data = peer.recv(_CHUNK)
                except OSError:
                    return
                if not data:
                    return
                for ticket, letter, content in frames.add(data):
                    self._handle(ticket, letter, bytes(content))

    def _handle(self, ticket: int, letter: bytes, content: bytes) -> None:
        self._moved = monotonic()
        if letter == READY:
            self.waits_for = ""
            self._file.opened()
            recovered = decode_recovered(content)
            self._epoch = recovered.epoch
            if self._recovered is None:
                self._recovered = recovered
                self._has_opened.set()
            else:
                self.on_reopened()
        elif letter == WAITING:
            before, (self.waits_for,) = self.waits_for, decode_values("s", content)
            if self.waits_for != before:
                text = f"queue store {self._shown} does not answer: {self.waits_for}"
                log_event(log, logging.WARNING, "store waits", text, why=self.waits_for)
        elif letter in (CANNOT, TAKEN):
            (self._refusal,) = decode_values("s", content)
            self.was_taken = letter == TAKEN
        elif (asked := self._open.pop(ticket, None)) is not None:
            try:
                asked[2](decode_items(content) if letter in ITEMS else content)
            except Exception as error:
                # The answers of others must come.
                self._failed(error)

    def _failed(self, error: Exception) -> None:
        self.faults += 1
        log.error("the answer of the queue store could not be used", exc_info=error)

    def close(self) -> None:
        """End the process once the store is closed; what is not answered is not waited for."""
        process = self._process
        self._file.close()  # before the log is removed in order
        self._keeper.kill()
        if process is None or process.poll() is not None:
            return
        try:
            process.wait(_LAST)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def pid(self) -> int | None:
        """The process id of the child; None before it was started."""
        return None if self._process is None else self._process.pid
