"""The place of the items of queues: a directory with a file, or a PostgreSQL database."""

from __future__ import annotations

import re

__all__ = ["STORE_VARIABLE", "is_database", "shown"]

#: The variable by which processes are told the place. A url may have a password, which arguments would show to all.
STORE_VARIABLE = "RPCMQ_QUEUE_STORE"

_SCHEMES = ("postgresql://", "postgres://")


def is_database(where: str) -> bool:
    """Return whether ``where`` is the url of a PostgreSQL database; else it is a directory."""
    return where.startswith(_SCHEMES)


def shown(where: str) -> str:
    """``where`` for logs and views: without a password."""
    if not is_database(where):
        return where
    hidden = re.sub(r"(?<=://)([^/?@]*?):[^/?]*@", r"\1:***@", where)
    return re.sub(r"((?:^|[?&])(?:ssl)?password=)[^&]*", r"\1***", hidden)
