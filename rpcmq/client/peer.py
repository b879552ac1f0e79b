"""Direct calls: straight to a consumer where that is possible, through the router where it is not."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from time import monotonic
from typing import Protocol

from rpcmq.core.process.call import Call
from rpcmq.core.process.calls import Calls
from rpcmq.core.process.direct_links import DirectLink, DirectLinkTable
from rpcmq.core.process.task_table import TaskTable
from rpcmq.core.process.uplink import Uplink
from rpcmq.errors import CallError, CallTimeout, ProtocolError, RouterUnreachable
from rpcmq.payload.format import Format
from rpcmq.transport.connection import Connection
from rpcmq.transport.key_files import KeyFile, curve_for
from rpcmq.transport.peer_socket import PeerSocket, local_host_towards
from rpcmq.transport.shell import ClientShell, Handle
from rpcmq.wire import KEY, Kind
from rpcmq.wire.bodies import IntroductionBody

__all__ = ["DirectLinks"]

log = logging.getLogger("rpcmq.client")

#: Longest time to establish a direct link (seconds).
_CONNECT_TIMEOUT = 1.0
#: Time for which the router is used after a direct link failed (seconds).
_RETRY_AFTER = 30.0
#: Most reasons of fallbacks that are counted apart: peers choose parts of their texts.
_MAX_REASONS = 100


class LinkOwner(Protocol):
    """A process, as its direct links need it: :class:`rpcmq.client.process.Process`."""

    identity: str
    keys: KeyFile | None
    uplink: Uplink
    calls: Calls
    tasks: TaskTable
    connection: Connection

    @property
    def shell(self) -> ClientShell:
        """The loop that all of them live in."""

    def wait(
        self, call: Call, until_item: bool = False, on_progress: Callable[[Call, bytes], object] | None = None
    ) -> None:
        """Wait until ``call`` has ended."""

    def end_within(self, seconds: float, call: Call, cancel: Callable[[], object], error: CallError) -> Handle:
        """Have ``cancel`` called, and ``call`` end with ``error``, unless it is done within ``seconds``."""

    def switch(self, switch: Callable[[], object]) -> None:
        """Resume somebody who waits."""

    def start_tasks(self) -> object:
        """Start the handlers of what was delivered."""


class DirectLinks:
    """The direct links of a process, made as they are asked for.

    Attributes:
        fallbacks: calls that went through the router instead, by reason.
    """

    def __init__(self, process: LinkOwner) -> None:
        self._process = process
        self._peers = DirectLinkTable(process.identity, process.tasks)
        self._socket: PeerSocket | None = None
        self._by_address: dict[bytes, DirectLink] = {}
        self._not_before: dict[bytes, tuple[float, str]] = {}
        self._accepts: dict[DirectLink, int] = {}
        self._making = process.shell.lock()
        self.fallbacks: Counter[str] = Counter()
        process.uplink.handle(Kind.INTRODUCTION, self._introduction)

    def listen(self) -> str:
        """The url where peers can connect to this process.

        Raises:
            RouterUnreachable: no port can be had.
        """
        if self._socket is None:
            host = local_host_towards(self._process.connection.url)
            most, curve = self._process.uplink.max_message_bytes, curve_for(self._process.keys)
            lost_seconds = self._process.uplink.lost_seconds
            shell = self._process.shell
            self._socket = PeerSocket(self._peers, host, most, self._after_receive, shell, curve, lost_seconds)
            if curve is None and not ip_address(host.partition("%")[0]).is_loopback:
                text = "reachable from other hosts and unencrypted; give this process a key_file"
                log.warning("direct calls: listening on %s without CURVE: %s", self._socket.url, text)
        url: str = self._socket.url
        return url

    def schedule(self) -> None:
        """Flush queued direct messages at the end of this turn of the loop."""
        if self._socket is not None and self._peers.dirty:
            self._socket.schedule()

    def has_link(self, address: bytes) -> bool:
        """Return whether there is a direct link to a consumer of ``address``: it does not need the router."""
        link = self._by_address.get(address)
        return link is not None and not link.closed

    def link_to(self, address: bytes, name: str, timeout: float) -> DirectLink | None:
        """A direct link to a consumer of ``address``; None, with the reason counted, if there can be none."""
        link = self._by_address.get(address)
        if link is not None and not link.closed:
            return link
        # One at a time: callers that come meanwhile use the link that the first one makes.
        with self._making:
            return self._link_made(address, name, timeout)

    def _link_made(self, address: bytes, name: str, timeout: float) -> DirectLink | None:
        link = self._by_address.get(address)
        if link is not None and not link.closed:
            return link
        until, reason = self._not_before.get(address, (0.0, ""))
        if monotonic() >= until:
            try:
                link = self._make(address, name, min(timeout, _CONNECT_TIMEOUT))
                self._by_address[address] = link
                return link
            except (CallError, ProtocolError, RouterUnreachable) as error:
                reason = str(error)
                self._not_before[address] = monotonic() + _RETRY_AFTER, reason
                log.warning("no direct link to %r: %s; calls go through the router", name, reason)
        if len(self.fallbacks) >= _MAX_REASONS and reason not in self.fallbacks:
            reason = "other reasons"
        self.fallbacks[reason] += 1
        return None

    def forget(self, address: bytes) -> None:
        """Forget the link to ``address``, whose process does not serve it; the next call asks again."""
        self._by_address.pop(address, None)

    def accepts(self, link: DirectLink) -> int:
        """Mask of the formats that the process behind ``link`` decodes."""
        return self._accepts.get(link, Format.JSON.bit)

    def call(
        self,
        link: DirectLink,
        call: Call,
        payload: bytes,
        format: int,
        address: bytes,
        method: bytes,
        on_progress: Callable[[Call, bytes], object] | None = None,
    ) -> None:
        """Send ``call`` on ``link`` and wait for its end; ``call`` has the answer or the error then."""
        timer = self.start(link, call, payload, format, address, method)
        try:
            self._process.wait(call, False, on_progress)
        except BaseException:
            self.cancel(link, call)
            raise
        finally:
            timer.stop()
            timer.close()

    def start(self, link: DirectLink, call: Call, payload: bytes, format: int, address: bytes, method: bytes) -> Handle:
        """Send ``call`` on ``link``; return what ends it with a CallTimeout when its time is over."""
        self._peers.start(link, call, payload, format, address, method)
        self.schedule()
        seconds = call.timeout or 60.0
        text = f"with {link.identity} (direct) for {seconds:.1f} s, no answer"
        expired = CallTimeout(text, {"topic": call.address, "server": link.identity, "state": "direct"})
        return self._process.end_within(seconds, call, partial(self.cancel, link, call), expired)

    def open_calls(self) -> list[tuple[DirectLink, Call]]:
        """Calls on direct links that have not ended."""
        return [(link, call) for link in self._peers.links.values() for call in link.calls.values()]

    def cancel(self, link: DirectLink, call: Call) -> None:
        """Cancel ``call``: nobody waits for it any more."""
        self._peers.cancel(link, call)
        self.schedule()

    def close(self) -> None:
        """End all direct links."""
        if self._socket is not None:
            self._socket.close()
            self._after_receive()

    def _make(self, address: bytes, name: str, timeout: float) -> DirectLink:
        process = self._process
        ask = Call(name, 0, timeout)
        process.calls.start(monotonic(), ask, Kind.INTRODUCE, b"", address=address)
        process.connection.schedule()
        process.wait(ask)
        if ask.error is not None:
            raise ask.error
        assert ask.answer is not None
        body = IntroductionBody.of(ask.answer)
        if not body.url:
            raise RouterUnreachable(body.text or "the consumer does not listen for peers")
        self.listen()
        assert self._socket is not None
        link = self._socket.connect(body.url, body.identity or "", body.ticket or "", body.key or "")
        changed = process.shell.event()
        link.on_change = changed.set
        if not link.welcomed and not link.closed:
            changed.wait(timeout)
        if not link.welcomed:
            reason = link.closed or f"no answer within {timeout:g} s"
            self._socket.disconnect(link, reason)
            raise RouterUnreachable(f"{link.identity} at {body.url}: {reason}")
        self._accepts = {known: mask for known, mask in self._accepts.items() if not known.closed}
        self._accepts[link] = body.accepts if body.accepts is not None else Format.JSON.bit
        return link

    def _introduction(self, now: float, message: bytes) -> None:
        if message[KEY] in self._process.calls.open:
            self._process.calls.on_end(now, message)
            return
        body = IntroductionBody.of(message)
        if body.revoked and self._socket is not None:
            for link in self._peers.revoked(body.revoked):
                self._socket.disconnect(link, "its key was revoked, or has lost a right")
            return
        self._peers.announce(
            now, body.ticket or "", body.identity or "", body.key or "", body.topic or "", body.via or ""
        )

    def _after_receive(self) -> None:
        shell = self._process.shell
        if shell.can_wait:
            # Those who are woken run until they wait, and then return to the loop, not to the caller of this.
            shell.call_soon(self._after_receive)
            return
        changed, self._peers.changed = self._peers.changed, []
        for call in changed:
            if call.waiter is not None:
                self._process.switch(call.waiter)
        self._process.start_tasks()
