"""A client that is given to a service, or to another kind of client, which then use its connection."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rpcmq.errors import UsageError

__all__ = ["refuse_beside_a_client"]


def refuse_beside_a_client(given: Mapping[str, Any]) -> None:
    """Raise if something is given beside the client that is shared, as its connection has that already.

    Args:
        given: by name; None: not given.

    Raises:
        UsageError: something is.
    """
    if others := [name for name, value in given.items() if value is not None]:
        raise UsageError(f"give {', '.join(others)} to the client that is shared, or leave out client")
