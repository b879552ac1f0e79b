"""The files of latency policies, whose format is :mod:`rpcmq.log_format.latency_policy`."""

from __future__ import annotations

import errno
from pathlib import Path

from rpcmq.latency.files import Unsuitable, read_regular, write_whole
from rpcmq.log_format.latency_policy import (
    LARGEST_BYTES,
    LONGEST_US,
    PERCENTILES,
    VERSION,
    Entry,
    Policy,
    PolicyRefused,
    as_json,
    check_policy,
    parse_policy,
    too_large,
)

__all__ = [
    "LONGEST_US",
    "PERCENTILES",
    "VERSION",
    "Entry",
    "Policy",
    "PolicyRefused",
    "as_json",
    "read_policy",
    "write_policy",
]


def write_policy(path: Path, policy: Policy) -> None:
    """Write ``policy`` to ``path`` atomically.

    Raises:
        ValueError: it has no entries, one that a reader would refuse, or too many for a file.
        OSError: it was not written.
    """
    write_whole(path, check_policy(policy))


def read_policy(path: Path, now: float) -> Policy:
    """The policy in ``path``, without methods that are too old by now.

    Args:
        now: seconds since 1970.

    Raises:
        PolicyRefused: it is no such file, too large, of another version, damaged, too old, from the future, or has a
            value that cannot be.
        OSError: it cannot be read.
    """
    try:
        # A link to the policy that is valid now is an ordinary way to put another in its place.
        data = read_regular(path, LARGEST_BYTES, follow=True)
    except Unsuitable as error:
        why = too_large(path.stat().st_size) if error.errno == errno.EFBIG else error.strerror
        raise PolicyRefused(f"{path}: {why}") from None
    return parse_policy(data, path, now)
