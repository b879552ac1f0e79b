"""Whether the host name of an endpoint resolves: libzmq says nothing of one that does not, and tries only once."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from random import choice
from typing import Any

__all__ = ["AFTER", "host_of", "numeric_url", "why_unknown"]

#: Delay before the host name is looked up (seconds): a connection to a name that resolves is usually there before.
AFTER = 0.25
_ENDPOINT = re.compile(r"tcp://(?P<host>[^\[\]:;/*]+):(?P<port>[0-9]+)")
_NUMBERS = re.compile(r"[0-9.]+")


def host_of(url: str) -> tuple[str, int] | None:
    """The host name and the port in ``url``; None if it has no name to look up."""
    found = _ENDPOINT.fullmatch(url)
    return None if found is None or _NUMBERS.fullmatch(found["host"]) else (found["host"], int(found["port"]))


def why_unknown(getaddrinfo: Callable[..., Any], host: str, port: int) -> str:
    """Look ``host`` up with ``getaddrinfo``; return why it does not resolve, or an empty text if it does."""
    return _look_up(getaddrinfo, host, port)[1]


def numeric_url(getaddrinfo: Callable[..., Any], url: str) -> tuple[str, str]:
    """Look the host name in ``url`` up with ``getaddrinfo``.

    Returns:
        ``url`` with one of the host's addresses, any of them, in place of its name; and why it does not resolve, empty
        if it does.
    """
    found = host_of(url)
    if found is None:
        return url, ""
    addresses, problem = _look_up(getaddrinfo, *found)
    return (url, problem) if problem else (f"tcp://{choice(addresses)}:{found[1]}", "")


def _look_up(getaddrinfo: Callable[..., Any], host: str, port: int) -> tuple[list[str], str]:
    """The addresses of ``host``, and why there are none."""
    try:
        # As libzmq does for an endpoint without brackets.
        found = getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    except socket.gaierror as error:
        return [], f"the host name {host!r} does not resolve ({error.strerror})"
    except (OSError, UnicodeError) as error:
        return [], f"the host name {host!r} cannot be looked up ({error})"
    return [address[0] for *_, address in found], ""
