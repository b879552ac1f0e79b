"""One connection of the process for each set of routers and key file, whatever the number of transports and listeners.

A client of rpcmq in plain threads connects anew in a forked child, under a name of its own, so a connection is shared
by a process and what it forks as well: each uses its own.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import Final

from oslo_messaging import InvalidTransportURL, MessageDeliveryFailure

from rpcmq import threads
from rpcmq.errors import ConfigError, RouterUnreachable, UsageError
from rpcmq_oslo.codec import CODEC
from rpcmq_oslo.failures import RefusedByRouter

__all__ = ["FOREVER", "SharedConnection"]

LOG = logging.getLogger(__name__)

#: Seconds of a wait that nothing bounds: as long as rpcmq can wait, about 46 days.
FOREVER: Final = 3_999_999.0
#: Longest wait of a verb for the first connection (seconds): its own timeout comes first.
_CONNECT_SECONDS: Final = 3600.0
#: Seconds after which it is looked at why there is no connection yet, and between two lines of the log that say so.
_LOOK, _LOG_AGAIN = 3.0, 30.0

_clients: dict[tuple[tuple[str, ...], str], threads.Client] = {}
_users: dict[tuple[tuple[str, ...], str], int] = {}
_lock = threading.Lock()


class SharedConnection:
    """A use of the connection to some routers, which is made when it is first needed, and closed by its last user.

    Args:
        routers: their urls.
        key_file: path of the CURVE keys; empty: none.
    """

    def __init__(self, routers: tuple[str, ...], key_file: str) -> None:
        self._key = (routers, key_file)
        self._client: threads.Client | None = None
        self._connected_in = 0

    @property
    def routers(self) -> tuple[str, ...]:
        """The urls of the routers."""
        return self._key[0]

    @property
    def client(self) -> threads.Client:
        """The client, which is connected or connects.

        Raises:
            InvalidTransportURL: rpcmq does not take a url of a router, or the key file.
        """
        client = self._client
        return self._begin() if client is None or client.was_closed else client

    def connect(self, seconds: float) -> None:
        """Wait for the first connection of this process; once there was one, do nothing.

        The log says what is waited for.

        Raises:
            RouterUnreachable: there was none within ``seconds``.
            RefusedByRouter: all routers are there, and accept no process that has this key, or none.
            MessageDeliveryFailure: it was released meanwhile.
            InvalidTransportURL: as :attr:`client`.
        """
        if self._connected_in == os.getpid():
            return
        client = self.client
        deadline, log_at = time.monotonic() + seconds, 0.0
        while True:
            left = deadline - time.monotonic()
            try:
                client.connect(max(0.001, min(_LOOK, left)))
                self._connected_in = os.getpid()
                return
            except UsageError as error:
                raise MessageDeliveryFailure(f"the transport was cleaned up meanwhile: {error}") from error
            except RouterUnreachable as error:
                if error.is_about_keys:
                    raise RefusedByRouter(f"{error} ({_key_shown(self._key[1])})") from error
                if left <= _LOOK:
                    raise
                if time.monotonic() >= log_at:
                    LOG.warning("%s; still trying", error)
                    log_at = time.monotonic() + _LOG_AGAIN

    def release(self) -> None:
        """Use it no more; it may be used again. The last one who does closes the connection."""
        with _lock:
            if self._client is None:
                return
            client, self._client = self._client, None
            self._connected_in = 0
            _users[self._key] -= 1
            if _users[self._key]:
                return
            del _users[self._key], _clients[self._key]
        client.close()

    def _begin(self) -> threads.Client:
        with _lock:
            if self._client is None:
                client = _clients.get(self._key)
                if client is None:
                    client = _clients[self._key] = self._new_client()
                _users[self._key] = _users.get(self._key, 0) + 1
                self._client = client
            return self._client

    def _new_client(self) -> threads.Client:
        routers, key_file = self._key
        try:
            return threads.Client(
                list(routers), key_file=key_file or None, codec=CODEC, connect_timeout=_CONNECT_SECONDS
            )
        except ConfigError as error:
            raise InvalidTransportURL(",".join(routers), str(error)) from error


def _key_shown(key_file: str) -> str:
    return f"key_file of [oslo_messaging_rpcmq]: {key_file}" if key_file else "no key_file in [oslo_messaging_rpcmq]"


def _begin_anew() -> None:
    global _lock
    # Another thread of the parent may have held it.
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_begin_anew)
