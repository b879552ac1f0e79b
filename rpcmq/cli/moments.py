"""Moments as options of commands give them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from rpcmq.errors import UsageError

__all__ = ["parse_moment"]


def parse_moment(text: str | None) -> datetime | None:
    """Return the moment of ``--expires``: days from now as ``90d``, or a date as ``2027-01-31``; None: never.

    Raises:
        UsageError: it is neither.
    """
    if text is None:
        return None
    if days := re.fullmatch(r"([0-9]{1,5})d", text):
        return datetime.now(UTC).replace(microsecond=0) + timedelta(days=int(days[1]))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"--expires {text!r}: expected days as '90d', or a date as '2027-01-31'") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
