"""Whether the host name of an endpoint resolves: libzmq says nothing of one that does not, and tries only once."""

from __future__ import annotations

import re
from collections.abc import Callable

import gevent
from gevent.socket import AF_INET, SOCK_STREAM, gaierror, getaddrinfo

__all__ = ["NameCheck"]

#: A connection to a name that resolves is usually there before (seconds).
_AFTER = 0.25
_ENDPOINT = re.compile(r"tcp://(?P<host>[^\[\]:;/*]+):(?P<port>[0-9]+)")
_NUMBERS = re.compile(r"[0-9.]+")


class NameCheck:
    """Looks the host name in ``url`` up, unless it is closed within a quarter of a second.

    Args:
        on_failure: called in the hub with a text that says why the name does not resolve.
    """

    def __init__(self, url: str, on_failure: Callable[[str], object]) -> None:
        self._on_failure = on_failure
        self._greenlet: gevent.Greenlet[[str, int], None] | None = None
        found = _ENDPOINT.fullmatch(url)
        if found is not None and not _NUMBERS.fullmatch(found["host"]):
            self._greenlet = gevent.spawn_later(_AFTER, self._look_up, found["host"], int(found["port"]))

    def stop(self) -> None:
        """See :meth:`close`."""
        self.close()

    def close(self) -> None:
        """Say nothing of it."""
        if self._greenlet is not None and self._greenlet is not gevent.getcurrent():
            self._greenlet.kill(block=False)
        self._greenlet = None

    def _look_up(self, host: str, port: int) -> None:
        try:
            # As libzmq does for an endpoint without brackets.
            getaddrinfo(host, port, AF_INET, SOCK_STREAM)
        except gaierror as error:
            problem = f"the host name {host!r} does not resolve ({error.strerror})"
        except (OSError, UnicodeError) as error:
            problem = f"the host name {host!r} cannot be looked up ({error})"
        else:
            return
        if self._greenlet is not None:
            self._on_failure(problem)
